//! Writer's model of a *family*: up to two records that share the values of an alias, of which each
//! has at most one, and some children, of which each is in one of them. Pure.
//!
//! A record's content determines its state: no state of a record repeats an earlier content. Each
//! row has the version of the state in which it was written, and a child leaves a record only if
//! another part of it was written after the child came; otherwise the record's row is written too.
//!
//! After a transaction of unknown outcome nothing is known of the family. The next one writes every
//! row of it ([`Family::reset`]).

use crate::database::{Change, ChangeKind, TableRole};
use crate::random::Random;
use crate::record_schema::{Content, RecordSchema};

/// Records of a family.
pub(crate) const RECORDS: usize = 2;
/// Values of the alias per record; more than records, so that some are free.
pub(crate) const VALUES_PER_KEY: u32 = 2;
/// Children of a family. A record may have all, which its `limit` must allow.
pub const CHILDREN: u32 = 4;
/// Probabilities in per cent: a child is changed alone; with a record; otherwise a record alone.
const CHILD_ALONE: u64 = 45;
const CHILD_TOO: u64 = 15;
/// Probabilities in per cent of a record's change: as in a run without a family.
const DELETES: u64 = 15;
const REPLACES: u64 = 15;
/// Probabilities in per cent of the value that a written record gets: the other record's, a free
/// one, none; otherwise it keeps its own.
const TAKES: u64 = 15;
const FREE: u64 = 25;
const NONE: u64 = 10;
/// Probabilities in per cent of a child's change: it is deleted, moved; otherwise updated.
const CHILD_DELETES: u64 = 25;
const CHILD_MOVES: u64 = 35;

/// First value of a key's record.
pub(crate) fn first_value(key: u32) -> u32 {
    (key - 1) * VALUES_PER_KEY + 1
}

/// A family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Family {
    records: Vec<Record>,
    /// Owner and version of each value, in the order of their numbers.
    values: Vec<Value>,
    children: Vec<Option<Child>>,
    has_values: bool,
    has_children: bool,
    /// False after a transaction of unknown outcome.
    is_certain: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    key: u32,
    /// Version of the row, if there is one.
    row: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Value {
    number: u32,
    owner: Option<usize>,
    version: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Child {
    record: usize,
    version: u64,
    /// Version of the record's state in which it came.
    since: u64,
}

/// Source of versions: the next state of a key or value, with whether it is present.
pub(crate) type NextVersion<'a> = &'a mut dyn FnMut(u32, bool) -> u64;

/// State of a record after a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordState {
    pub(crate) key: u32,
    pub(crate) version: u64,
    /// Its content, if it is present.
    pub(crate) content: Option<Content>,
    /// Ledger's number of its value, and the version of the value's state.
    pub(crate) value: Option<(u32, u64)>,
}

/// A transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) changes: Vec<Change>,
    /// States of records.
    pub(crate) records: Vec<RecordState>,
    /// Ledger's numbers and versions of values.
    pub(crate) values: Vec<(u32, u64)>,
    pub(crate) children_changed: u64,
    pub(crate) children_moved: u64,
}

impl Step {
    /// Adds the counts and values of another one.
    pub(crate) fn add(&mut self, other: &Self) {
        self.values.extend(&other.values);
        self.children_changed += other.children_changed;
        self.children_moved += other.children_moved;
    }
}

/// What a transaction does to a family, before its versions are known.
#[derive(Default)]
struct Draft {
    /// Operation on each record's row.
    rows: [Option<ChangeKind>; RECORDS],
    /// New owner of each value; all others keep theirs.
    owners: Vec<(usize, Option<usize>)>,
    /// New record of children, by their place.
    children: Vec<(usize, Option<usize>)>,
}

impl Family {
    /// Creates a family of these keys at the beginning of a run.
    pub(crate) fn beginning(
        keys: &[u32],
        schema: &RecordSchema,
        version: u64,
        has_row: impl Fn(u32) -> bool,
    ) -> Self {
        let records: Vec<Record> = keys
            .iter()
            .map(|key| Record { key: *key, row: has_row(*key).then_some(version) })
            .collect();
        let value = |(place, record): (usize, &Record)| {
            let first = first_value(record.key);
            let owner = record.row.map(|_| place);
            (first..first + VALUES_PER_KEY).map(move |number| Value {
                number,
                owner: owner.filter(|_| number == first),
                version,
            })
        };
        let has_values = schema.alias.is_some();
        let values = records.iter().enumerate().flat_map(value);
        Self {
            values: if has_values { values.collect() } else { Vec::new() },
            records,
            children: vec![None; CHILDREN as usize],
            has_values,
            has_children: schema.embedded.is_some(),
            is_certain: true,
        }
    }

