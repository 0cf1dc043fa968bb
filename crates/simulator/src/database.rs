//! Database: rows with their histories, the log of commits, and what a read sees of both.
//!
//! A row's history is the chain of its versions; a version's number is its index in it. Locks make
//! one writer of a row wait for the other, so the chain is also the order of visibility.

use std::sync::Arc;
use std::time::Duration;

use hotrow_measure::clock::Nanos;
use hotrow_source::FlushCause;
use hotrow_types::key::CollectionId;
use hotrow_types::version::{ChangeId, Gtid, GtidSet, Position, Snapshot, SourceId, Version};

use crate::engine::{Engine, VersionKind, VisibilityOrder};
use crate::slab::{Slab, SlabId};

/// First transaction id of a new database.
const XID_FIRST: u64 = 100;

/// Collections of a run.
pub(crate) const COLLECTIONS: u16 = 2;

/// One version of a row, or of its absence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowVersion {
    /// Content of the row, in the terms of its scenario; `None`: there is no row.
    pub(crate) state: Option<u16>,
    /// Time from which reads see it; [`Nanos::MAX`] before that is known.
    pub(crate) visible_at: Nanos,
    /// Time at which its writer received the answer to COMMIT; [`Nanos::MAX`] before that.
    pub(crate) returned_at: Nanos,
    /// Incarnation of the log, and number of the commit in it.
    pub(crate) place: Option<(u64, u64)>,
    /// Commits in the log before a change that is none of them.
    pub(crate) after: u64,
    /// Whether the feed shows the change. Otherwise a look at the catalogue has to find its cause.
    pub(crate) is_shown: bool,
}

/// One commit in the log.
#[derive(Clone, Debug)]
pub(crate) struct LogEntry {
    pub(crate) transaction: SlabId,
    pub(crate) xid: u64,
    pub(crate) changes: Vec<LoggedChange>,
    pub(crate) is_visible: bool,
}

/// One change as the log has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoggedChange {
    pub(crate) target: Target,
    /// Whether the collection was published when the row was written.
    pub(crate) is_shown: bool,
}

/// Object of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Row(usize),
    Collection(CollectionId, FlushCause),
}

/// A transaction from its beginning to the answer to COMMIT.
#[derive(Clone, Debug)]
pub(crate) struct Transaction {
    pub(crate) changes: Vec<LoggedChange>,
    xid: u64,
    /// Rows and the numbers of their new versions, once it is in the log.
    versions: Vec<(usize, usize)>,
    pub(crate) number: u64,
    /// Whether only earlier commits keep it from being visible.
    is_ready: bool,
    pub(crate) is_visible: bool,
}

/// The database of a run.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    pub(crate) engine: Engine,
    /// Rows of one collection.
    ids: usize,
    pub(crate) histories: Vec<Vec<RowVersion>>,
    /// Newest visible version of each row.
    visible: Vec<usize>,
    is_locked: Vec<bool>,
    pub(crate) log: Vec<LogEntry>,
    /// Commits that the log no longer holds.
    pub(crate) pruned: u64,
    /// Commits that a follower has confirmed to its slot.
    #[cfg(feature = "failpoints")]
    pub(crate) confirmed: u64,
    pub(crate) incarnation: u64,
    /// Time of the last replacement by another database.
    pub(crate) replaced_at: Nanos,
    /// Commits from the beginning of the log that are all visible.
    visible_prefix: u64,
    next_xid: u64,
    /// Transactions that began and are not visible, ascending.
    running: Vec<u64>,
    /// Changes of each collection's shape.
    pub(crate) shapes: [u64; COLLECTIONS as usize],
    /// Times that each collection was taken out of the publication.
    pub(crate) withdrawals: [u64; COLLECTIONS as usize],
    pub(crate) is_published: [bool; COLLECTIONS as usize],
    pub(crate) is_down: bool,
    pub(crate) transactions: Slab<Transaction>,
}

