//! Requirements on the answer to a lookup, and on the state after all writes.

use std::time::Duration;

use hotrow_measure::clock::Nanos;

use super::db::{IDS, Spelled, VALUES};
use super::world::{Asked, BOUND, Client, World, alias_key, row_key};
use crate::alias::AliasAttempts;
use crate::{Presence, ReadMode, Record};

/// Returns the number of the last commit in the body of a row, and its value.
fn parts_of(row: &Record) -> Option<(u64, char)> {
    let text = std::str::from_utf8(row.body()).ok()?;
    let (_, rest) = text.split_once(r#""v":""#)?;
    let number = rest.split_once(r#""n":"#)?.1.strip_suffix('}')?;
    Some((number.parse().ok()?, rest.chars().next()?))
}

impl World {
    /// Checks a row against the contract of its key.
    pub(super) fn check_row(&mut self, client: &Client, row: &Record) -> Result<(), String> {
        let Some((number, _)) = parts_of(row) else { return Ok(()) };
        let id = (0..IDS).find(|id| row_key(*id).as_bytes() == row.key_bytes());
        let id = id.ok_or("the record of another collection")?;
        let place = usize::from(id);
        let due = self.db.row_at(id, self.due(client)).0;
        let what = format!("row {id} as of commit {number}, asked at {:?}", client.at);
        if number < client.floors[place] {
            return Err(format!("older than an answer or an event before: {what}"));
        }
        if number < due {
            return Err(format!("not fresh: {what}, commit {due} is due"));
        }
        self.floors[place] = self.floors[place].max(number);
        Ok(())
    }

    pub(super) fn check_found(
        &mut self,
        client: &Client,
        value: Spelled,
        row: &Record,
    ) -> Result<(), String> {
        self.check_row(client, row)?;
        let id = (0..IDS).find(|id| row_key(*id).as_bytes() == row.key_bytes());
        let has_value =
            parts_of(row).is_some_and(|(_, own)| own.eq_ignore_ascii_case(&value.letter()));
        if row.presence() == Presence::Missing || !has_value {
            return Err(format!("row {id:?} does not have the value {value:?}"));
        }
        if !self.db.had_owner(value.value, id, (self.due(client), self.now)) {
            return Err(format!("row {id:?} did not have {value:?} since {:?}", client.at));
        }
        Ok(())
    }

    pub(super) fn check_absent(&mut self, client: &Client, value: Spelled) -> Result<(), String> {
        self.counts.absent += 1;
        if self.db.had_owner(value.value, None, (self.due(client), self.now)) {
            return Ok(());
        }
        Err(format!("{value:?} was never free, asked at {:?}, now {:?}", client.at, self.now))
    }

    /// Returns the time from which a lookup must see what was visible.
    fn due(&self, client: &Client) -> Nanos {
        client.at.before(BOUND).before(Duration::from_nanos(1))
    }

    /// When writes stop, every value and every row is as in the database.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        self.db.reveal(self.now, || true);
        self.finish_all()?;
        self.now = self.now.after(BOUND);
        self.probes.push((self.now, self.db.end()));
        self.deliver(u64::MAX);
        self.now = self.now.after(Duration::from_nanos(1));
        for value in 0..VALUES {
            for is_upper in [false, true] {
                if self.is_folding || !is_upper {
                    // Twice: from what the schedule left in memory, and from what this one stored.
                    let value = Spelled { value, is_upper };
                    for _ in 0..2 {
                        let attempts = AliasAttempts::new(ReadMode::Normal);
                        let asked = Asked::Value { value, attempts, alias: None };
                        self.begin(asked, &alias_key(value), ReadMode::Normal)?;
                        self.finish_all()?;
                        self.now = self.now.after(BOUND);
                        self.probes.push((self.now, self.db.end()));
                        self.deliver(u64::MAX);
                    }
                }
            }
        }
        Ok(())
    }

    fn finish_all(&mut self) -> Result<(), String> {
        for _ in 0..10_000 {
            if self.clients.is_empty() && self.readers.is_empty() {
                return Ok(());
            }
            self.now = self.now.after(Duration::from_nanos(1));
            self.next_batch();
            self.complete();
            self.poll_one()?;
        }
        Err(format!("{} clients wait for ever", self.clients.len()))
    }
}
