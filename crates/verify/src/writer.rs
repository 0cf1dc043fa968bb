//! Writer: one connection that changes the keys it owns and records its writes. It survives a crash
//! of the database.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hotrow_measure::clock::Nanos;

use crate::database::{
    Change, ChangeKind, DatabaseError, TransactionEnd, TransactionOutcome, Writer,
};
use crate::history::{LogInterval, Ns, WriteOutcome};
use crate::ledger::Ledger;
use crate::random::{Random, Zipf};
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
    /// Keys that only this writer changes.
    pub(crate) keys: Vec<u32>,
    /// Interval between two transactions.
    pub(crate) interval: Duration,
}

impl WriterThread {
    /// Writes until the stop flag is set.
    ///
    /// # Errors
    /// A permanent error.
    pub(crate) fn run(mut self) -> Result<(), DatabaseError> {
        // A plan has at most `plan::KEYS_MAX` keys.
        let zipf = Zipf::new(self.keys.len() as u32);
        let several = if self.writer.has_transactions() { SEVERAL } else { 0 };
        let mut back_off = BackOff::new();
        let mut due = Instant::now() + self.interval.mul_f64(self.random.unit());
        let shared = self.shared.clone();
        while !shared.writers_stopped() {
            SharedState::sleep_until(due, || shared.writers_stopped());
            let Some(hot) = self.keys.get(zipf.pick(&mut self.random) as usize).copied() else {
                return Ok(());
            };
            let mut keys = vec![hot];
            if self.random.percent(several) {
                let more = 1 + self.random.below(TRANSACTION_KEYS_MAX - 1);
                keys.extend((0..more).filter_map(|_| self.random.one_of(&self.keys)));
                keys.sort_unstable();
                keys.dedup();
            }
            keys.iter().for_each(|key| shared.touched(*key));
            match self.change(&keys) {
                Ok(()) => back_off.succeeded(),
                Err(DatabaseError::Transient(_)) => due = back_off.failed(),
                Err(lasting @ DatabaseError::Permanent(_)) => return Err(lasting),
            }
            keys.iter().for_each(|key| shared.touched(*key));
            let late = due + LATE_MAX < Instant::now();
            due = if late { Instant::now() } else { due } + self.interval;
        }
        Ok(())
    }

    /// Gives each key its next state, in one transaction.
    fn change(&mut self, keys: &[u32]) -> Result<(), DatabaseError> {
        let transaction = self.ledger.next_transaction();
        let changes: Vec<Change> =
            keys.iter().filter_map(|key| self.stage(*key, transaction)).collect();
        let end = if self.random.percent(ROLLBACKS) {
            TransactionEnd::RollBack
        } else {
            TransactionEnd::Commit
        };
        let ledger = self.ledger.clone();
        let mut before_commit = || {
            let now = Nanos::now().0;
            for change in &changes {
                ledger.with(change.key, |entry| entry.checker.history.begin(change.version, now));
            }
        };
        let ended = self.writer.transact(&changes, end, &mut before_commit);
        let returned_ns = Nanos::now().0;
        match ended {
            TransactionOutcome::Committed => {
                self.settle(&changes, WriteOutcome::Committed { returned_ns });
                Ok(())
            }
            TransactionOutcome::RolledBack(fault) => {
                changes.iter().for_each(|change| {
                    ledger.settle(change.key, change.version, WriteOutcome::RolledBack, None)
                });
                if end == TransactionEnd::RollBack {
                    count(&self.counts.rolled_back, 1);
                    return Ok(());
                }
                count(&self.counts.failed, 1);
                Err(fault)
            }
            TransactionOutcome::Unknown(fault) => {
                changes.iter().for_each(|change| {
                    ledger.settle(change.key, change.version, WriteOutcome::Unknown, None)
                });
                count(&self.counts.unknown, 1);
                self.read_back(&changes);
                Err(fault)
            }
        }
    }

    /// Chooses the operation on the key, and stages its next state.
    fn stage(&mut self, key: u32, transaction: u64) -> Option<Change> {
        let waits = self.writer.unknown_writes_hold_locks();
        let Self { ledger, random, .. } = self;
        ledger.with(key, |entry| {
            let history = &mut entry.checker.history;
            let present = history.last_certain().is_some_and(|state| state.present);
            // A delete finds nothing of an insert that is not visible yet and does not wait for it,
            // so the insert would come after it. An upsert waits. If not even that waits, such a
            // key is never deleted again.
            let unknown = |state: &crate::history::KeyState| state.outcome == WriteOutcome::Unknown;
            let settled =
                if waits { !unknown(history.last()) } else { !history.iter().any(unknown) };
            let kind = match present {
                true if settled && random.percent(DELETES) => ChangeKind::Delete,
                true if random.percent(REPLACES) && settled => ChangeKind::Replace,
                _ => ChangeKind::Upsert,
            };
            let version = history.stage(kind != ChangeKind::Delete, transaction);
            Change { key, version, kind }
        })
    }

    fn settle(&mut self, changes: &[Change], outcome: WriteOutcome) {
        // The commit is recorded before its position is requested, because readers are checked
        // against it at once.
        changes
            .iter()
            .for_each(|change| self.ledger.settle(change.key, change.version, outcome, None));
        count(&self.counts.commits, 1);
        count(&self.counts.changes, changes.len() as u64);
        count(
            &self.counts.deletes,
            changes.iter().filter(|change| change.kind == ChangeKind::Delete).count() as u64,
        );
        if let (Some(position), Some(last)) = (self.writer.position(), changes.last()) {
            let log = Some(LogInterval { from: 0, at: position });
            changes
                .iter()
                .for_each(|change| self.ledger.settle(change.key, change.version, outcome, log));
            self.shared.committed(position, last.key);
        }
    }

    /// Checks whether writes of unknown outcome are visible. If they are not, nothing follows: they
    /// may still be in progress.
    fn read_back(&mut self, changes: &[Change]) {
        for change in changes {
            let Ok(found) = self.writer.version(change.key) else { return };
            let now: Ns = Nanos::now().0;
            let visible = self.ledger.with(change.key, |entry| match found {
                Some(version) => version == change.version,
                // Visible only if there was a row before.
                None => {
                    change.kind == ChangeKind::Delete
                        && entry.checker.history.last_certain().is_some_and(|state| state.present)
                }
            });
            if visible == Some(true) {
                self.ledger.settle(
                    change.key,
                    change.version,
                    WriteOutcome::Committed { returned_ns: now },
                    None,
                );
                count(&self.counts.read_back, 1);
            }
        }
    }
}
