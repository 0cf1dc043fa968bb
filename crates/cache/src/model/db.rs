//! Simulated database: a log of commits, and the part of it that reads see at each moment.

use std::sync::Arc;

use hotrow_measure::clock::Nanos;

use hotrow_types::key::{CollectionId, Key};
use hotrow_types::version::{GtidSet, Snapshot, SourceId, Version};

/// One commit: one row, or a whole collection. Its number is its index in the log, from 1.
pub(super) struct Commit {
    /// Time at which it was written to the log, where the feed finds it.
    pub(super) at: Nanos,
    /// Time at which it became visible and returned to its client. `None`: not yet (Race B).
    pub(super) visible_at: Option<Nanos>,
    pub(super) collection: CollectionId,
    /// `None`: all rows.
    pub(super) key: Option<Key>,
}

impl Commit {
    fn concerns(&self, key: &Key) -> bool {
        self.key.as_ref().map_or(self.collection == key.collection(), |changed| changed == key)
    }

    fn conflicts(&self, other: &Self) -> bool {
        self.collection == other.collection
            && (self.key == other.key || self.key.is_none() || other.key.is_none())
    }

    fn is_visible(&self, time: Nanos) -> bool {
        self.visible_at.is_some_and(|at| at <= time)
    }
}

/// Source of the transactions' numbers.
const SERVER: &str = "00000000-0000-0000-0000-000000000001";

/// Returns the same source as a change id carries it.
pub(super) fn source() -> SourceId {
    SourceId::new(1, "").unwrap()
}

/// Selection of hidden commits that become visible.
#[derive(Clone, Copy)]
pub(super) enum Reveal {
    All,
    Oldest,
    /// One, chosen by this number.
    Any(usize),
}

/// Versions that reads report, and how far the feed may be ahead of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Versions {
    /// None (no log).
    None,
    /// A point of the log; commits are visible before the feed delivers them (SQLite).
    Log,
    /// A snapshot; commits become visible in any order (PostgreSQL).
    Snapshots,
    /// A point of the log; commits become visible in its order (MariaDB).
    Commits,
    /// Two points of the log that enclose the read (MongoDB; MariaDB without recent writes).
    Spans,
    /// The transactions that were visible when the query was sent; they become visible in any order
    /// (MySQL).
    Gtids,
}

impl Versions {
    pub(super) const ALL: [Self; 6] =
        [Self::None, Self::Log, Self::Snapshots, Self::Commits, Self::Spans, Self::Gtids];

    /// Returns whether the feed may be ahead of what reads see.
    pub(super) fn run_behind(self) -> bool {
        !matches!(self, Self::None | Self::Log)
    }

    pub(super) fn are_in_log_order(self) -> bool {
        matches!(self, Self::Commits | Self::Spans)
    }
}

/// The database.
#[derive(Default)]
pub(super) struct Db {
    pub(super) log: Vec<Commit>,
}

impl Db {
    /// Adds a commit. The holder of its rows' locks ends first, and with `in_log_order` all commits
    /// before it.
    pub(super) fn commit(&mut self, commit: Commit, in_log_order: bool) {
        let conflicts = |other: &Commit| other.visible_at.is_none() && other.conflicts(&commit);
        let last = self.log.iter().rposition(conflicts).map_or(0, |i| i + 1);
        for other in self.log[..last].iter_mut().filter(|other| other.visible_at.is_none()) {
            if in_log_order || other.conflicts(&commit) {
                other.visible_at = Some(commit.at);
            }
        }
        self.log.push(commit);
    }

    /// Makes hidden commits visible.
    pub(super) fn reveal(&mut self, which: Reveal, now: Nanos) {
        let mut hidden: Vec<&mut Commit> =
            self.log.iter_mut().filter(|commit| commit.visible_at.is_none()).collect();
        let chosen = match which {
            Reveal::All => 0..hidden.len(),
            Reveal::Oldest => 0..hidden.len().min(1),
            Reveal::Any(_) if hidden.is_empty() => 0..0,
            Reveal::Any(which) => which % hidden.len()..which % hidden.len() + 1,
        };
        hidden[chosen].iter_mut().for_each(|commit| commit.visible_at = Some(now));
    }

    pub(super) fn end(&self) -> u64 {
        self.log.len() as u64
    }

    /// Returns the end of the log at a time.
    pub(super) fn end_at(&self, time: Nanos) -> u64 {
        self.log.partition_point(|commit| commit.at <= time) as u64
    }

    /// Returns the last change of the row up to `end`, visible or not, as its version. 0: the
    /// initial row.
    pub(super) fn row(&self, key: &Key, end: u64) -> u64 {
        self.log[..end as usize].iter().rposition(|c| c.concerns(key)).map_or(0, |i| i as u64 + 1)
    }

    /// Returns the version of the row for a read at `time`.
    pub(super) fn row_at(&self, key: &Key, time: Nanos) -> u64 {
        let seen = |c: &Commit| c.is_visible(time) && c.concerns(key);
        self.log.iter().rposition(seen).map_or(0, |i| i as u64 + 1)
    }

    /// Returns what a read at `time` sees.
    pub(super) fn snapshot(&self, time: Nanos) -> Version {
        let xmax = self.end_at(time) + 1;
        let running: Vec<u64> =
            (1..xmax).filter(|xid| !self.log[*xid as usize - 1].is_visible(time)).collect();
        let xmin = running.first().copied().unwrap_or(xmax);
        Version::Snapshot { incarnation: 1, snapshot: Arc::new(Snapshot { xmin, xmax, running }) }
    }

    /// Returns the end of what a read at `time` sees, where that is a prefix of the log.
    pub(super) fn visible_end(&self, time: Nanos) -> u64 {
        self.log.iter().take_while(|commit| commit.is_visible(time)).count() as u64
    }

    /// Returns the transactions that a read at `time` sees, in MySQL's form.
    pub(super) fn gtids(&self, time: Nanos) -> Version {
        let seen = self.log.iter().zip(1..).filter(|(commit, _)| commit.is_visible(time));
        let numbers: String = seen.map(|(_, number): (_, u64)| format!(":{number}")).collect();
        let text = if numbers.is_empty() { numbers } else { format!("{SERVER}{numbers}") };
        Version::Gtids(Arc::new(GtidSet::parse(&text).unwrap()))
    }

    /// Returns whether a version has a row: every fourth version is its absence.
    pub(super) fn exists(version: u64) -> bool {
        version % 4 != 3
    }
}
