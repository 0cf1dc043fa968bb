//! Writer: one connection that changes the keys it owns and records its writes. It survives a crash
//! of the database. Records with an alias or embedded rows are written by families
//! ([`crate::family`]), others one by one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hotrow_measure::clock::Nanos;

use crate::database::{
    Change, ChangeKind, DatabaseError, StoredRow, TableRole, TransactionEnd, TransactionOutcome,
    Writer,
};
use crate::family::{Family, RECORDS, Step};
use crate::history::{LogInterval, Ns, WriteOutcome};
use crate::ledger::{KeyEntry, Ledger};
use crate::plan::SET_KEYS;
use crate::random::{Random, Zipf};
use crate::record_schema::RecordSchema;
use crate::shared_state::{BackOff, SharedState};

/// Probability of a delete of a row, in per cent; a key without a row is inserted again.
const DELETES: u64 = 15;
/// Probability that a row is deleted and inserted in one transaction, in per cent.
const REPLACES: u64 = 15;
/// Probability of a rollback, in per cent.
const ROLLBACKS: u64 = 3;
/// Probability that a transaction changes several keys, in per cent.
const SEVERAL: u64 = 10;
/// Most keys of a transaction.
const TRANSACTION_KEYS_MAX: u64 = 4;
/// Probability that a transaction changes a whole set of consecutive keys, in per cent, and that it
/// deletes their rows; otherwise it writes them all.
const SETS: u64 = 15;
const SET_DELETES: u64 = 30;
/// Lateness beyond which a writer restarts its schedule, so that a recovering database is not
/// flooded.
const LATE_MAX: Duration = Duration::from_millis(200);

/// Counts of all writers.
#[derive(Debug, Default)]
pub(crate) struct WriteCounts {
    pub(crate) commits: AtomicU64,
    pub(crate) changes: AtomicU64,
    pub(crate) deletes: AtomicU64,
    pub(crate) rolled_back: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) unknown: AtomicU64,
    pub(crate) read_back: AtomicU64,
    pub(crate) values_moved: AtomicU64,
    pub(crate) children_changed: AtomicU64,
    pub(crate) children_moved: AtomicU64,
}

fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// A writer thread.
pub(crate) struct WriterThread {
    pub(crate) writer: Box<dyn Writer>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) shared: Arc<SharedState>,
    pub(crate) counts: Arc<WriteCounts>,
    pub(crate) random: Random,
    pub(crate) schema: RecordSchema,
    /// Keys that only this writer changes.
    pub(crate) keys: Vec<u32>,
    /// Their families, if records have more parts than a row; see [`families`].
    pub(crate) families: Vec<Family>,
    /// Interval between two transactions.
    pub(crate) interval: Duration,
    /// Position after its newest commit.
    pub(crate) position: u64,
}

/// Divides the keys of a writer into families.
pub(crate) fn families(keys: &[u32], new: impl Fn(&[u32]) -> Family) -> Vec<Family> {
    keys.chunks(RECORDS).map(new).collect()
}

/// A transaction with the states that it makes.
struct Transaction {
    /// Keys and values with the versions of their new states.
    states: Vec<(u32, u64)>,
    changes: Vec<Change>,
    /// Number of the states that are of keys, and of these the deleted.
    keys: u64,
    deletes: u64,
    step: Step,
    /// Families as they were before, by their places.
    before: Vec<(usize, Family)>,
}

impl WriterThread {
    /// Writes until the stop flag is set.
    ///
    /// # Errors
    /// A permanent error.
    pub(crate) fn run(mut self) -> Result<(), DatabaseError> {
        // A plan has at most `plan::KEYS_MAX` keys.
        let zipf = Zipf::new(self.keys.len() as u32);
        let mut back_off = BackOff::new();
        let mut due = Instant::now() + self.interval.mul_f64(self.random.unit());
        let shared = self.shared.clone();
        while !shared.writers_stopped() {
            SharedState::sleep_until(due, || shared.writers_stopped());
            let transaction = self.choose(&zipf);
            let touched: Vec<u32> = transaction.states.iter().map(|(id, _)| *id).collect();
            self.touch(&touched);
            match self.change(transaction) {
                Ok(()) => back_off.succeeded(),
                Err(DatabaseError::Transient(_)) => due = back_off.failed(),
                Err(lasting @ DatabaseError::Permanent(_)) => return Err(lasting),
            }
            self.touch(&touched);
            let late = due + LATE_MAX < Instant::now();
            due = if late { Instant::now() } else { due } + self.interval;
        }
        Ok(())
    }

