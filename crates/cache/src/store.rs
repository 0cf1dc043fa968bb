//! The store: which records stay. Records that exist and records that do not are kept apart, so that asking for
//! missing ids can push out nothing but other missing ids.

use std::sync::Arc;

use foldhash::fast::FixedState;
use quick_cache::sync::Cache as Quick;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};

use crate::config::Config;
use crate::key::{CollectionId, Key};
use crate::record::{ENTRY_OVERHEAD_BYTES, Presence, Record, RecordKey};
use crate::stats::{CollectionStats, Removal};

/// Share of a shard for entries that proved to be used. Measured on the traces of `bench/hitratio`.
const HOT_SHARE: f64 = 0.85;
/// Evicted keys that are remembered, as a share of the entries expected. Measured likewise.
const GHOST_SHARE: f64 = 0.5;
/// A shard is not made smaller than this: a shard refuses what does not fit its hot share.
const SHARD_BYTES_MIN: u64 = 64 << 20;
/// Nor for fewer entries than this: small shards lose hits.
const SHARD_ENTRIES_MIN: u64 = 4096;
const SHARDS_MAX: u64 = 64;
/// Shards fill unevenly.
const FULL_SHARE: f64 = 0.95;

type Shelf = Quick<RecordKey, Record, Bytes, FixedState, Ledger>;

/// The entries. Safe to read from all threads; who writes holds the collection's desk (see `desk`).
pub(crate) struct Store {
    found: Shelf,
    missing: Shelf,
    stats: Arc<[CollectionStats]>,
}

impl Store {
    pub(crate) fn new(config: &Config, stats: Arc<[CollectionStats]>) -> Self {
        let missing_bytes = (config.capacity_bytes as f64 * config.negative_share.clamp(0.0, 0.1)) as u64;
        let hasher = FixedState::with_seed(config.seed);
        let shelf = |bytes: u64, entry_bytes: u64| {
            let entries = (bytes / entry_bytes.max(1)).max(1);
            let shards = (bytes / SHARD_BYTES_MIN).min(entries / SHARD_ENTRIES_MIN).clamp(1, SHARDS_MAX);
            // Powers of two below, and equal shares, for the library rounds both up.
            let shards = 1 << shards.ilog2();
            let bytes = bytes - bytes % shards;
            let options = OptionsBuilder::new()
                .hot_allocation(HOT_SHARE)
                .ghost_allocation(GHOST_SHARE)
                // An idle table is small: the policy grows with what it holds.
                .estimated_items_capacity(usize::try_from(entries).unwrap_or(usize::MAX))
                .weight_capacity(bytes)
                .shards(usize::try_from(shards).unwrap_or(1))
                .build();
            // Fails only when one of the two sizes is not given.
            #[allow(clippy::expect_used)]
            let options = options.expect("sizes are given");
            Shelf::with_options(options, Bytes, hasher.clone(), Ledger)
        };
        Self {
            found: shelf(config.capacity_bytes - missing_bytes, config.entry_bytes_estimate + ENTRY_OVERHEAD_BYTES),
            missing: shelf(missing_bytes, ENTRY_OVERHEAD_BYTES + 16),
            stats,
        }
    }

    /// The hit path: no lock of ours, no allocation; counts as a use.
    pub(crate) fn get(&self, key: &Key) -> Option<Record> {
        self.found.get(key).or_else(|| self.missing.get(key))
    }

    /// Looks without counting as a use.
    pub(crate) fn peek(&self, key: &Key) -> Option<Record> {
        self.found.peek(key).or_else(|| self.missing.peek(key))
    }

    /// Whether what comes pushes something out, or soon will.
    pub(crate) fn is_full(&self) -> bool {
        self.found.weight() as f64 >= FULL_SHARE * self.found.capacity() as f64
    }

    /// Puts the record in place of whatever the key had. An entry that fits no shard is dropped, and the old one too.
    pub(crate) fn insert(&self, key: &Key, record: &Record) {
        let (into, other) = match record.presence() {
            Presence::Found => (&self.found, &self.missing),
            Presence::Missing => (&self.missing, &self.found),
        };
        if let Some((_, old)) = other.remove(key) {
            self.stats_of(&old).removed(&old, Removal::Replaced);
        }
        self.stats_of(record).inserted(record);
        let mut evicted = Evicted::default();
        into.insert_with_lifecycle(RecordKey(record.clone()), record.clone(), &mut evicted);
        for old in evicted.0 {
            let replaced = old.key_bytes() == key.as_bytes();
            let too_large = replaced && old.era() == record.era() && old.read_at() == record.read_at();
            let cause = match (replaced, too_large) {
                (_, true) => Removal::TooLarge,
                (true, false) => Removal::Replaced,
                (false, _) => Removal::Capacity,
            };
            self.stats_of(&old).removed(&old, cause);
        }
    }

    /// Takes the key's entry out, whichever it is.
    pub(crate) fn remove(&self, key: &Key, cause: Removal) -> bool {
        let mut any = false;
        for shelf in [&self.found, &self.missing] {
            if let Some((_, old)) = shelf.remove(key) {
                self.stats_of(&old).removed(&old, cause);
                any = true;
            }
        }
        any
    }

    /// See [`crate::Cache::policy_bytes`].
    pub(crate) fn policy_bytes(&self) -> u64 {
        [&self.found, &self.missing].map(|shelf| shelf.memory_used().total() as u64).iter().sum()
    }

    fn stats_of(&self, record: &Record) -> &CollectionStats {
        let CollectionId(id) = record.collection();
        &self.stats[usize::from(id)]
    }
}

/// Weighs entries in bytes.
#[derive(Clone)]
struct Bytes;

impl Weighter<RecordKey, Record> for Bytes {
    fn weight(&self, _: &RecordKey, record: &Record) -> u64 {
        record.weight_bytes()
    }
}

/// Collects what an insert pushed out, so that it is counted and freed outside the shard's lock.
#[derive(Default)]
struct Evicted(Vec<Record>);

#[derive(Clone)]
struct Ledger;

impl Lifecycle<RecordKey, Record> for Ledger {
    type RequestState = Evicted;

    fn on_evict(&self, evicted: &mut Evicted, _: RecordKey, record: Record) {
        evicted.0.push(record);
    }
}

#[cfg(test)]
impl Store {
    /// Entries, missing ones among them, and bytes of each collection, counted from the shelves.
    pub(crate) fn recount(&self) -> std::collections::HashMap<CollectionId, [u64; 3]> {
        let mut counts: std::collections::HashMap<_, [u64; 3]> = std::collections::HashMap::new();
        for (shelf, missing) in [(&self.found, 0), (&self.missing, 1)] {
            for (_, record) in shelf.iter() {
                let [entries, negative, bytes] = counts.entry(record.collection()).or_default();
                assert_eq!(u64::from(record.presence() == Presence::Missing), missing);
                *entries += 1;
                *negative += missing;
                *bytes += record.weight_bytes();
            }
        }
        counts
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod isolation;
