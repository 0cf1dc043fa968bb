//! Records that contain rows of another table: a change of a child is delivered as one of its
//! parents, with its mark, and one statement reads parent and children. The cache knows nothing of
//! children; what is tested is the contract between a feed and it.
//!
//! The first collection has the parents, the second one the children, each in the state of its
//! parent and its rank.

use std::fmt::Write as _;

use hotrow_cache::{Fetched, Presence, ReadMode, Record};
use hotrow_measure::clock::Nanos;
use hotrow_source::FlushCause;
use hotrow_types::embedding::{ChangedParents, ChildChange, Parent, changed_parents};
use hotrow_types::key::{CollectionId, Key};
use hotrow_types::version::ChangeId;

use super::Mistake;
use super::one_cache::{OneCache, PendingRequest, Rows};
use crate::database::Target;

const PARENTS: usize = 3;
const CHILDREN: usize = 6;
/// Most children in one record.
const LIMIT: usize = 2;
const RECORDS: CollectionId = CollectionId(0);
const OTHERS: CollectionId = CollectionId(1);
const TRUNCATE: Target = Target::Collection(OTHERS, FlushCause::Bulk);

/// Rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmbeddedMistake {
    /// The parent that a child had is not informed.
    OldParentOmitted,
    /// An image without the old parent is taken to mean that there was none.
    UnknownIsNone,
    /// A TRUNCATE of the children is not delivered.
    TruncateOmitted,
    /// The parent's entry and lease end, but the mark of the change is under the child's key.
    MarkUnderChild,
    /// A change of every parent has no mark.
    FlushWithoutMark,
    /// The children are read by a second statement, whose snapshot does not count.
    TwoStatements,
    /// A child beyond the limit changes nothing.
    InvalidationByWindow,
}

pub(crate) struct Embedded {
    mistake: Option<EmbeddedMistake>,
    /// The log has the whole old row of a child (REPLICA IDENTITY FULL).
    has_old_rows: bool,
    /// By parent: time of the newest state that was answered.
    answered: [Nanos; PARENTS],
}

/// A child's row.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Child {
    /// The parent that it refers to, if any.
    parent: Option<usize>,
    /// The greatest come first.
    rank: u16,
}

impl Child {
    fn of(state: u16) -> Self {
        Self { parent: usize::from(state >> 8).checked_sub(1), rank: state & 0xff }
    }

    fn state(self) -> u16 {
        (self.parent.map_or(0, |parent| parent as u16 + 1)) << 8 | self.rank
    }
}

type World = OneCache<Embedded>;

fn is_parent(row: usize) -> bool {
    row < CHILDREN
}

impl World {
    fn child(&self, row: usize, version: usize) -> Option<Child> {
        self.database.version(row, version).state.map(Child::of)
    }

    /// Returns a row's number as all commits leave it, visible or not.
    fn last(&self, row: usize) -> usize {
        self.database.newest(row, |_| true)
    }

    /// Returns the children of a parent within its record, in the versions that `seen` chooses.
    fn window(&self, parent: usize, seen: impl Fn(usize) -> usize) -> Vec<(usize, usize)> {
        let rows = self.database.rows_of(OTHERS).filter_map(|row| {
            let version = seen(row);
            let child = self.child(row, version)?;
            (child.parent == Some(parent)).then_some((u16::MAX - child.rank, row, version))
        });
        let mut children: Vec<_> = rows.collect();
        children.sort_unstable();
        children.into_iter().take(LIMIT).map(|(_, row, version)| (row, version)).collect()
    }

    /// Returns the record of a parent as a read sees it: the parent at the first time, and the
    /// children at the second. Each row is named with the number of its version.
    fn record_at(&self, id: usize, times: (Nanos, Nanos)) -> Option<String> {
        let version = self.database.version_at(id, times.0);
        self.database.version(id, version).state?;
        let mut record = format!("{version}:");
        for (row, version) in self.window(id, |row| self.database.version_at(row, times.1)) {
            // Writing to a String cannot fail.
            _ = write!(record, " {row}#{version}");
        }
        Some(record)
    }

