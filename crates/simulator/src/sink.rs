//! Sink: the cache's side of the feed, with what the oracle needs to know of each call.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hotrow_cache::Cache;
#[cfg(feature = "failpoints")]
use hotrow_cache::Safeguard;
use hotrow_measure::clock::Nanos;
use hotrow_source::looks::Looks;
use hotrow_source::{Change, FlushCause, LossCause, ReadFailure, Sink};
use hotrow_types::key::{CollectionId, Key, KeyPart, KeySchema, KeyType};
use hotrow_types::source::SourceId;
use hotrow_types::version::{ChangeId, Position, Version};
use parking_lot::Mutex;

use crate::database::COLLECTIONS;

/// All keys of a run. The first are those of the rows, in their order; the others are second
/// spellings of the keys of the last collection's rows.
#[derive(Debug)]
pub(crate) struct Keys {
    keys: Vec<Key>,
    numbers: HashMap<Key, usize, FixedState>,
    rows: usize,
    ids: usize,
}

impl Keys {
    pub(crate) fn new(ids: usize, has_aliases: bool) -> Self {
        let mut keys = Vec::new();
        for collection in (0..COLLECTIONS).map(CollectionId) {
            keys.extend((0..ids).map(|id| key(collection, id as i64)));
        }
        let rows = keys.len();
        if has_aliases {
            keys.extend((0..ids).map(|id| key(CollectionId(COLLECTIONS - 1), 1_000 + id as i64)));
        }
        let mut numbers = HashMap::with_hasher(FixedState::with_seed(1));
        numbers.extend(keys.iter().cloned().zip(0..));
        Self { keys, numbers, rows, ids }
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn get(&self, number: usize) -> &Key {
        &self.keys[number]
    }

    pub(crate) fn number(&self, key: &Key) -> usize {
        self.numbers[key]
    }

    pub(crate) fn is_alias(&self, number: usize) -> bool {
        number >= self.rows
    }

    /// Returns the row that the key names.
    pub(crate) fn row(&self, number: usize) -> usize {
        if self.is_alias(number) { number - self.ids } else { number }
    }
}

pub(crate) fn key(collection: CollectionId, id: i64) -> Key {
    let schema = KeySchema::new(collection, vec![KeyType::Integer]);
    #[allow(clippy::expect_used)]
    schema.key(&[KeyPart::Integer(id)]).expect("an integer is a key")
}

/// The sink of one instance.
pub(crate) struct SimulatedSink {
    cache: Arc<Cache<ReadFailure>>,
    keys: Arc<Keys>,
    calls: Mutex<Calls>,
}

/// Reports of the feed to one instance.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls {
    /// Set by the world before each event.
    pub(crate) now: Nanos,
    /// By key: last change or purge.
    pub(crate) changed: Vec<Nanos>,
    /// By collection: last flush.
    pub(crate) flushed: [Nanos; COLLECTIONS as usize],
    /// Last loss or start.
    pub(crate) lost: Nanos,
    /// Collections with hot records to read again.
    pub(crate) leads: Vec<CollectionId>,
    /// Whether the feed's position moved.
    pub(crate) has_moved: bool,
    pub(crate) delivered: u64,
    pub(crate) losses: u64,
    pub(crate) starts: u64,
    pub(crate) gaps: u64,
}

impl SimulatedSink {
    pub(crate) fn new(cache: Arc<Cache<ReadFailure>>, keys: Arc<Keys>) -> Self {
        let calls = Calls { changed: vec![Nanos::ZERO; keys.len()], ..Calls::default() };
        Self { cache, keys, calls: Mutex::new(calls) }
    }

    pub(crate) fn with<T>(&self, access: impl FnOnce(&mut Calls) -> T) -> T {
        access(&mut self.calls.lock())
    }
}

impl Sink for SimulatedSink {
    fn changes(&self, changes: &[Change]) {
        let mut calls = self.calls.lock();
        for Change { key, mark } in changes {
            if self.cache.invalidate(key, *mark) {
                calls.leads.push(key.collection());
            }
            let now = calls.now;
            calls.changed[self.keys.number(key)] = now;
        }
        calls.delivered += changes.len() as u64;
    }

    fn flush(&self, collection: CollectionId, _: FlushCause, mark: Option<ChangeId>) {
        self.cache.flush(collection, mark);
        let mut calls = self.calls.lock();
        self.cache.release_standbys_after(collection, calls.now);
        calls.flushed[usize::from(collection.0)] = calls.now;
    }

    fn open_gap(&self, collection: CollectionId, _: &str) {
        self.cache.open_gap(collection);
        let mut calls = self.calls.lock();
        calls.gaps += 1;
        calls.flushed[usize::from(collection.0)] = calls.now;
    }

    fn close_gap(&self, collection: CollectionId) {
        self.cache.close_gap(collection);
        let mut calls = self.calls.lock();
        self.cache.release_standbys_after(collection, calls.now);
        calls.flushed[usize::from(collection.0)] = calls.now;
    }

    fn loss(&self, _: LossCause, _: &str) {
        self.cache.mark_gap(SourceId::FIRST, None);
        let mut calls = self.calls.lock();
        calls.lost = calls.now;
        calls.losses += 1;
    }

    fn started(&self, position: Option<Position>) {
        self.cache.mark_gap(SourceId::FIRST, position);
        let mut calls = self.calls.lock();
        self.cache.release_all_standbys_after(SourceId::FIRST, calls.now);
        calls.lost = calls.now;
        calls.starts += 1;
    }

    fn advance(&self, probe_sent_at: Nanos, position: Option<Position>, visible: Option<&Version>) {
        let mut calls = self.calls.lock();
        #[cfg(feature = "failpoints")]
        let probe_sent_at =
            if self.cache.has(Safeguard::Probe) { probe_sent_at } else { calls.now };
        calls.has_moved |= self.cache.applied(SourceId::FIRST) != position;
        self.cache.advance(SourceId::FIRST, probe_sent_at, position);
        if let Some(version) = visible {
            self.cache.advance_visibility(SourceId::FIRST, version);
        }
    }

    fn looks(&self) -> Option<&Looks> {
        None
    }
}