impl Database {
    /// Creates a database with `ids` rows per collection, in the states of `first`.
    pub(crate) fn new(
        engine: Engine,
        ids: usize,
        start: Nanos,
        first: impl Fn(usize) -> Option<u16>,
    ) -> Self {
        let rows = ids * usize::from(COLLECTIONS);
        let first = |row: usize| RowVersion {
            state: first(row),
            visible_at: start,
            returned_at: start,
            place: None,
            after: 0,
            is_shown: true,
        };
        Self {
            engine,
            ids,
            histories: (0..rows).map(|row| vec![first(row)]).collect(),
            visible: vec![0; rows],
            is_locked: vec![false; rows],
            log: Vec::new(),
            pruned: 0,
            #[cfg(feature = "failpoints")]
            confirmed: 0,
            incarnation: 1,
            replaced_at: Nanos::ZERO,
            visible_prefix: 0,
            next_xid: XID_FIRST,
            running: Vec::new(),
            shapes: [0; COLLECTIONS as usize],
            withdrawals: [0; COLLECTIONS as usize],
            is_published: [true; COLLECTIONS as usize],
            is_down: false,
            transactions: Slab::default(),
        }
    }

    pub(crate) fn rows(&self) -> usize {
        self.visible.len()
    }

    pub(crate) fn collection_of(&self, row: usize) -> CollectionId {
        // Two collections.
        CollectionId((row / self.ids) as u16)
    }

    pub(crate) fn rows_of(&self, CollectionId(id): CollectionId) -> std::ops::Range<usize> {
        let first = usize::from(id) * self.ids;
        first..first + self.ids
    }

    pub(crate) fn targets(&self, target: Target) -> std::ops::Range<usize> {
        match target {
            Target::Row(row) => row..row + 1,
            Target::Collection(collection, _) => self.rows_of(collection),
        }
    }

    /// Begins a transaction; `None` when another one holds a lock that it needs.
    pub(crate) fn begin(&mut self, targets: &[Target]) -> Option<SlabId> {
        let is_locked = |target: &Target| self.targets(*target).any(|row| self.is_locked[row]);
        if targets.iter().any(is_locked) {
            return None;
        }
        let mut changes = Vec::with_capacity(targets.len());
        for &target in targets {
            let rows = self.targets(target);
            let is_shown = self.is_published[usize::from(self.collection_of(rows.start).0)];
            rows.for_each(|row| self.is_locked[row] = true);
            changes.push(LoggedChange { target, is_shown });
        }
        let xid = self.next_xid;
        self.next_xid += 1;
        self.running.push(xid);
        Some(self.transactions.insert_with(|_| Transaction {
            changes,
            xid,
            versions: Vec::new(),
            number: 0,
            is_ready: false,
            is_visible: false,
        }))
    }

    pub(crate) fn roll_back(&mut self, id: SlabId) {
        let Some(transaction) = self.transactions.remove(id) else { return };
        self.release(&transaction);
    }

    fn release(&mut self, transaction: &Transaction) {
        for change in &transaction.changes {
            self.targets(change.target).for_each(|row| self.is_locked[row] = false);
        }
        self.running.retain(|xid| *xid != transaction.xid);
    }

    /// Writes the transaction to the log. `state` chooses what the commit leaves of each row.
    pub(crate) fn commit(&mut self, id: SlabId, mut state: impl FnMut(usize) -> Option<u16>) {
        let number = self.log.len() as u64 + 1;
        let incarnation = self.incarnation;
        let Some(transaction) = self.transactions.get(id) else { return };
        let (changes, xid) = (transaction.changes.clone(), transaction.xid);
        let mut versions = Vec::new();
        for change in &changes {
            for row in self.targets(change.target) {
                versions.push((row, self.histories[row].len()));
                self.histories[row].push(RowVersion {
                    state: state(row),
                    visible_at: Nanos::MAX,
                    returned_at: Nanos::MAX,
                    place: Some((incarnation, number)),
                    after: number - 1,
                    is_shown: change.is_shown,
                });
            }
        }
        self.log.push(LogEntry { transaction: id, xid, changes, is_visible: false });
        if let Some(transaction) = self.transactions.get_mut(id) {
            transaction.versions = versions;
            transaction.number = number;
        }
    }

