//! The books of a run: per key what was written, what was answered and what must be remembered to judge later answers.
//!
//! Writers note their commits at once. Readers hand their answers in; the judge takes them a moment later, in the order of
//! their receipt, when everything that was received before has been handed in too.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hotrow_measure::clock::Nanos;

use crate::board::lock;
use crate::history::{Fate, History, Ns};
use crate::observation::{Observation, Purge};
use crate::rules::KeyJudge;

/// Answers of one reader that may wait for the judge; then the reader waits.
const INBOX_MAX: usize = 20_000;
/// `ETag`s that are remembered per key.
const ETAGS_MAX: usize = 16;
/// Judged answers per key that are kept for the story of a violation.
pub(crate) const READS_KEPT: usize = 40;

/// The books.
#[derive(Debug)]
pub(crate) struct Ledger {
    keys: Vec<Mutex<KeyBook>>,
    inboxes: Vec<Inbox>,
    transactions: AtomicU64,
}

/// The books of one key.
#[derive(Debug)]
pub(crate) struct KeyBook {
    pub(crate) judge: KeyJudge,
    etags: VecDeque<(Box<str>, u64)>,
    /// Judged answers, the newest last.
    pub(crate) reads: VecDeque<Observation>,
}

/// What one reader hands in.
#[derive(Debug)]
struct Inbox {
    answers: Mutex<Vec<Observation>>,
    /// When the request under way was sent; `u64::MAX`: none is.
    under_way: AtomicU64,
}

impl Ledger {
    /// Keys 1 to `histories.len()` with their first states.
    pub(crate) fn new(histories: Vec<History>, readers: usize) -> Self {
        let book = |history| {
            Mutex::new(KeyBook { judge: KeyJudge::new(history), etags: VecDeque::new(), reads: VecDeque::new() })
        };
        let inbox = || Inbox { answers: Mutex::new(Vec::new()), under_way: AtomicU64::new(u64::MAX) };
        Self {
            keys: histories.into_iter().map(book).collect(),
            inboxes: std::iter::repeat_with(inbox).take(readers).collect(),
            transactions: AtomicU64::new(0),
        }
    }

    pub(crate) fn keys(&self) -> std::ops::RangeInclusive<u32> {
        // A run has at most `plan::KEYS_MAX` keys.
        1..=self.keys.len() as u32
    }

    /// Does something with the books of a key; none if there is no such key.
    pub(crate) fn with<T>(&self, key: u32, act: impl FnOnce(&mut KeyBook) -> T) -> Option<T> {
        let book = self.keys.get((key as usize).checked_sub(1)?)?;
        Some(act(&mut lock(book)))
    }

    /// A number for a transaction; never 0.
    pub(crate) fn next_transaction(&self) -> u64 {
        self.transactions.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Notes what became of a state.
    pub(crate) fn settle(&self, key: u32, version: u64, fate: Fate, position: Option<u64>) {
        self.with(key, |book| book.judge.history.settle(version, fate, position));
    }

    /// Remembers which version an `ETag` belongs to.
    pub(crate) fn saw_etag(&self, key: u32, etag: &str, version: u64) {
        self.with(key, |book| {
            if book.etags.iter().any(|(known, _)| &**known == etag) {
                return;
            }
            if book.etags.len() == ETAGS_MAX {
                book.etags.pop_front();
            }
            book.etags.push_back((etag.into(), version));
        });
    }

    /// The version of an `ETag`, if it is remembered.
    pub(crate) fn version_of_etag(&self, key: u32, etag: &str) -> Option<u64> {
        self.with(key, |book| book.etags.iter().find(|(known, _)| &**known == etag).map(|(_, version)| *version))?
    }

    /// Notes a purge of one key, or of all.
    pub(crate) fn purge(&self, key: Option<u32>, purge: Purge) {
        let keys = key.map_or(self.keys(), |key| key..=key);
        for key in keys {
            self.with(key, |book| book.judge.purge(purge));
        }
    }

    /// A reader sends a request now.
    pub(crate) fn sending(&self, reader: u16, sent_ns: Ns) {
        if let Some(inbox) = self.inboxes.get(usize::from(reader)) {
            inbox.under_way.store(sent_ns, Ordering::Release);
        }
    }

    /// A reader hands in what its request came to, which may be nothing. Waits while the judge is far behind.
    pub(crate) fn hand_in(&self, reader: u16, answers: Vec<Observation>) {
        let Some(inbox) = self.inboxes.get(usize::from(reader)) else { return };
        lock(&inbox.answers).extend(answers);
        inbox.under_way.store(u64::MAX, Ordering::Release);
        while lock(&inbox.answers).len() > INBOX_MAX {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Takes all that was handed in.
    pub(crate) fn take(&self, into: &mut Vec<Observation>) {
        self.inboxes.iter().for_each(|inbox| into.append(&mut lock(&inbox.answers)));
    }

    /// No request that is still to be judged, but for those in `waiting`, was sent before this moment.
    pub(crate) fn horizon(&self, lag: Duration, waiting: &[Observation]) -> Ns {
        let now = Nanos::now().before(lag).0;
        let under_way = self.inboxes.iter().map(|inbox| inbox.under_way.load(Ordering::Acquire)).min();
        let oldest = waiting.iter().map(|observation| observation.sent_ns).min();
        now.min(under_way.unwrap_or(now)).min(oldest.unwrap_or(now))
    }
}