    /// Chooses and stages a transaction.
    fn choose(&mut self, zipf: &Zipf) -> Transaction {
        let place = zipf.pick(&mut self.random) as usize;
        let mut places = vec![place];
        let has_transactions = self.writer.has_transactions();
        if has_transactions && self.random.percent(SETS) {
            let set = |key: u32| (key - 1) / SET_KEYS;
            let own = set(self.keys[place]);
            let from = self.keys.partition_point(|key| set(*key) < own);
            places = (from..self.keys.partition_point(|key| set(*key) <= own)).collect();
            let kind = match self.random.percent(SET_DELETES) {
                true => ChangeKind::Delete,
                false => ChangeKind::Upsert,
            };
            let transaction = self.stage(&places, Some(kind));
            if !transaction.changes.is_empty() {
                return transaction;
            }
            // All of them are absent already.
            return self.stage(&places, Some(ChangeKind::Upsert));
        }
        if has_transactions && self.random.percent(SEVERAL) {
            let more = 1 + self.random.below(TRANSACTION_KEYS_MAX - 1);
            let keys = self.keys.len() as u64;
            places.extend((0..more).map(|_| self.random.below(keys) as usize));
            places.sort_unstable();
            places.dedup();
        }
        self.stage(&places, None)
    }

    fn touch(&self, ids: &[u32]) {
        for id in ids {
            match self.schema.value_of(*id) {
                Some(_) => self.shared.touched_value(*id),
                None => self.shared.touched(*id),
            }
        }
    }

    /// Makes the transaction that gives each key its next state.
    fn change(&mut self, transaction: Transaction) -> Result<(), DatabaseError> {
        let end = if self.random.percent(ROLLBACKS) {
            TransactionEnd::RollBack
        } else {
            TransactionEnd::Commit
        };
        let ledger = self.ledger.clone();
        let mut before_commit = || {
            let now = Nanos::now().0;
            for (id, version) in &transaction.states {
                ledger.with(*id, |entry| entry.checker.history.begin(*version, now));
            }
        };
        let ended = self.writer.transact(&transaction.changes, end, &mut before_commit);
        let returned_ns = Nanos::now().0;
        match ended {
            TransactionOutcome::Committed => {
                self.settle(&transaction, WriteOutcome::Committed { returned_ns });
                Ok(())
            }
            TransactionOutcome::RolledBack(fault) => {
                self.record(&transaction, WriteOutcome::RolledBack, None);
                for (place, family) in transaction.before {
                    self.families[place] = family;
                }
                if end == TransactionEnd::RollBack {
                    count(&self.counts.rolled_back, 1);
                    return Ok(());
                }
                count(&self.counts.failed, 1);
                Err(fault)
            }
            TransactionOutcome::Unknown(fault) => {
                self.record(&transaction, WriteOutcome::Unknown, None);
                count(&self.counts.unknown, 1);
                transaction.before.iter().for_each(|(place, _)| self.families[*place].forget());
                self.read_back(&transaction);
                Err(fault)
            }
        }
    }

    /// Records the outcome of a transaction for all its states.
    fn record(&self, transaction: &Transaction, outcome: WriteOutcome, log: Option<LogInterval>) {
        for (id, version) in &transaction.states {
            self.ledger.settle(*id, *version, outcome, log);
        }
    }

    /// Stages the next states of the keys at these places; `kind`: what happens to all rows.
    fn stage(&mut self, places: &[usize], kind: Option<ChangeKind>) -> Transaction {
        let number = self.ledger.next_transaction();
        let mut transaction = Transaction {
            states: Vec::new(),
            changes: Vec::new(),
            keys: 0,
            deletes: 0,
            step: Step::default(),
            before: Vec::new(),
        };
        if self.families.is_empty() {
            for place in places {
                let key = self.keys[*place];
                transaction.changes.extend(self.stage_row(key, number, kind));
            }
            let state = |change: &Change| (change.key, change.version);
            transaction.states = transaction.changes.iter().map(state).collect();
            let is_delete = |change: &&Change| change.kind == ChangeKind::Delete;
            transaction.deletes = transaction.changes.iter().filter(is_delete).count() as u64;
            transaction.keys = transaction.changes.len() as u64;
            return transaction;
        }
        for place in places {
            let at = place / RECORDS;
            // Once per transaction.
            if transaction.before.iter().all(|(other, _)| *other != at) {
                self.stage_family(at, place % RECORDS, number, &mut transaction);
            }
        }
        transaction
    }