    /// Marks the family as unknown.
    pub(crate) fn forget(&mut self) {
        self.is_certain = false;
    }

    /// Makes the next transaction, in which this record changes, and returns its effects.
    pub(crate) fn step(
        &mut self,
        place: usize,
        random: &mut Random,
        schema: &RecordSchema,
        next: NextVersion<'_>,
    ) -> Step {
        if !self.is_certain {
            self.is_certain = true;
            return self.reset(random, schema, next);
        }
        let mut draft = Draft::default();
        let kind = if self.has_children { random.below(100) } else { 100 };
        if kind < CHILD_ALONE + CHILD_TOO {
            self.change_child(place, random, &mut draft);
        }
        if kind >= CHILD_ALONE {
            self.change_record(place, random, &mut draft);
        }
        self.keep_contents_unique(&mut draft);
        self.apply(&draft, schema, next)
    }

    fn owned(&self, place: usize) -> Option<usize> {
        self.values.iter().position(|value| value.owner == Some(place))
    }

    fn change_record(&self, place: usize, random: &mut Random, draft: &mut Draft) {
        let own = self.owned(place);
        let is_present = self.records[place].row.is_some();
        let kind = match is_present {
            true if random.percent(DELETES) => ChangeKind::Delete,
            true if random.percent(REPLACES) => ChangeKind::Replace,
            _ => ChangeKind::Upsert,
        };
        draft.rows[place] = Some(kind);
        if kind == ChangeKind::Delete {
            draft.owners.extend(own.map(|value| (value, None)));
            return;
        }
        if !self.has_values {
            return;
        }
        let other = self.records.len() - 1 - place;
        let theirs = self.owned(other).filter(|_| other != place);
        let free: Vec<usize> =
            (0..self.values.len()).filter(|value| self.values[*value].owner.is_none()).collect();
        let wanted = match random.below(100) {
            n if n < TAKES && theirs.is_some() => theirs,
            n if n < TAKES + FREE => random.one_of(&free).or(own),
            n if n < TAKES + FREE + NONE => None,
            // A record that was deleted has none yet.
            _ => own.or_else(|| random.one_of(&free)),
        };
        if wanted != own {
            draft.owners.extend(own.map(|value| (value, None)));
            draft.owners.extend(wanted.map(|value| (value, Some(place))));
            if wanted.is_some() && wanted == theirs {
                draft.rows[other] = Some(ChangeKind::Upsert);
            }
        }
    }

    fn change_child(&self, place: usize, random: &mut Random, draft: &mut Draft) {
        let slot = random.below(u64::from(CHILDREN)) as usize;
        let to = match self.children[slot] {
            None => Some(place),
            Some(child) => match random.below(100) {
                n if n < CHILD_DELETES => None,
                n if n < CHILD_DELETES + CHILD_MOVES => Some(self.records.len() - 1 - child.record),
                _ => Some(child.record),
            },
        };
        draft.children.push((slot, to));
    }

    /// Also writes the row of a record whose content would be one that it had before.
    fn keep_contents_unique(&self, draft: &mut Draft) {
        for (slot, to) in draft.children.clone() {
            let Some(child) = self.children[slot].filter(|child| to != Some(child.record)) else {
                continue;
            };
            let place = child.record;
            let is_written = |slot: usize| draft.children.iter().any(|(other, _)| *other == slot);
            let others = self.children.iter().enumerate().filter_map(|(other, row)| {
                row.filter(|row| row.record == place && !is_written(other)).map(|row| row.version)
            });
            let newest = self.records[place].row.into_iter().chain(others).max();
            let is_row_written = draft.rows[place].is_some();
            if self.records[place].row.is_some() && !is_row_written && newest <= Some(child.since) {
                draft.rows[place] = Some(ChangeKind::Upsert);
            }
        }
    }

    /// Writes every row, whatever was there.
    fn reset(&mut self, random: &mut Random, schema: &RecordSchema, next: NextVersion<'_>) -> Step {
        let mut draft = Draft::default();
        for place in 0..self.records.len() {
            draft.rows[place] = Some(ChangeKind::Upsert);
        }
        let per_key = VALUES_PER_KEY as usize;
        let owner = |value: usize| value.is_multiple_of(per_key).then_some(value / per_key);
        draft.owners = (0..self.values.len()).map(|value| (value, owner(value))).collect();
        if self.has_children {
            let places = self.records.len() as u64;
            draft.children = (0..self.children.len())
                .map(|slot| (slot, Some(random.below(places) as usize)))
                .collect();
            self.children.fill(None);
        }
        let mut step = self.apply(&draft, schema, next);
        if self.has_values {
            // First no record has a value, so that each is free for its new owner.
            let rows = step.changes.iter().filter(|change| change.table == TableRole::Records);
            let free: Vec<Change> =
                rows.map(|change| Change { reference: None, ..*change }).collect();
            step.changes.splice(0..0, free);
        }
        step
    }

