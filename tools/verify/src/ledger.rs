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
use crate::record_schema::Content;
use crate::rules::KeyChecker;
use crate::shared_state::lock;

/// Responses of one reader that may wait for the checker; beyond that the reader waits.
pub(crate) const INBOX_MAX: usize = 20_000;
/// `ETag`s remembered per key.
const ETAGS_MAX: usize = 16;
/// Contents remembered per key, minutes of a key's changes. An older one makes no claim.
const CONTENTS_MAX: usize = 4096;
/// Checked responses per key kept for a counterexample.
pub(crate) const READS_KEPT: usize = 40;

/// Ledger of a run.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// Keys, and behind them values of the alias.
    entries: Vec<Mutex<KeyEntry>>,
    keys: u32,
    inboxes: Vec<Inbox>,
    transactions: AtomicU64,
}

/// A content of a record, and the state that had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownContent {
    fingerprint: u64,
    pub(crate) version: u64,
    /// Its value's number in the ledger and the version of the value's state.
    pub(crate) value: Option<(u32, u64)>,
}

/// Ledger entry of one key or value.
#[derive(Debug)]
pub(crate) struct KeyEntry {
    pub(crate) checker: KeyChecker,
    etags: VecDeque<(Box<str>, u64)>,
    contents: VecDeque<KnownContent>,
    /// Checked responses, newest last.
    pub(crate) reads: VecDeque<Observation>,
}

/// Result of the search for a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoundContent {
    /// A state had it.
    Known(KnownContent),
    /// An old state may have had it.
    Forgotten,
    /// No state had it: its parts did not exist together.
    Unknown,
}

/// Submissions of one reader.
#[derive(Debug)]
struct Inbox {
    responses: Mutex<Vec<Observation>>,
    /// Time at which the current request was sent; `u64::MAX` if there is none.
    under_way: AtomicU64,
}

impl Ledger {
    /// Creates the keys 1 to `keys.len()`, and behind them the values, with their first states.
    pub(crate) fn new(keys: Vec<History>, values: Vec<History>, readers: usize) -> Self {
        let entry = |checker| {
            Mutex::new(KeyEntry {
                checker,
                etags: VecDeque::new(),
                contents: VecDeque::new(),
                reads: VecDeque::new(),
            })
        };
        let inbox =
            || Inbox { responses: Mutex::new(Vec::new()), under_way: AtomicU64::new(u64::MAX) };
        Self {
            // A run has at most `plan::KEYS_MAX` keys.
            keys: keys.len() as u32,
            entries: keys
                .into_iter()
                .map(KeyChecker::new)
                .chain(values.into_iter().map(KeyChecker::of_value))
                .map(entry)
                .collect(),
            inboxes: std::iter::repeat_with(inbox).take(readers).collect(),
            transactions: AtomicU64::new(0),
        }
    }

    pub(crate) fn keys(&self) -> std::ops::RangeInclusive<u32> {
        1..=self.keys
    }

    /// Returns the keys and the values behind them.
    pub(crate) fn ids(&self) -> std::ops::RangeInclusive<u32> {
        // A key has at most `family::VALUES_PER_KEY` values.
        1..=self.entries.len() as u32
    }

    /// Accesses the entry of a key or value; `None` if there is none.
    pub(crate) fn with<T>(&self, id: u32, act: impl FnOnce(&mut KeyEntry) -> T) -> Option<T> {
        let entry = self.entries.get((id as usize).checked_sub(1)?)?;
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

    /// Remembers the content of a record's state, before it can be seen.
    pub(crate) fn staged(
        &self,
        key: u32,
        content: &Content,
        version: u64,
        value: Option<(u32, u64)>,
    ) {
        let fingerprint = content.fingerprint();
        self.with(key, |entry| {
            if entry.contents.len() == CONTENTS_MAX {
                entry.contents.pop_front();
            }
            entry.contents.push_back(KnownContent { fingerprint, version, value });
        });
    }

    /// Returns the state that had this content: the newest, because one that was rolled back may
    /// have been repeated.
    pub(crate) fn find(&self, key: u32, content: &Content) -> FoundContent {
        let fingerprint = content.fingerprint();
        let found = self.with(key, |entry| {
            let is_same = |known: &&KnownContent| known.fingerprint == fingerprint;
            match entry.contents.iter().rev().find(is_same) {
                Some(known) => FoundContent::Known(*known),
                // The newest part of a content is as old as its state, or older.
                None if entry.contents.len() == CONTENTS_MAX
                    && entry
                        .contents
                        .front()
                        .is_some_and(|oldest| content.newest() < oldest.version) =>
                {
                    FoundContent::Forgotten
                }
                None => FoundContent::Unknown,
            }
        });
        found.unwrap_or(FoundContent::Unknown)
    }

    /// Records a purge of one key, or of all and their values.
    pub(crate) fn purge(&self, purge: Purge) {
        let keys = purge.key.map_or(self.ids(), |key| key..=key);
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
