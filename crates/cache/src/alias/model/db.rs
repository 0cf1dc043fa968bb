//! Simulated table with a unique value per row: a log of commits, and the part of it that reads see
//! at each moment.

use std::sync::Arc;

use hotrow_measure::clock::Nanos;
use hotrow_types::version::{Snapshot, Version};

/// Rows of the table.
pub(super) const IDS: u8 = 4;
/// Values that differ in the database.
pub(super) const VALUES: u8 = 3;

/// A value as a row spells it. Spellings of one value are equal in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Spelled {
    pub(super) value: u8,
    pub(super) is_upper: bool,
}

impl Spelled {
    pub(super) fn letter(self) -> char {
        let letter = char::from(b'a' + self.value);
        if self.is_upper { letter.to_ascii_uppercase() } else { letter }
    }
}

/// State of a row after a commit; `None`: there is none.
pub(super) type RowState = Option<Spelled>;

/// One commit. Its number is its index in the log, from 1.
pub(super) struct Commit {
    /// Time at which it was written to the log, where the feed finds it.
    pub(super) at: Nanos,
    /// Time at which it became visible and returned to its client. `None`: not yet (Race B).
    pub(super) visible_at: Option<Nanos>,
    pub(super) rows: Vec<(u8, RowState)>,
    /// Values that rows had or have, and that no other commit may touch before this one ends.
    pub(super) values: Vec<u8>,
}

impl Commit {
    fn is_visible(&self, time: Nanos) -> bool {
        self.visible_at.is_some_and(|at| at <= time)
    }

    fn conflicts(&self, other: &Self) -> bool {
        self.rows.iter().any(|(id, _)| other.rows.iter().any(|(other, _)| other == id))
            || self.values.iter().any(|value| other.values.contains(value))
    }
}

/// The table, and who had each value when.
#[derive(Default)]
pub(super) struct Db {
    pub(super) log: Vec<Commit>,
    /// Rows by value, from the time of the first; the newest state is the last.
    owners: Vec<(Nanos, [Option<u8>; VALUES as usize])>,
}

impl Db {
    /// Adds a commit. Commits that hold locks on its rows or values end first.
    pub(super) fn commit(&mut self, commit: Commit) {
        let now = commit.at;
        for other in &mut self.log {
            if other.visible_at.is_none() && other.conflicts(&commit) {
                other.visible_at = Some(now);
            }
        }
        self.log.push(commit);
        self.note_owners(now);
    }

    /// Makes the hidden commits visible that `chosen` selects.
    pub(super) fn reveal(&mut self, now: Nanos, mut chosen: impl FnMut() -> bool) {
        let hidden = self.log.iter_mut().filter(|commit| commit.visible_at.is_none());
        hidden.filter(|_| chosen()).for_each(|commit| commit.visible_at = Some(now));
        self.note_owners(now);
    }

    fn note_owners(&mut self, now: Nanos) {
        let owners = std::array::from_fn(|value| {
            (0..IDS).find(|id| {
                let (_, row) = self.row_at(*id, now);
                row.is_some_and(|row| usize::from(row.value) == value)
            })
        });
        self.owners.push((now, owners));
    }

    pub(super) fn end(&self) -> u64 {
        self.log.len() as u64
    }

    /// Returns the row as all commits leave it, visible or not: a writer waits for the others.
    pub(super) fn newest(&self, id: u8) -> RowState {
        let rows = self.log.iter().rev().flat_map(|commit| &commit.rows);
        rows.filter(|(other, _)| *other == id).map(|(_, row)| *row).next().flatten()
    }

    /// Returns a row as a read at `time` sees it, with the number of its last commit.
    pub(super) fn row_at(&self, id: u8, time: Nanos) -> (u64, RowState) {
        for (i, commit) in self.log.iter().enumerate().rev() {
            let row = commit.rows.iter().find(|(other, _)| *other == id);
            if let (Some((_, row)), true) = (row, commit.is_visible(time)) {
                return (i as u64 + 1, *row);
            }
        }
        (0, None)
    }

    /// Returns the row with a value as a read at `time` sees it.
    pub(super) fn owner_at(&self, value: u8, time: Nanos) -> Option<(u8, Spelled)> {
        (0..IDS).find_map(|id| {
            let row = self.row_at(id, time).1.filter(|row| row.value == value)?;
            Some((id, row))
        })
    }

    /// Returns whether the row with a value was this one at some time of a span.
    pub(super) fn had_owner(&self, value: u8, owner: Option<u8>, span: (Nanos, Nanos)) -> bool {
        let at_start = self.owners.iter().rposition(|(from, _)| *from <= span.0);
        let is_initial = at_start.is_none() && owner.is_none();
        let within = self.owners.iter().skip(at_start.unwrap_or(0));
        let mut within = within.take_while(|(from, _)| *from <= span.1);
        is_initial || within.any(|(_, owners)| owners[usize::from(value)] == owner)
    }

    /// Returns what a read at `time` sees.
    pub(super) fn snapshot(&self, time: Nanos) -> Version {
        let xmax = self.log.partition_point(|commit| commit.at <= time) as u64 + 1;
        let is_running = |xid: &u64| !self.log[*xid as usize - 1].is_visible(time);
        let running: Vec<u64> = (1..xmax).filter(is_running).collect();
        let xmin = running.first().copied().unwrap_or(xmax);
        Version::Snapshot { incarnation: 1, snapshot: Arc::new(Snapshot { xmin, xmax, running }) }
    }
}
