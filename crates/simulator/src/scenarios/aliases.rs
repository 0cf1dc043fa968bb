//! Lookups by alias: changes that move values between rows, under a feed that lags behind the log
//! or runs ahead of what reads see.
//!
//! The first collection has the rows. The second one is their unique index: its rows are the
//! values, each in the state of its owner, so that a writer holds the locks of the values as well.

use hotrow_cache::alias::{AliasAttempts, AliasTarget, alias_record};
use hotrow_cache::{Fetched, Presence, ReadMode, Record};
use hotrow_measure::clock::Nanos;
use hotrow_types::key::{Collation, CollectionId, Key, KeyPart, KeySchema, KeyType};
use hotrow_types::version::ChangeId;

use super::Mistake;
use super::one_cache::{OneCache, PendingRequest, Rows};
use crate::database::{RowVersion, Target};

/// Rows of the table.
const IDS: usize = 4;
/// Values that differ in the database.
const VALUES: usize = 3;
const ALIASES: CollectionId = CollectionId(1);
/// Bit of a row's state: the value is spelled in capitals.
const UPPER: u16 = 1 << 8;

/// Rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AliasMistake {
    /// The value that a row has now ends no earlier answer for it.
    NewValueIgnored,
    /// It ends the entry and the lease, but a later read that does not see it may be stored.
    NoMark,
    /// The row that the alias was read with becomes the entry of its key.
    RowInstalled,
    /// An answer for another spelling of a value is stored, as if the feed reported that one.
    CaseFolded,
    /// A row is answered whether it has the value or not.
    Unconfirmed,
}

/// A value as a row spells it: equal in the database to its other spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spelled {
    value: usize,
    is_upper: bool,
}

impl Spelled {
    fn of(state: u16) -> Self {
        Self { value: usize::from(state & !UPPER), is_upper: state & UPPER != 0 }
    }

    fn state(self) -> u16 {
        self.value as u16 | if self.is_upper { UPPER } else { 0 }
    }

    fn letter(self) -> char {
        let letter = char::from(b'a' + self.value as u8);
        if self.is_upper { letter.to_ascii_uppercase() } else { letter }
    }

    fn key(self) -> Key {
        let schema = KeySchema::new(ALIASES, vec![KeyType::Text(Collation::Database)]);
        #[allow(clippy::expect_used, reason = "a letter is a key")]
        schema.key(&[KeyPart::Text(&self.letter().to_string())]).expect("a text")
    }

