//! Ledger of a run: per key the writes, the responses, and the data needed to check later
//! responses.
//!
//! Writers record their commits at once. Readers submit their responses; the checker takes them a
//! moment later, in the order of receipt, when every earlier response has been submitted too.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hotrow_measure::clock::Nanos;

use crate::history::{History, LogInterval, Ns, WriteOutcome};
use crate::observation::{Observation, Purge};
use crate::rules::KeyChecker;
use crate::shared_state::lock;

/// Responses of one reader that may wait for the checker; beyond that the reader waits.
const INBOX_MAX: usize = 20_000;
/// `ETag`s remembered per key.
const ETAGS_MAX: usize = 16;
/// Checked responses per key kept for a counterexample.
pub(crate) const READS_KEPT: usize = 40;

/// Ledger of a run.
#[derive(Debug)]
pub(crate) struct Ledger {
    keys: Vec<Mutex<KeyEntry>>,
    inboxes: Vec<Inbox>,
    transactions: AtomicU64,
}

/// Ledger entry of one key.
#[derive(Debug)]
pub(crate) struct KeyEntry {
    pub(crate) checker: KeyChecker,
    etags: VecDeque<(Box<str>, u64)>,
    /// Checked responses, newest last.
    pub(crate) reads: VecDeque<Observation>,
}

/// Submissions of one reader.
#[derive(Debug)]
struct Inbox {
    responses: Mutex<Vec<Observation>>,
    /// Time at which the current request was sent; `u64::MAX` if there is none.
    under_way: AtomicU64,
}

impl Ledger {
    /// Creates the keys 1 to `histories.len()` with their first states.
    pub(crate) fn new(histories: Vec<History>, readers: usize) -> Self {
        let entry = |history| {
            Mutex::new(KeyEntry {
                checker: KeyChecker::new(history),
                etags: VecDeque::new(),
                reads: VecDeque::new(),
            })
        };
        let inbox =
            || Inbox { responses: Mutex::new(Vec::new()), under_way: AtomicU64::new(u64::MAX) };
        Self {
            keys: histories.into_iter().map(entry).collect(),
            inboxes: std::iter::repeat_with(inbox).take(readers).collect(),
            transactions: AtomicU64::new(0),
        }
    }

    pub(crate) fn keys(&self) -> std::ops::RangeInclusive<u32> {
        // A run has at most `plan::KEYS_MAX` keys.
        1..=self.keys.len() as u32
    }

    /// Accesses the entry of a key; `None` if there is no such key.
    pub(crate) fn with<T>(&self, key: u32, act: impl FnOnce(&mut KeyEntry) -> T) -> Option<T> {
        let entry = self.keys.get((key as usize).checked_sub(1)?)?;
        Some(act(&mut lock(entry)))
    }

    /// Returns a number for a transaction; never 0.
    pub(crate) fn next_transaction(&self) -> u64 {
        self.transactions.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Records the outcome of a write.
    pub(crate) fn settle(
        &self,
        key: u32,
        version: u64,
        outcome: WriteOutcome,
        log: Option<LogInterval>,
    ) {
        self.with(key, |entry| entry.checker.history.settle(version, outcome, log));
    }

    /// Remembers the version of an `ETag`.
    pub(crate) fn saw_etag(&self, key: u32, etag: &str, version: u64) {
        self.with(key, |entry| {
            if entry.etags.iter().any(|(known, _)| &**known == etag) {
                return;
            }
            if entry.etags.len() == ETAGS_MAX {
                entry.etags.pop_front();
            }
            entry.etags.push_back((etag.into(), version));
        });
    }

    /// Returns the version of an `ETag`, if remembered.
    pub(crate) fn version_of_etag(&self, key: u32, etag: &str) -> Option<u64> {
        self.with(key, |entry| {
            entry.etags.iter().find(|(known, _)| &**known == etag).map(|(_, version)| *version)
        })?
    }

    /// Records a purge of one key, or of all.
    pub(crate) fn purge(&self, purge: Purge) {
        let keys = purge.key.map_or(self.keys(), |key| key..=key);
        for key in keys {
            self.with(key, |entry| entry.checker.purge(purge));
        }
    }

    /// Records that a reader sends a request now.
    pub(crate) fn sending(&self, reader: u16, sent_ns: Ns) {
        if let Some(inbox) = self.inboxes.get(usize::from(reader)) {
            inbox.under_way.store(sent_ns, Ordering::Release);
        }
    }

    /// Submits the responses to a reader's request, possibly none. Waits while the checker is far
    /// behind.
    pub(crate) fn submit(&self, reader: u16, responses: Vec<Observation>) {
        let Some(inbox) = self.inboxes.get(usize::from(reader)) else { return };
        lock(&inbox.responses).extend(responses);
        inbox.under_way.store(u64::MAX, Ordering::Release);
        while lock(&inbox.responses).len() > INBOX_MAX {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Takes all submissions.
    pub(crate) fn take(&self, into: &mut Vec<Observation>) {
        self.inboxes.iter().for_each(|inbox| into.append(&mut lock(&inbox.responses)));
    }

    /// Returns a time before which no request was sent that is still to be checked, except those in
    /// `waiting`.
    pub(crate) fn horizon(&self, lag: Duration, waiting: &[Observation]) -> Ns {
        let now = Nanos::now().before(lag).0;
        let under_way =
            self.inboxes.iter().map(|inbox| inbox.under_way.load(Ordering::Acquire)).min();
        let oldest = waiting.iter().map(|observation| observation.sent_ns).min();
        now.min(under_way.unwrap_or(now)).min(oldest.unwrap_or(now))
    }
}