    /// Returns the first time of a span at which this was the record of a parent.
    fn was_record(&self, id: usize, shown: Option<&str>, span: (Nanos, Nanos)) -> Option<Nanos> {
        let rows = std::iter::once(id).chain(self.database.rows_of(OTHERS));
        let changes = rows.flat_map(|row| self.database.versions_within(row, span));
        let mut times: Vec<Nanos> = changes.map(|version| version.visible_at).collect();
        times.push(span.0);
        times.retain(|time| *time >= span.0);
        times.sort_unstable();
        times.into_iter().find(|time| self.record_at(id, (*time, *time)).as_deref() == shown)
    }

    fn write_child(&mut self) -> (usize, Option<u16>) {
        let row = self.database.rows_of(OTHERS).start + self.random.below(CHILDREN);
        let parent = Some(self.random.below(PARENTS + 1)).filter(|id| *id < PARENTS);
        let child = Child { parent, rank: self.random.below(10) as u16 };
        match self.child(row, self.last(row)) {
            None => self.tally.note("inserted"),
            Some(_) if self.random.one_in(4) => {
                self.tally.note("deleted");
                return (row, None);
            }
            Some(before) => self.tally.note_if(before.parent != child.parent, "moved"),
        }
        (row, Some(child.state()))
    }

    /// Returns the change of a child as the images in the log show it.
    fn logged(&self, row: usize, number: u64) -> Option<ChildChange> {
        let place = (self.database.incarnation, number);
        let version = self.database.placed(row, place)?;
        let (before, after) = (self.child(row, version - 1), self.child(row, version));
        let shown = |child: Child| {
            child.parent.map_or(Parent::None, |id| Parent::Key(self.database.key(id)))
        };
        let old = |child: Child| match self.rows.has_old_rows {
            true => shown(child),
            false if self.rows.mistake == Some(EmbeddedMistake::UnknownIsNone) => Parent::None,
            false => Parent::Unknown,
        };
        Some(match (before, after) {
            (None, Some(after)) => ChildChange::Insert(shown(after)),
            (Some(before), None) => ChildChange::Delete(old(before)),
            (Some(before), Some(after)) => {
                ChildChange::Update { before: old(before), after: shown(after) }
            }
            (None, None) => return None,
        })
    }

    /// Delivers a change of a child as one of its parents.
    fn deliver_child(&mut self, change: ChildChange, child: Option<usize>, mark: ChangeId) {
        let change = match (self.rows.mistake, change) {
            (Some(EmbeddedMistake::OldParentOmitted), ChildChange::Update { after, .. }) => {
                ChildChange::Insert(after)
            }
            (Some(EmbeddedMistake::OldParentOmitted), ChildChange::Delete(_))
            | (Some(EmbeddedMistake::TruncateOmitted), ChildChange::Truncate) => return,
            (_, change) => change,
        };
        let keys = match changed_parents(change) {
            ChangedParents::Keys(keys) => keys,
            ChangedParents::All => {
                self.tally.note("flushes");
                let has_mark = self.rows.mistake != Some(EmbeddedMistake::FlushWithoutMark);
                return self.cache.flush(RECORDS, has_mark.then_some(mark));
            }
        };
        for parent in keys {
            let is_outside = |child: usize| {
                let id = self.database.row_of(&parent).unwrap_or_default();
                !self.window(id, |row| self.last(row)).iter().any(|(row, _)| *row == child)
            };
            match self.rows.mistake {
                Some(EmbeddedMistake::InvalidationByWindow) if child.is_some_and(is_outside) => {}
                Some(EmbeddedMistake::MarkUnderChild) => {
                    self.cache.purge(&parent);
                    let of_child = self.database.key(child.unwrap_or_default());
                    self.invalidate(&of_child, mark);
                }
                _ => self.invalidate(&parent, mark),
            }
        }
    }
}

impl Rows for Embedded {
    type Request = (usize, Nanos);
    const STEPS: u64 = 500;

