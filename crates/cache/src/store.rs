//! Store of the entries. Existing and missing records are separate, so that requests for missing
//! ids can evict only other missing ids.

use std::sync::Arc;

use foldhash::fast::FixedState;
use quick_cache::sync::Cache as Quick;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};

use crate::config::Config;
use crate::record::{ENTRY_OVERHEAD_BYTES, Presence, Record, RecordKey};
use crate::stats::{CollectionStats, Removal};
use hotrow_types::key::{CollectionId, Key};

/// Share of a shard for entries with a second use. Measured on the traces of `bench/hitratio`.
const HOT_SHARE: f64 = 0.85;
/// Remembered evicted keys, as a share of the expected entries. Measured likewise.
const GHOST_SHARE: f64 = 0.5;
/// Least size of a shard: a shard refuses an entry larger than its hot share.
const SHARD_BYTES_MIN: u64 = 64 << 20;
/// Least number of entries of a shard: smaller shards lose hits.
const SHARD_ENTRIES_MIN: u64 = 4096;
const SHARDS_MAX: u64 = 64;
/// Share at which the store counts as full, because shards fill unevenly.
const FULL_SHARE: f64 = 0.95;

type Shard = Quick<RecordKey, Record, Bytes, FixedState, Ledger>;

/// The entries. All threads may read; writers hold the lock of the collection's `fetch_queue`.
pub(crate) struct Store {
    found: Shard,
    missing: Shard,
    stats: Arc<[CollectionStats]>,
}

impl Store {
    pub(crate) fn new(config: &Config, stats: Arc<[CollectionStats]>) -> Self {
        let missing_bytes =
            (config.capacity_bytes as f64 * config.negative_share.clamp(0.0, 0.1)) as u64;
        let hasher = FixedState::with_seed(config.seed);
        let shard = |bytes: u64, entry_bytes: u64| {
            let entries = (bytes / entry_bytes.max(1)).max(1);
            let shards =
                (bytes / SHARD_BYTES_MIN).min(entries / SHARD_ENTRIES_MIN).clamp(1, SHARDS_MAX);
            // A power of two, and equal shares, because the library rounds both up.
            let shards = 1 << shards.ilog2();
            let bytes = bytes - bytes % shards;
            let options = OptionsBuilder::new()
                .hot_allocation(HOT_SHARE)
                .ghost_allocation(GHOST_SHARE)
                // Small while idle: the policy grows with its content.
                .estimated_items_capacity(usize::try_from(entries).unwrap_or(usize::MAX))
                .weight_capacity(bytes)
                .shards(usize::try_from(shards).unwrap_or(1))
                .build();
            // Fails only when one of the two sizes is missing.
            #[allow(clippy::expect_used)]
            let options = options.expect("sizes are given");
            Shard::with_options(options, Bytes, hasher.clone(), Ledger)
        };
        Self {
            found: shard(
                config.capacity_bytes - missing_bytes,
                config.entry_bytes_estimate + ENTRY_OVERHEAD_BYTES,
            ),
            missing: shard(missing_bytes, ENTRY_OVERHEAD_BYTES + 16),
            stats,
        }
    }

    /// Returns the entry and counts a use. The hit path: no lock of ours, no allocation.
    pub(crate) fn get(&self, key: &Key) -> Option<Record> {
        self.found.get(key).or_else(|| self.missing.get(key))
    }

    /// Returns the entry without counting a use.
    pub(crate) fn peek(&self, key: &Key) -> Option<Record> {
        self.found.peek(key).or_else(|| self.missing.peek(key))
    }

    /// Returns whether an insertion evicts an entry, or soon will.
    pub(crate) fn is_full(&self) -> bool {
        self.found.weight() as f64 >= FULL_SHARE * self.found.capacity() as f64
    }

    /// Stores the record in place of the key's entry. An entry that fits no shard is dropped, and
    /// the old one too.
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
            let too_large =
                replaced && old.epoch() == record.epoch() && old.read_at() == record.read_at();
            let cause = match (replaced, too_large) {
                (_, true) => Removal::TooLarge,
                (true, false) => Removal::Replaced,
                (false, _) => Removal::Capacity,
            };
            self.stats_of(&old).removed(&old, cause);
        }
    }

    /// Removes the key's entry.
    pub(crate) fn remove(&self, key: &Key, cause: Removal) -> bool {
        let mut any = false;
        for shard in [&self.found, &self.missing] {
            if let Some((_, old)) = shard.remove(key) {
                self.stats_of(&old).removed(&old, cause);
                any = true;
            }
        }
        any
    }

    /// See [`crate::Cache::policy_bytes`].
    pub(crate) fn policy_bytes(&self) -> u64 {
        [&self.found, &self.missing].map(|shard| shard.memory_used().total() as u64).iter().sum()
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

/// Collects the evicted entries of an insertion, so that they are counted and freed outside the
/// shard's lock.
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
    /// Counts entries, negative entries and bytes of each collection from the shards.
    pub(crate) fn recount(&self) -> std::collections::HashMap<CollectionId, [u64; 3]> {
        let mut counts: std::collections::HashMap<_, [u64; 3]> = std::collections::HashMap::new();
        for (shard, missing) in [(&self.found, 0), (&self.missing, 1)] {
            for (_, record) in shard.iter() {
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
