//! The simulated database: a log of commits, and the state that any prefix of it makes.

use hotrow_measure::clock::Nanos;

use crate::key::{CollectionId, Key};

/// One commit: one row, or a whole collection at once.
pub(super) struct Commit {
    pub(super) at: Nanos,
    pub(super) collection: CollectionId,
    /// None: all of them.
    pub(super) key: Option<Key>,
}

/// The database: its state after `n` commits is the log's first `n` entries.
#[derive(Default)]
pub(super) struct Db {
    pub(super) log: Vec<Commit>,
}

impl Db {
    pub(super) fn end(&self) -> u64 {
        self.log.len() as u64
    }

    /// The last change of the row up to `end`: its version. 0: as it was at first.
    pub(super) fn row(&self, key: &Key, end: u64) -> u64 {
        let hit = |c: &Commit| c.key.as_ref().map_or(c.collection == key.collection(), |changed| changed == key);
        self.log[..end as usize].iter().rposition(hit).map_or(0, |i| i as u64 + 1)
    }

    /// The row's version after all commits that had returned before `time`.
    pub(super) fn row_at_time(&self, key: &Key, time: Nanos) -> u64 {
        self.row(key, self.log.partition_point(|commit| commit.at < time) as u64)
    }

    /// Every fourth version of a row is its absence.
    pub(super) fn exists(version: u64) -> bool {
        version % 4 != 3
    }
}