    fn world(seed: u64, mistake: Option<Mistake>) -> World {
        let mistake = if let Some(Mistake::Embedded(own)) = mistake { Some(own) } else { None };
        let answered = [Nanos::ZERO; PARENTS];
        let rows = Self { mistake, has_old_rows: seed % 5 < 3, answered };
        OneCache::of(rows, seed, CHILDREN, false)
    }

    fn request(world: &mut World) -> Result<(), String> {
        let id = world.random.below(PARENTS);
        let mode = if world.random.one_in(8) { ReadMode::Revalidate } else { ReadMode::Normal };
        let (key, floor) = (world.database.key(id), world.rows.answered[id]);
        world.begin((id, floor), &key, mode)
    }

    /// Changes one or two rows, or empties the table of the children.
    fn write(world: &mut World) {
        let mut states: Vec<(usize, Option<u16>)> = Vec::new();
        let mut targets = Vec::new();
        if world.random.one_in(20) {
            targets.push(TRUNCATE);
            world.tally.note("truncated");
        } else {
            let parent = world.random.below(PARENTS);
            let is_of_parent = world.random.one_in(3);
            if is_of_parent {
                let exists = world.database.version(parent, world.last(parent)).state.is_some();
                let ends = exists && world.random.one_in(4);
                states.push((parent, (!ends).then_some(0)));
            }
            if !is_of_parent || world.random.one_in(2) {
                states.push(world.write_child());
            }
            targets.extend(states.iter().map(|(row, _)| Target::Row(*row)));
        }
        let state = |row: usize| states.iter().find(|(own, _)| *own == row).and_then(|own| own.1);
        world.database.write(&targets, world.now, state);
        world.end_write();
    }

    fn deliver(world: &mut World, number: u64, mark: ChangeId) {
        for change in world.database.log[number as usize - 1].changes.clone() {
            match change.target {
                Target::Collection(..) => world.deliver_child(ChildChange::Truncate, None, mark),
                Target::Row(row) if is_parent(row) => {
                    let key = world.database.key(row);
                    world.invalidate(&key, mark);
                }
                Target::Row(row) => {
                    if let Some(change) = world.logged(row, number) {
                        world.deliver_child(change, Some(row), mark);
                    }
                }
            }
        }
    }

    fn read(world: &mut World, key: &Key, sent_at: Nanos) -> Fetched<&'static str> {
        let of_children = match world.rows.mistake {
            Some(EmbeddedMistake::TwoStatements) => {
                let most = world.now.since(sent_at);
                sent_at.after(world.random.up_to(most))
            }
            _ => world.now,
        };
        let id = world.database.row_of(key).unwrap_or_default();
        match world.record_at(id, (world.now, of_children)) {
            Some(record) => Fetched::Found(record.into_bytes()),
            None => Fetched::Missing,
        }
    }

    /// Checks an answer: the record as it was at one moment, not before the newest answer that was
    /// sent before the request, and not older than the bound.
    fn answered(
        world: &mut World,
        asked: PendingRequest<Self>,
        got: &Record,
    ) -> Result<(), String> {
        let shown = match got.presence() {
            Presence::Missing => None,
            Presence::Found => Some(std::str::from_utf8(got.body()).map_err(|e| e.to_string())?),
        };
        world.tally.note(if shown.is_some() { "found" } else { "absent" });
        let (id, floor) = asked.what;
        let span = (world.due(&asked).max(floor), world.now);
        let Some(at) = world.was_record(id, shown, span) else {
            return Err(format!("parent {id} was never {shown:?} in {span:?}"));
        };
        world.rows.answered[id] = world.rows.answered[id].max(at);
        Ok(())
    }

    fn ask_for_all(world: &mut World) -> Result<(), String> {
        for id in 0..PARENTS {
            let (key, floor) = (world.database.key(id), world.rows.answered[id]);
            world.begin((id, floor), &key, ReadMode::Normal)?;
            world.finish_all()?;
            world.pass_bound();
        }
        Ok(())
    }
}
