//! A writer: one connection that changes the keys it owns, and notes what it did. It outlives the database's death.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hotrow_measure::clock::Nanos;

use crate::board::{BackOff, Board};
use crate::database::{Act, Change, End, Ended, Fault, Writer};
use crate::history::{Fate, Ns};
use crate::ledger::Ledger;
use crate::random::{Random, Zipf};

/// Chance of a delete of a row, in per cent; a key without a row is inserted again.
const DELETES: u64 = 15;
/// Chance that a row is taken away and inserted in the same transaction, in per cent.
const REPLACES: u64 = 15;
/// Chance of a transaction that is rolled back, in per cent.
const ROLLBACKS: u64 = 3;
/// Chance that a transaction changes several keys, in per cent.
const SEVERAL: u64 = 10;
/// Most keys of a transaction.
const TRANSACTION_KEYS_MAX: u64 = 4;
/// A writer that is late by more than this begins its schedule anew, so that a database that comes back is not flooded.
const LATE_MAX: Duration = Duration::from_millis(200);

/// What all writers did.
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

/// One writer.
pub(crate) struct WriterThread {
    pub(crate) writer: Box<dyn Writer>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) board: Arc<Board>,
    pub(crate) counts: Arc<WriteCounts>,
    pub(crate) random: Random,
    /// The keys that only this writer changes.
    pub(crate) keys: Vec<u32>,
    /// Between two transactions.
    pub(crate) interval: Duration,
}

impl WriterThread {
    /// Writes until the board says stop.
    ///
    /// # Errors
    /// What will not pass by itself.
    pub(crate) fn run(mut self) -> Result<(), Fault> {
        // A plan has at most `plan::KEYS_MAX` keys.
        let zipf = Zipf::new(self.keys.len() as u32);
        let several = if self.writer.has_transactions() { SEVERAL } else { 0 };
        let mut back_off = BackOff::new();
        let mut due = Instant::now() + self.interval.mul_f64(self.random.unit());
        let board = self.board.clone();
        while !board.writers_stopped() {
            Board::sleep_until(due, || board.writers_stopped());
            let Some(hot) = self.keys.get(zipf.pick(&mut self.random) as usize).copied() else { return Ok(()) };
            let mut keys = vec![hot];
            if self.random.percent(several) {
                let more = 1 + self.random.below(TRANSACTION_KEYS_MAX - 1);
                keys.extend((0..more).filter_map(|_| self.random.one_of(&self.keys)));
                keys.sort_unstable();
                keys.dedup();
            }
            keys.iter().for_each(|key| board.touched(*key));
            match self.change(&keys) {
                Ok(()) => back_off.succeeded(),
                Err(Fault::Passing(_)) => due = back_off.failed(),
                Err(lasting @ Fault::Lasting(_)) => return Err(lasting),
            }
            keys.iter().for_each(|key| board.touched(*key));
            let late = due + LATE_MAX < Instant::now();
            due = if late { Instant::now() } else { due } + self.interval;
        }
        Ok(())
    }

    /// Gives each key its next state, in one transaction.
    fn change(&mut self, keys: &[u32]) -> Result<(), Fault> {
        let transaction = self.ledger.next_transaction();
        let changes: Vec<Change> = keys.iter().filter_map(|key| self.stage(*key, transaction)).collect();
        let end = if self.random.percent(ROLLBACKS) { End::RollBack } else { End::Commit };
        let ledger = self.ledger.clone();
        let mut before_commit = || {
            let now = Nanos::now().0;
            for change in &changes {
                ledger.with(change.key, |book| book.judge.history.begin(change.version, now));
            }
        };
        let ended = self.writer.transact(&changes, end, &mut before_commit);
        let returned_ns = Nanos::now().0;
        match ended {
            Ended::Committed => {
                self.settle(&changes, Fate::Committed { returned_ns });
                Ok(())
            }
            Ended::Undone(fault) => {
                changes.iter().for_each(|change| ledger.settle(change.key, change.version, Fate::Undone, None));
                if end == End::RollBack {
                    count(&self.counts.rolled_back, 1);
                    return Ok(());
                }
                count(&self.counts.failed, 1);
                Err(fault)
            }
            Ended::Unknown(fault) => {
                changes.iter().for_each(|change| ledger.settle(change.key, change.version, Fate::Unknown, None));
                count(&self.counts.unknown, 1);
                self.read_back(&changes);
                Err(fault)
            }
        }
    }

    /// Chooses what is done to the key, and stages its next state.
    fn stage(&mut self, key: u32, transaction: u64) -> Option<Change> {
        let waits = self.writer.unknown_writes_hold_locks();
        let Self { ledger, random, .. } = self;
        ledger.with(key, |book| {
            let history = &mut book.judge.history;
            let present = history.last_certain().is_some_and(|state| state.present);
            // A delete finds nothing of an insert that is not visible yet and does not wait for it, so that the insert would
            // come after it. An upsert waits. Where not even that waits, such a key is never deleted again.
            let unknown = |state: &crate::history::State| state.fate == Fate::Unknown;
            let settled = if waits { !unknown(history.last()) } else { !history.iter().any(unknown) };
            let act = match present {
                true if settled && random.percent(DELETES) => Act::Delete,
                true if random.percent(REPLACES) && settled => Act::Replace,
                _ => Act::Upsert,
            };
            let version = history.stage(act != Act::Delete, transaction);
            Change { key, version, act }
        })
    }

    fn settle(&mut self, changes: &[Change], fate: Fate) {
        // The commit is noted before its position is asked for: readers shall be held to it at once.
        changes.iter().for_each(|change| self.ledger.settle(change.key, change.version, fate, None));
        count(&self.counts.commits, 1);
        count(&self.counts.changes, changes.len() as u64);
        count(&self.counts.deletes, changes.iter().filter(|change| change.act == Act::Delete).count() as u64);
        if let (Some(position), Some(last)) = (self.writer.position(), changes.last()) {
            changes.iter().for_each(|change| self.ledger.settle(change.key, change.version, fate, Some(position)));
            self.board.committed(position, last.key);
        }
    }

    /// Looks whether writes of unknown outcome are visible. Where they are not, nothing follows: they may be on their way.
    fn read_back(&mut self, changes: &[Change]) {
        for change in changes {
            let Ok(found) = self.writer.version(change.key) else { return };
            let now: Ns = Nanos::now().0;
            let visible = self.ledger.with(change.key, |book| match found {
                Some(version) => version == change.version,
                // Visible only if there was a row before.
                None => {
                    change.act == Act::Delete && book.judge.history.last_certain().is_some_and(|state| state.present)
                }
            });
            if visible == Some(true) {
                self.ledger.settle(change.key, change.version, Fate::Committed { returned_ns: now }, None);
                count(&self.counts.read_back, 1);
            }
        }
    }
}