    fn member(self) -> String {
        format!(r#""v":"{}""#, self.letter())
    }
}

pub(crate) struct Aliases {
    mistake: Option<AliasMistake>,
    /// The database compares values without case, and the feed reports the stored spelling.
    is_folding: bool,
}

pub(crate) enum Request {
    Key(usize),
    Value { value: usize, is_upper: bool, attempts: AliasAttempts, alias: Option<Record> },
}

type World = OneCache<Aliases>;

/// Returns the version of a row in its body, and its value.
fn parts_of(row: &Record) -> Option<(usize, char)> {
    let text = std::str::from_utf8(row.body()).ok()?;
    let (_, rest) = text.split_once(r#""v":""#)?;
    let version = rest.split_once(r#""n":"#)?.1.strip_suffix('}')?;
    Some((version.parse().ok()?, rest.chars().next()?))
}

impl World {
    fn newest(&self, id: usize) -> Option<Spelled> {
        let last = self.database.newest(id, |_| true);
        self.database.version(id, last).state.map(Spelled::of)
    }

    /// Returns the index entry of a value.
    fn index(value: usize) -> usize {
        IDS + value
    }

    fn any_value(&mut self) -> Spelled {
        let value = self.random.below(VALUES);
        Spelled { value, is_upper: self.rows.is_folding && self.random.one_in(2) }
    }

    fn ask_for_value(&mut self, asked: Spelled, mode: ReadMode) -> Result<(), String> {
        let Spelled { value, is_upper } = asked;
        let attempts = AliasAttempts::new(mode);
        self.begin(Request::Value { value, is_upper, attempts, alias: None }, &asked.key(), mode)
    }

    fn body(&self, id: usize) -> Option<(Spelled, Vec<u8>)> {
        let version = self.database.visible(id);
        let own = Spelled::of(self.database.version(id, version).state?);
        Some((own, format!(r#"{{"id":{id},{},"n":{version}}}"#, own.member()).into_bytes()))
    }

    fn read_alias(&mut self, asked: Spelled) -> Fetched<&'static str> {
        let index = Self::index(asked.value);
        let owner = self.database.version(index, self.database.visible(index)).state;
        let row = owner.and_then(|id| Some((usize::from(id), self.body(usize::from(id))?)));
        let row = row.filter(|(_, (own, _))| self.rows.is_folding || *own == asked);
        let keeps_all =
            !self.rows.is_folding || self.rows.mistake == Some(AliasMistake::CaseFolded);
        let Some((id, (own, body))) = row else {
            return if keeps_all { Fetched::Missing } else { Fetched::Uncacheable(None) };
        };
        let key = self.database.key(id);
        if self.rows.mistake == Some(AliasMistake::RowInstalled) {
            self.cache.install(&key, &body, self.now);
        }
        let record = alias_record(&key, &[own.member().as_bytes()]);
        if own == asked || keeps_all {
            return Fetched::Found(record);
        }
        self.tally.note("uncacheable");
        Fetched::Uncacheable(Some(record))
    }

    /// Checks a row against the contract of its key.
    fn check_row(
        &mut self,
        asked: &PendingRequest<Aliases>,
        id: usize,
        row: &Record,
    ) -> Result<(), String> {
        let Some((version, _)) = parts_of(row) else { return Ok(()) };
        let due = self.database.version_at(id, self.due(asked));
        let what = format!("row {id} in version {version}, asked at {:?}", asked.at);
        if version < asked.floors[id] {
            return Err(format!("older than an answer or an event before: {what}"));
        }
        if version < due {
            return Err(format!("not fresh: {what}, {due} is due"));
        }
        self.floors[id] = self.floors[id].max(version);
        Ok(())
    }

    fn check_found(
        &mut self,
        asked: &PendingRequest<Aliases>,
        value: Spelled,
        row: &Record,
    ) -> Result<(), String> {
        let id = (0..IDS).find(|id| self.database.key(*id).as_bytes() == row.key_bytes());
        let id = id.ok_or("the record of another collection")?;
        self.check_row(asked, id, row)?;
        let has_value =
            parts_of(row).is_some_and(|(_, own)| own.eq_ignore_ascii_case(&value.letter()));
        if row.presence() == Presence::Missing || !has_value {
            return Err(format!("row {id} does not have the value {value:?}"));
        }
        self.check_owner(asked, value, Some(id as u16))
    }

    /// Checks that the row with a value was this one at some time within the bound.
    fn check_owner(
        &self,
        asked: &PendingRequest<Aliases>,
        value: Spelled,
        owner: Option<u16>,
    ) -> Result<(), String> {
        let span = (self.due(asked), self.now);
        let is_it = |version: &RowVersion| version.state == owner;
        match self.database.versions_within(Self::index(value.value), span).any(is_it) {
            true => Ok(()),
            false => Err(format!("{owner:?} did not have {value:?} within {span:?}")),
        }
    }
}

impl Rows for Aliases {
    type Request = Request;
    const STEPS: u64 = 600;

    fn world(seed: u64, mistake: Option<Mistake>) -> World {
        let mistake = if let Some(Mistake::Alias(own)) = mistake { Some(own) } else { None };
        let is_folding = seed % 5 < 2;
        let rows = Self { mistake, is_folding };
        let world = OneCache::of(rows, seed, IDS, seed.is_multiple_of(2));
        if is_folding {
            world.cache.expect_aliases(ALIASES);
        }
        world
    }

    fn request(world: &mut World) -> Result<(), String> {
        if world.random.below(30) < 8 {
            let id = world.random.below(IDS);
            let mode = if world.random.one_in(6) { ReadMode::Revalidate } else { ReadMode::Normal };
            let key = world.database.key(id);
            return world.begin(Request::Key(id), &key, mode);
        }
        let value = world.any_value();
        let mode = if world.random.one_in(12) { ReadMode::Revalidate } else { ReadMode::Normal };
        world.ask_for_value(value, mode)
    }

    /// Changes one row, or moves a value from one row to another.
    fn write(world: &mut World) {
        let rows: Vec<Option<Spelled>> = (0..IDS).map(|id| world.newest(id)).collect();
        let free = (0..VALUES).find(|value| rows.iter().flatten().all(|row| row.value != *value));
        let (id, other) = (world.random.below(IDS), world.random.below(IDS));
        let is_upper = world.rows.is_folding && world.random.one_in(2);
        let mut changed = Vec::new();
        match (rows[id], free, world.random.below(4)) {
            (None, Some(value), _) => changed.push((id, Some(Spelled { value, is_upper }))),
            (Some(_), _, 0) => changed.push((id, None)),
            (Some(row), _, 1) => changed.push((id, Some(Spelled { is_upper, ..row }))),
            (Some(row), _, 2) if other != id => {
                world.tally.note("moved");
                changed.push((id, rows[other]));
                changed.push((other, Some(Spelled { is_upper, ..row })));
            }
            (Some(_), Some(value), _) => changed.push((id, Some(Spelled { value, is_upper }))),
            _ => return,
        }
        let mut states: Vec<(usize, Option<u16>)> = Vec::new();
        let had = changed.iter().filter_map(|(id, _)| Some((Self::index_of(rows[*id]?), None)));
        states.extend(had);
        let has = changed
            .iter()
            .filter_map(|(id, row)| Some((Self::index_of((*row)?), Some(*id as u16))));
        // The new owner of a value counts, not the old one.
        for (index, owner) in has.collect::<Vec<_>>() {
            states.retain(|(other, _)| *other != index);
            states.push((index, owner));
        }
        states.extend(changed.iter().map(|(id, row)| (*id, row.map(Spelled::state))));
        let targets: Vec<Target> = states.iter().map(|(row, _)| Target::Row(*row)).collect();
        let state = |row: usize| states.iter().find(|(own, _)| *own == row).and_then(|own| own.1);
        world.database.write(&targets, world.now, state);
        world.end_write();
    }

    fn deliver(world: &mut World, number: u64, mark: ChangeId) {
        let place = (world.database.incarnation, number);
        for change in world.database.log[number as usize - 1].changes.clone() {
            let Target::Row(row @ 0..IDS) = change.target else { continue };
            let key = world.database.key(row);
            world.invalidate(&key, mark);
            let version = world.database.placed(row, place).unwrap_or_default();
            let Some(state) = world.database.version(row, version).state else { continue };
            let alias = Spelled::of(state).key();
            match world.rows.mistake {
                Some(AliasMistake::NewValueIgnored) => {}
                Some(AliasMistake::NoMark) => _ = world.cache.purge(&alias),
                _ => world.invalidate(&alias, mark),
            }
        }
    }

    fn read(world: &mut World, key: &Key, _: Nanos) -> Fetched<&'static str> {
        let spellings =
            (0..VALUES).flat_map(|value| [false, true].map(|is_upper| Spelled { value, is_upper }));
        if let Some(asked) = spellings.into_iter().find(|spelled| spelled.key() == *key) {
            return world.read_alias(asked);
        }
        let row = world.database.row_of(key).and_then(|id| world.body(id));
        row.map_or(Fetched::Missing, |(_, body)| Fetched::Found(body))
    }

    fn answered(
        world: &mut World,
        mut asked: PendingRequest<Self>,
        got: &Record,
    ) -> Result<(), String> {
        let (value, attempts, alias) = match &mut asked.what {
            Request::Value { value, is_upper, attempts, alias } => {
                (Spelled { value: *value, is_upper: *is_upper }, attempts, alias)
            }
            Request::Key(id) => {
                let id = *id;
                world.tally.note("by key");
                return world.check_row(&asked, id, got);
            }
        };
        let Some(of_alias) = alias.take() else {
            let target = AliasTarget::of(got).map(|target| target.key.to_vec());
            let Some(target) = target else {
                world.tally.note("absent");
                return world.check_owner(&asked, value, None);
            };
            let keys = (0..IDS).map(|id| world.database.key(id));
            let key = keys.into_iter().find(|key| key.as_bytes() == target);
            *alias = Some(got.clone());
            let mode = attempts.mode();
            return world.look(asked, &key.ok_or("an alias of no row")?, mode);
        };
        let is_confirmed = AliasTarget::of(&of_alias).is_some_and(|own| own.is_confirmed_by(got));
        if is_confirmed || world.rows.mistake == Some(AliasMistake::Unconfirmed) {
            world.tally.note("found");
            return world.check_found(&asked, value, got);
        }
        world.tally.note("refuted");
        world.cache.drop_alias(&value.key());
        if !attempts.retry() {
            world.tally.note("given up");
            return Ok(());
        }
        let mode = attempts.mode();
        world.look(asked, &value.key(), mode)
    }

    fn ask_for_all(world: &mut World) -> Result<(), String> {
        for value in 0..VALUES {
            for is_upper in [false, true] {
                if world.rows.is_folding || !is_upper {
                    world.ask_for_value(Spelled { value, is_upper }, ReadMode::Normal)?;
                    world.finish_all()?;
                    world.pass_bound();
                }
            }
        }
        Ok(())
    }
}

impl Aliases {
    fn index_of(value: Spelled) -> usize {
        World::index(value.value)
    }
}