    /// The transaction may become visible. Returns those that now are.
    pub(crate) fn make_visible(&mut self, id: SlabId, now: Nanos) -> Vec<SlabId> {
        let Some(transaction) = self.transactions.get_mut(id) else { return Vec::new() };
        transaction.is_ready = true;
        let mut revealed = Vec::new();
        if self.engine.visibility == VisibilityOrder::LogOrder {
            while let Some(entry) = self.log.get(self.visible_prefix as usize) {
                let id = entry.transaction;
                if !self.transactions.get(id).is_some_and(|transaction| transaction.is_ready) {
                    break;
                }
                self.reveal(id, now);
                revealed.push(id);
            }
        } else {
            self.reveal(id, now);
            revealed.push(id);
        }
        revealed
    }

    fn reveal(&mut self, id: SlabId, now: Nanos) {
        let Some(transaction) = self.transactions.get_mut(id) else { return };
        transaction.is_visible = true;
        let (versions, number, xid) =
            (transaction.versions.clone(), transaction.number, transaction.xid);
        for (row, version) in versions {
            self.histories[row][version].visible_at = now;
            self.visible[row] = version;
            self.is_locked[row] = false;
        }
        self.running.retain(|running| *running != xid);
        self.log[number as usize - 1].is_visible = true;
        let is_visible = |entry: &LogEntry| entry.is_visible;
        while self.log.get(self.visible_prefix as usize).is_some_and(is_visible) {
            self.visible_prefix += 1;
        }
    }

    /// The writer received the answer to COMMIT. Returns the rows that it changed.
    pub(crate) fn returned(&mut self, id: SlabId, now: Nanos) -> Vec<usize> {
        let Some(transaction) = self.transactions.remove(id) else { return Vec::new() };
        for &(row, version) in &transaction.versions {
            self.histories[row][version].returned_at = now;
        }
        transaction.versions.iter().map(|(row, _)| *row).collect()
    }

    /// Changes the shape of a table, outside the log. `false`: a writer holds a lock on it.
    pub(crate) fn change_shape(&mut self, collection: CollectionId, now: Nanos) -> bool {
        if self.rows_of(collection).any(|row| self.is_locked[row]) {
            return false;
        }
        self.shapes[usize::from(collection.0)] += 1;
        // It is a transaction of its own, whatever the feed shows of it: snapshots tell it apart.
        self.next_xid += 1;
        for row in self.rows_of(collection) {
            let state = self.version(row, self.visible[row]).state;
            self.replace(row, state, now, false);
        }
        true
    }

    /// Another database takes the place of this one: commits that no reader could see are gone, all
    /// rows are others, and the log begins anew.
    pub(crate) fn fail_over(&mut self, now: Nanos) {
        for id in self.transactions.ids() {
            if let Some(transaction) = self.transactions.remove(id) {
                self.release(&transaction);
            }
        }
        self.incarnation += 1;
        self.replaced_at = now;
        self.log.clear();
        (self.pruned, self.visible_prefix) = (0, 0);
        self.running.clear();
        // A server that takes over may have assigned fewer transactions.
        self.next_xid = XID_FIRST;
        self.is_locked.fill(false);
        for row in 0..self.rows() {
            self.histories[row].truncate(self.visible[row] + 1);
            let state = self.version(row, self.visible[row]).state;
            self.replace(row, state, now, true);
        }
    }

    fn replace(&mut self, row: usize, state: Option<u16>, now: Nanos, is_shown: bool) {
        self.visible[row] = self.histories[row].len();
        self.histories[row].push(RowVersion {
            state,
            visible_at: now,
            returned_at: now,
            place: None,
            after: self.log.len() as u64,
            is_shown,
        });
    }

    pub(crate) fn version(&self, row: usize, version: usize) -> &RowVersion {
        &self.histories[row][version]
    }

    /// Returns the number of the version that a read sees now.
    pub(crate) fn visible(&self, row: usize) -> usize {
        self.visible[row]
    }

