//! The simulated database: a log of commits, and what each moment's reads see of it.

use std::sync::Arc;

use hotrow_measure::clock::Nanos;

use crate::key::{CollectionId, Key};
use crate::version::{Snapshot, Version};

/// One commit: one row, or a whole collection at once. Its number is its place in the log, from 1.
pub(super) struct Commit {
    /// When it was written to the log, where the feed finds it.
    pub(super) at: Nanos,
    /// When it became visible, and returned to its client. None: not yet (Race B).
    pub(super) visible_at: Option<Nanos>,
    pub(super) collection: CollectionId,
    /// None: all of them.
    pub(super) key: Option<Key>,
}

impl Commit {
    fn concerns(&self, key: &Key) -> bool {
        self.key.as_ref().map_or(self.collection == key.collection(), |changed| changed == key)
    }

    fn conflicts(&self, other: &Self) -> bool {
        self.collection == other.collection && (self.key == other.key || self.key.is_none() || other.key.is_none())
    }

    fn is_visible(&self, time: Nanos) -> bool {
        self.visible_at.is_some_and(|at| at <= time)
    }
}

/// The database.
#[derive(Default)]
pub(super) struct Db {
    pub(super) log: Vec<Commit>,
}

impl Db {
    /// Adds a commit. Whoever holds its rows' locks ends first.
    pub(super) fn commit(&mut self, commit: Commit) {
        for other in self.log.iter_mut().filter(|other| other.visible_at.is_none()) {
            if other.conflicts(&commit) {
                other.visible_at = Some(commit.at);
            }
        }
        self.log.push(commit);
    }

    /// Makes one of the hidden commits visible, or all of them.
    pub(super) fn reveal(&mut self, which: Option<usize>, now: Nanos) {
        let mut hidden: Vec<&mut Commit> = self.log.iter_mut().filter(|commit| commit.visible_at.is_none()).collect();
        let count = hidden.len().max(1);
        let chosen = |i: usize| which.is_none_or(|which| which % count == i);
        hidden.iter_mut().enumerate().filter(|(i, _)| chosen(*i)).for_each(|(_, c)| c.visible_at = Some(now));
    }

    pub(super) fn end(&self) -> u64 {
        self.log.len() as u64
    }

    /// The log's end at a time.
    pub(super) fn end_at(&self, time: Nanos) -> u64 {
        self.log.partition_point(|commit| commit.at <= time) as u64
    }

    /// The last change of the row up to `end`, visible or not: its version. 0: as it was at first.
    pub(super) fn row(&self, key: &Key, end: u64) -> u64 {
        self.log[..end as usize].iter().rposition(|c| c.concerns(key)).map_or(0, |i| i as u64 + 1)
    }

    /// The row's version for a read at `time`.
    pub(super) fn row_at(&self, key: &Key, time: Nanos) -> u64 {
        let seen = |c: &Commit| c.is_visible(time) && c.concerns(key);
        self.log.iter().rposition(seen).map_or(0, |i| i as u64 + 1)
    }

    /// What a read at `time` sees.
    pub(super) fn snapshot(&self, time: Nanos) -> Version {
        let xmax = self.end_at(time) + 1;
        let running: Vec<u64> = (1..xmax).filter(|xid| !self.log[*xid as usize - 1].is_visible(time)).collect();
        let xmin = running.first().copied().unwrap_or(xmax);
        Version::Snapshot(Arc::new(Snapshot { xmin, xmax, running }))
    }

    /// Every fourth version of a row is its absence.
    pub(super) fn exists(version: u64) -> bool {
        version % 4 != 3
    }
}