    fn stage_family(
        &mut self,
        at: usize,
        place: usize,
        number: u64,
        transaction: &mut Transaction,
    ) {
        let Self { ledger, random, schema, families, .. } = self;
        let family = &mut families[at];
        transaction.before.push((at, family.clone()));
        let mut next = |id: u32, is_present: bool| {
            let stage = |entry: &mut KeyEntry| entry.checker.history.stage(is_present, number);
            ledger.with(id, stage).expect("the ledger has all keys and values of its families")
        };
        let step = family.step(place, random, schema, &mut next);
        for state in &step.records {
            transaction.states.push((state.key, state.version));
            match &state.content {
                Some(content) => ledger.staged(state.key, content, state.version, state.value),
                None => transaction.deletes += 1,
            }
        }
        transaction.keys += step.records.len() as u64;
        transaction.states.extend(&step.values);
        transaction.changes.extend(&step.changes);
        transaction.step.add(&step);
    }

    /// Chooses the operation on the key, unless it is given, and stages its next state; `None`:
    /// there is nothing to delete.
    fn stage_row(
        &mut self,
        key: u32,
        transaction: u64,
        kind: Option<ChangeKind>,
    ) -> Option<Change> {
        let waits = self.writer.unknown_writes_hold_locks();
        let Self { ledger, random, .. } = self;
        let stage = |entry: &mut KeyEntry| {
            let history = &mut entry.checker.history;
            let present = history.last_certain().is_some_and(|state| state.present);
            // A delete finds nothing of an insert that is not visible yet and does not wait for it,
            // so the insert would come after it. An upsert waits. If not even that waits, such a
            // key is never deleted again.
            let unknown = |state: &crate::history::KeyState| state.outcome == WriteOutcome::Unknown;
            let settled =
                if waits { !unknown(history.last()) } else { !history.iter().any(unknown) };
            let kind = match kind {
                Some(ChangeKind::Delete) if settled && !present => return None,
                Some(ChangeKind::Delete) if settled => ChangeKind::Delete,
                Some(_) => ChangeKind::Upsert,
                None if present && settled && random.percent(DELETES) => ChangeKind::Delete,
                None if present && settled && random.percent(REPLACES) => ChangeKind::Replace,
                None => ChangeKind::Upsert,
            };
            let version = history.stage(kind != ChangeKind::Delete, transaction);
            Some(Change { table: TableRole::Records, key, version, reference: None, kind })
        };
        ledger.with(key, stage)?
    }

    fn settle(&mut self, transaction: &Transaction, outcome: WriteOutcome) {
        // The commit is recorded before its position is requested, because readers are checked
        // against it at once.
        self.record(transaction, outcome, None);
        count(&self.counts.commits, 1);
        count(&self.counts.changes, transaction.keys);
        count(&self.counts.deletes, transaction.deletes);
        count(&self.counts.values_moved, transaction.step.values.len() as u64);
        count(&self.counts.children_changed, transaction.step.children_changed);
        count(&self.counts.children_moved, transaction.step.children_moved);
        let key = transaction.states.iter().rev().map(|(id, _)| *id);
        let last = key.into_iter().find(|id| self.schema.value_of(*id).is_none());
        if let (Some(position), Some(last)) = (self.writer.position(), last) {
            if position < std::mem::replace(&mut self.position, position) {
                self.shared.log_went_back();
            }
            if self.shared.has_log_gone_back() {
                return;
            }
            let log = Some(LogInterval { from: 0, at: position });
            self.record(transaction, outcome, log);
            self.shared.committed(position, last);
        }
    }

    /// Checks whether a transaction of unknown outcome is visible, by one of its changes. If it is
    /// not, nothing follows: it may still be in progress.
    fn read_back(&mut self, transaction: &Transaction) {
        let is_delete = |change: &&Change| change.kind == ChangeKind::Delete;
        // Only rows that were there are deleted.
        let shown = transaction.changes.iter().rev().min_by_key(is_delete);
        let Some(change) = shown else { return };
        let Ok(found) = self.writer.row(change.table, change.key) else { return };
        let returned_ns: Ns = Nanos::now().0;
        let Change { version, reference, .. } = *change;
        let expected = (!is_delete(&change)).then_some(StoredRow { version, reference });
        if found == expected {
            self.record(transaction, WriteOutcome::Committed { returned_ns }, None);
            count(&self.counts.read_back, transaction.keys);
        }
    }
}