    fn apply(&mut self, draft: &Draft, schema: &RecordSchema, next: NextVersion<'_>) -> Step {
        let mut step = Step::default();
        let before = self.clone();
        for (value, owner) in &draft.owners {
            self.values[*value].owner = *owner;
        }
        for (place, kind) in draft.rows.iter().enumerate() {
            if *kind == Some(ChangeKind::Delete) {
                self.records[place].row = None;
            }
        }
        let mut versions = [None; RECORDS];
        for (place, version) in versions.iter_mut().enumerate().take(self.records.len()) {
            let is_affected = draft.rows[place].is_some()
                || draft.children.iter().any(|(slot, to)| {
                    *to == Some(place)
                        || before.children[*slot].is_some_and(|child| child.record == place)
                });
            if is_affected {
                let is_written = draft.rows[place].is_some_and(|kind| kind != ChangeKind::Delete);
                let is_present = is_written || self.records[place].row.is_some();
                let new = next(self.records[place].key, is_present);
                *version = Some(new);
                if is_written {
                    self.records[place].row = Some(new);
                }
            }
        }
        let mut is_staged = vec![false; self.values.len()];
        for (value, _) in &draft.owners {
            if !std::mem::replace(&mut is_staged[*value], true) {
                let Value { number, owner, version } = &mut self.values[*value];
                *version = next(schema.keys + *number, owner.is_some());
                step.values.push((schema.keys + *number, *version));
            }
        }
        for (slot, to) in &draft.children {
            let was = before.children[*slot];
            self.children[*slot] = to.and_then(|record| {
                let version = versions[record]?;
                let stayed = was.filter(|child| child.record == record);
                Some(Child { record, version, since: stayed.map_or(version, |child| child.since) })
            });
            step.children_changed += 1;
            let is_moved = was.zip(*to).is_some_and(|(child, to)| child.record != to);
            step.children_moved += u64::from(is_moved);
        }
        step.changes = self.changes(draft, &versions);
        for (place, version) in versions.iter().enumerate() {
            if let Some(version) = *version {
                step.records.push(self.state(place, version, schema));
            }
        }
        step
    }

    /// Returns the changes of rows, in an order in which no two records have a value at once.
    fn changes(&self, draft: &Draft, versions: &[Option<u64>; RECORDS]) -> Vec<Change> {
        let gains = |place: usize| draft.owners.iter().any(|(_, owner)| *owner == Some(place));
        let mut places: Vec<usize> = (0..self.records.len()).collect();
        places.sort_by_key(|place| gains(*place));
        let row = |place: usize| {
            Some(Change {
                table: TableRole::Records,
                key: self.records[place].key,
                version: versions[place]?,
                reference: self.owned(place).map(|value| self.values[value].number),
                kind: draft.rows[place]?,
            })
        };
        let rows = places.into_iter().filter_map(row);
        let child = |(slot, to): &(usize, Option<usize>)| {
            let key = self.child_key(*slot);
            let child = self.children[*slot];
            Change {
                table: TableRole::Children,
                key,
                version: child.map_or(0, |child| child.version),
                reference: to.map(|record| self.records[record].key),
                kind: if child.is_some() { ChangeKind::Upsert } else { ChangeKind::Delete },
            }
        };
        rows.chain(draft.children.iter().map(child)).collect()
    }

    fn child_key(&self, slot: usize) -> u32 {
        self.records.first().map_or(0, |record| record.key * CHILDREN) + slot as u32
    }

    /// Returns the states of the records at the beginning.
    pub(crate) fn states(&self, version: u64, schema: &RecordSchema) -> Vec<RecordState> {
        (0..self.records.len()).map(|place| self.state(place, version, schema)).collect()
    }

    fn state(&self, place: usize, version: u64, schema: &RecordSchema) -> RecordState {
        let Record { key, row } = self.records[place];
        let value = self.owned(place).map(|value| self.values[value]);
        let children = self.children.iter().enumerate();
        let own = children.filter_map(|(slot, child)| {
            child
                .filter(|child| child.record == place)
                .map(|child| (self.child_key(slot), child.version))
        });
        let content = row.map(|version| Content {
            version,
            value: value.map(|value| value.number),
            children: own.collect(),
        });
        let value = value.map(|value| (schema.keys + value.number, value.version));
        RecordState { key, version, content, value }
    }
}

#[cfg(test)]
mod tests;
