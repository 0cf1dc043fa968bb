//! Simulated tables of parents and children: a log of commits, and the part of it that reads see at
//! each moment.

use std::fmt::Write as _;
use std::sync::Arc;

use hotrow_measure::clock::Nanos;
use hotrow_types::version::{Snapshot, Version};

pub(super) const PARENTS: u8 = 3;
pub(super) const CHILDREN: u8 = 6;
/// Most children in one record.
pub(super) const LIMIT: usize = 2;

/// A child's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Child {
    /// The parent that it refers to, if any.
    pub(super) parent: Option<u8>,
    /// The greatest come first.
    pub(super) rank: u8,
}

/// Change of one row, with its state after it; `None`: there is none.
#[derive(Clone, Copy, Debug)]
pub(super) enum Written {
    Parent(u8, bool),
    Child(u8, Option<Child>),
}

impl Written {
    fn is_of_same_row(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Parent(one, _), Self::Parent(other, _))
            | (Self::Child(one, _), Self::Child(other, _)) => one == other,
            _ => false,
        }
    }
}

/// One commit. Its number is its index in the log, from 1.
pub(super) struct Commit {
    /// Time at which it was written to the log, where the feed finds it.
    pub(super) at: Nanos,
    /// Time at which it became visible and returned to its client. `None`: not yet (Race B).
    pub(super) visible_at: Option<Nanos>,
    pub(super) rows: Vec<Written>,
    /// It is a TRUNCATE of the children; `rows` has the deleted ones.
    pub(super) is_truncate: bool,
}

impl Commit {
    fn is_visible(&self, time: Nanos) -> bool {
        self.visible_at.is_some_and(|at| at <= time)
    }

    /// Returns whether one of the two waits for locks of the other.
    fn conflicts(&self, other: &Self) -> bool {
        let has_children =
            |commit: &Self| commit.rows.iter().any(|row| matches!(row, Written::Child(..)));
        self.rows.iter().any(|row| other.rows.iter().any(|other| row.is_of_same_row(other)))
            || (self.is_truncate && has_children(other))
            || (other.is_truncate && has_children(self))
    }
}

/// The tables, and the records that were right when.
#[derive(Default)]
pub(super) struct Db {
    pub(super) log: Vec<Commit>,
    /// Records of all parents, from the time of the first; the newest state is the last.
    states: Vec<(Nanos, [Option<String>; PARENTS as usize])>,
}

impl Db {
    /// Adds a commit. Commits that hold locks on its rows end first.
    pub(super) fn commit(&mut self, commit: Commit) {
        let now = commit.at;
        for other in &mut self.log {
            if other.visible_at.is_none() && other.conflicts(&commit) {
                other.visible_at = Some(now);
            }
        }
        self.log.push(commit);
        self.note_state(now);
    }

    /// Makes the hidden commits visible that `chosen` selects.
    pub(super) fn reveal(&mut self, now: Nanos, mut chosen: impl FnMut() -> bool) {
        let hidden = self.log.iter_mut().filter(|commit| commit.visible_at.is_none());
        hidden.filter(|_| chosen()).for_each(|commit| commit.visible_at = Some(now));
        self.note_state(now);
    }

    fn note_state(&mut self, now: Nanos) {
        let records = std::array::from_fn(|id| self.record_at(id as u8, (now, now)));
        self.states.push((now, records));
    }

    pub(super) fn end(&self) -> u64 {
        self.log.len() as u64
    }

    /// Returns the number and the state of the last commit of a row that `is_seen` selects.
    fn row<T: Copy>(
        &self,
        is_seen: impl Fn(&Commit) -> bool,
        state: impl Fn(&Written) -> Option<T>,
    ) -> Option<(u64, T)> {
        let commits = self.log.iter().enumerate().rev().filter(|(_, commit)| is_seen(commit));
        commits
            .filter_map(|(i, commit)| Some((i as u64 + 1, commit.rows.iter().find_map(&state)?)))
            .next()
    }

    /// Returns a child as all commits leave it, visible or not: a writer waits for the others.
    pub(super) fn newest_child(&self, id: u8) -> Option<Child> {
        self.row(|_| true, |row| child_of(row, id)).and_then(|(_, child)| child)
    }

    pub(super) fn newest_parent(&self, id: u8) -> bool {
        self.row(|_| true, |row| parent_of(row, id)).is_some_and(|(_, exists)| exists)
    }

    /// Returns the children of a parent that are within its record, after all commits.
    pub(super) fn newest_window(&self, parent: u8) -> Vec<u8> {
        let mut children: Vec<(u8, u8)> = (0..CHILDREN)
            .filter_map(|id| Some((id, self.newest_child(id)?)))
            .filter(|(_, child)| child.parent == Some(parent))
            .map(|(id, child)| (u8::MAX - child.rank, id))
            .collect();
        children.sort_unstable();
        children.into_iter().take(LIMIT).map(|(_, id)| id).collect()
    }

    /// Returns the record of a parent as a read sees it: the parent at the first time, and the
    /// children at the second. Each row is named with the number of its last commit.
    pub(super) fn record_at(&self, id: u8, times: (Nanos, Nanos)) -> Option<String> {
        let (number, exists) =
            self.row(|commit| commit.is_visible(times.0), |row| parent_of(row, id))?;
        if !exists {
            return None;
        }
        let mut children = Vec::new();
        for child in 0..CHILDREN {
            let row = self.row(|commit| commit.is_visible(times.1), |row| child_of(row, child));
            if let Some((number, Some(state))) = row
                && state.parent == Some(id)
            {
                children.push((u8::MAX - state.rank, child, number));
            }
        }
        children.sort_unstable();
        let mut record = format!("{number}:");
        for (_, child, number) in children.into_iter().take(LIMIT) {
            // Writing to a String cannot fail.
            let _ = write!(record, " {child}#{number}");
        }
        Some(record)
    }

    /// Returns the first time of a span at which this was the record of a parent.
    pub(super) fn was_record(
        &self,
        id: u8,
        record: Option<&str>,
        span: (Nanos, Nanos),
    ) -> Option<Nanos> {
        let at_start = self.states.iter().rposition(|(from, _)| *from <= span.0);
        if at_start.is_none() && record.is_none() {
            return Some(span.0);
        }
        let within = self.states.iter().skip(at_start.unwrap_or(0));
        let mut within = within.take_while(|(from, _)| *from <= span.1);
        let found = within.find(|(_, records)| records[usize::from(id)].as_deref() == record);
        found.map(|(from, _)| (*from).max(span.0))
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

fn child_of(row: &Written, id: u8) -> Option<Option<Child>> {
    match row {
        Written::Child(other, child) if *other == id => Some(*child),
        _ => None,
    }
}

fn parent_of(row: &Written, id: u8) -> Option<bool> {
    match row {
        Written::Parent(other, exists) if *other == id => Some(*exists),
        _ => None,
    }
}