    /// Returns the number of the version that a commit has given the row, if a read sees it or a
    /// newer one.
    pub(crate) fn visible_at(&self, row: usize, place: (u64, u64)) -> Option<usize> {
        self.placed(row, place).filter(|version| *version <= self.visible[row])
    }

    /// Returns the number of the version that a commit has given the row.
    pub(crate) fn placed(&self, row: usize, place: (u64, u64)) -> Option<usize> {
        self.histories[row].iter().rposition(|own| own.place == Some(place))
    }

    /// Returns the newest version of the row that satisfies `is_required`, by its number.
    pub(crate) fn newest(&self, row: usize, is_required: impl Fn(&RowVersion) -> bool) -> usize {
        self.histories[row].iter().rposition(is_required).unwrap_or(0)
    }

    /// Returns the end of the log.
    pub(crate) fn end(&self) -> u64 {
        self.log.len() as u64
    }

    /// Returns the commits from the beginning of the log that are all visible.
    pub(crate) fn visible_end(&self) -> u64 {
        self.visible_prefix
    }

    pub(crate) fn position(&self, at: u64) -> Position {
        Position { incarnation: self.incarnation, at }
    }

    /// Returns what identifies a commit in the feed.
    pub(crate) fn change_id(&self, number: u64, xid: u64) -> ChangeId {
        match self.engine.version {
            VersionKind::Unknown | VersionKind::Sequence => ChangeId::Log(self.position(number)),
            VersionKind::Snapshot => ChangeId::Transaction { xid, commit: number - 1 },
            VersionKind::BinlogPoint | VersionKind::ClusterTime => {
                ChangeId::Commit(self.position(number))
            }
            VersionKind::GtidSet => ChangeId::Gtid(Gtid { source: self.server(), number }),
        }
    }

    /// Each incarnation is a server of its own.
    fn server(&self) -> SourceId {
        SourceId { server: u128::from(self.incarnation), tag: [0; 32] }
    }

    /// Returns the snapshot of a read at this moment.
    pub(crate) fn snapshot(&self) -> Version {
        let snapshot = Arc::new(self.running());
        Version::Snapshot { incarnation: self.incarnation, snapshot }
    }

    /// Returns which transactions run at this moment.
    pub(crate) fn running(&self) -> Snapshot {
        let (xmax, running) = (self.next_xid, self.running.clone());
        Snapshot { xmin: running.first().copied().unwrap_or(xmax), xmax, running }
    }

    /// Returns the visible transactions, as `gtid_executed` prints them.
    pub(crate) fn executed(&self) -> Version {
        let mut text = String::new();
        let mut add = |range: String| {
            if text.is_empty() {
                text = format!("00000000-0000-0000-0000-{:012x}", self.incarnation);
            }
            text.push(':');
            text.push_str(&range);
        };
        if self.visible_prefix > 0 {
            add(format!("1-{}", self.visible_prefix));
        }
        let rest = self.log.iter().zip(1_u64..).skip(self.visible_prefix as usize);
        rest.filter(|(entry, _)| entry.is_visible).for_each(|(_, number)| add(number.to_string()));
        // It is written in the form that the parser reads.
        Version::Gtids(Arc::new(GtidSet::parse(&text).unwrap_or_default()))
    }

    /// Returns what a read sent now sees at least, as a probe of the feed reports it.
    pub(crate) fn visible_version(&self) -> Option<Version> {
        match self.engine.version {
            VersionKind::Unknown | VersionKind::Sequence => None,
            VersionKind::Snapshot => Some(self.snapshot()),
            VersionKind::BinlogPoint => Some(Version::Log(self.position(self.visible_prefix))),
            VersionKind::GtidSet => Some(self.executed()),
            // Reads ask for what was delivered: the feed reports its own position.
            VersionKind::ClusterTime => None,
        }
    }
}

impl RowVersion {
    /// Returns whether COMMIT returned more than the bound before `time`.
    pub(crate) fn is_due(&self, time: Nanos, shown: Duration, unshown: Duration) -> bool {
        let bound = if self.is_shown { shown } else { unshown };
        self.returned_at != Nanos::MAX && self.returned_at.after(bound) < time
    }
}
