//! Store of the entries, in shards. Existing and missing records have separate capacities, so that
//! requests for missing ids can evict only other missing ids.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;

mod attached;
mod entry;
mod ghosts;
mod shard;
mod slab;
mod walk;

pub use self::attached::Attached;
pub(crate) use self::entry::Entry;
pub(crate) use self::shard::BATCH_MAX;
use self::shard::Inserted;
pub(crate) use self::shard::{KeyBytes, Shard, ShardCapacity};
pub use self::walk::Walk;
use crate::config::Config;
use crate::record::{ENTRY_OVERHEAD_BYTES, Presence, Record};
use crate::stats::{CollectionStats, Removal};
use crate::sync::RwLock;
use hotrow_types::key::{CollectionId, Key};

/// Least size of a shard: a shard refuses an entry larger than its hot share.
const SHARD_BYTES_MIN: u64 = 64 << 20;
/// Least number of entries of a shard: smaller shards lose hits.
const SHARD_ENTRIES_MIN: u64 = 4096;
const SHARDS_MAX: u64 = 64;
/// Most shards of which each is asked for its keys of a batch; else each key is looked up alone.
const SHARDS_SHARED_MAX: usize = 8;
/// Share at which the store counts as full, because shards fill unevenly.
const FULL_SHARE: f64 = 0.95;

/// The entries. All threads may read; writers hold the lock of the collection's `fetch_queue`.
pub(crate) struct Store {
    /// A power of two.
    shards: Box<[RwLock<Shard>]>,
    hasher: FixedState,
    stats: Arc<[CollectionStats]>,
}

impl Store {
    pub(crate) fn new(config: &Config, stats: Arc<[CollectionStats]>) -> Self {
        let ShardCapacity { found_bytes, .. } = capacity_of_shard(config, config.capacity_bytes, 1);
        let entries = found_bytes / (config.entry_bytes_estimate + ENTRY_OVERHEAD_BYTES).max(1);
        let shards =
            (found_bytes / SHARD_BYTES_MIN).min(entries / SHARD_ENTRIES_MIN).clamp(1, SHARDS_MAX);
        let shards: u64 = 1 << shards.ilog2();
        let hasher = FixedState::with_seed(config.seed);
        let capacity = capacity_of_shard(config, config.capacity_bytes, shards);
        let shard = |_| RwLock::new(Shard::new(capacity, hasher.clone()));
        Self { shards: (0..shards).map(shard).collect(), hasher, stats }
    }

    /// Returns the key's shard, and its hash: the high half selects the shard, the low half finds
    /// the entry in it.
    #[inline]
    fn shard_of(&self, key: &Key) -> (&RwLock<Shard>, u64) {
        let hash = self.hasher.hash_one(key);
        (&self.shards[self.index_of(hash)], hash)
    }

    fn index_of(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.shards.len() - 1)
    }

    /// Returns the entry and counts a use. The hit path: one read lock, no allocation.
    #[inline]
    pub(crate) fn get(&self, key: &Key) -> Option<Record> {
        let (shard, hash) = self.shard_of(key);
        shard.read().get(hash, key.as_bytes()).cloned()
    }

    /// Looks up at most [`BATCH_MAX`] keys with their hashes, and counts a use of each unless
    /// `peek`. Where shards are few, keys of one shard share a lock, which is held for some hundred
    /// nanoseconds.
    pub(crate) fn get_some(
        &self,
        keys: &[Key],
        hashes: &[u64],
        peek: bool,
        found: &mut [Option<Record>],
    ) {
        if self.shards.len() > SHARDS_SHARED_MAX {
            for (key, found) in keys.iter().zip(found) {
                *found = if peek { self.peek(key) } else { self.get(key) };
            }
            return;
        }
        let mut wanted = [(0, &[][..]); BATCH_MAX];
        let mut shard_of = [0; BATCH_MAX];
        for (i, (key, hash)) in keys.iter().zip(hashes).enumerate() {
            debug_assert_eq!(*hash, self.hasher.hash_one(key), "a hash of another key");
            wanted[i] = (*hash, key.as_bytes());
            shard_of[i] = self.index_of(*hash);
        }
        for (shard, lock) in self.shards.iter().enumerate() {
            let mut some = [0; BATCH_MAX];
            let mut count = 0;
            for (i, shard_of) in shard_of[..keys.len()].iter().enumerate() {
                // Each is written, and counts only if it is of the shard: without a branch.
                some[count] = i as u8;
                count += usize::from(*shard_of == shard);
            }
            if count > 0 {
                lock.read().get_some(&some[..count], &wanted, peek, found);
            }
        }
    }

    /// Returns the entry without counting a use.
    pub(crate) fn peek(&self, key: &Key) -> Option<Record> {
        let (shard, hash) = self.shard_of(key);
        shard.read().peek(hash, key.as_bytes()).cloned()
    }

    /// Returns the entry with the key of `record`, without counting a use.
    pub(crate) fn peek_same_key(&self, record: &Record) -> Option<Record> {
        let (shard, hash) = self.shard_of_record(record);
        shard.read().peek(hash, record.key_bytes()).cloned()
    }

    /// Puts `new` in the place of `old`, a record of the same key and kind, if that is still the
    /// entry.
    pub(crate) fn exchange(&self, old: &Record, new: Record) -> Attached {
        let stats = self.stats_of(old);
        let new_bytes = new.weight_bytes();
        let mut evicted = Vec::new();
        let (shard, hash) = self.shard_of_record(old);
        // Before the entry can be evicted with its new weight.
        stats.bytes.add(new_bytes);
        let attached = shard.write().exchange(hash, old, new, &mut evicted);
        let gone_bytes = if attached == Attached::Stored { old.weight_bytes() } else { new_bytes };
        stats.bytes.sub(gone_bytes);
        for gone in evicted {
            self.stats_of(&gone).removed(&gone, Removal::Capacity);
        }
        attached
    }

    fn shard_of_record(&self, record: &Record) -> (&RwLock<Shard>, u64) {
        let hash = self.hasher.hash_one(KeyBytes(record.key_bytes()));
        (&self.shards[(hash >> 32) as usize & (self.shards.len() - 1)], hash)
    }

    /// Returns the weight and the capacity of all entries of one kind, in bytes.
    fn fill(&self, presence: Presence) -> (u64, u64) {
        self.shards.iter().fold((0, 0), |(weight, capacity), shard| {
            let shard = shard.read();
            let region = shard.region(presence);
            (weight + region.weight_bytes(), capacity + region.capacity_bytes())
        })
    }

    /// Returns whether an insertion evicts an entry, or soon will.
    pub(crate) fn is_full(&self) -> bool {
        let (weight, capacity) = self.fill(Presence::Found);
        weight as f64 >= FULL_SHARE * capacity as f64
    }

    /// Returns the capacity in force, in bytes. It is above the one that was set last while
    /// [`Store::step_to_capacity`] has more to do.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        [Presence::Found, Presence::Missing].map(|presence| self.fill(presence).1).iter().sum()
    }

    /// Takes one step towards another capacity: one shard's, with a bounded number of evictions
    /// under its lock. Returns whether more steps are needed.
    pub(crate) fn step_to_capacity(&self, config: &Config, capacity_bytes: u64) -> bool {
        let capacity = capacity_of_shard(config, capacity_bytes, self.shards.len() as u64);
        let Some(shard) = self.shards.iter().find(|shard| !shard.read().is_at(capacity)) else {
            return false;
        };
        let mut evicted = Vec::new();
        shard.write().step_to(capacity, &mut evicted);
        // Counted and freed outside the shard's lock.
        for old in evicted {
            self.stats_of(&old).removed(&old, Removal::Capacity);
        }
        true
    }

    /// Stores the record in place of the key's entry. An entry that fits no shard is dropped, and
    /// the old one too.
    pub(crate) fn insert(&self, key: &Key, record: &Record) {
        self.stats_of(record).inserted(record);
        // Counted and freed outside the shard's lock.
        let mut replaced = None;
        let mut evicted = Vec::new();
        let (shard, hash) = self.shard_of(key);
        let inserted = shard.write().insert(hash, record.clone(), &mut replaced, &mut evicted);
        if let Some(old) = replaced {
            self.stats_of(&old).removed(&old, Removal::Replaced);
        }
        if inserted == Inserted::TooLarge {
            self.stats_of(record).removed(record, Removal::TooLarge);
        }
        for old in evicted {
            self.stats_of(&old).removed(&old, Removal::Capacity);
        }
    }

    /// Removes the key's entry.
    pub(crate) fn remove(&self, key: &Key, cause: Removal) -> bool {
        let (shard, hash) = self.shard_of(key);
        let removed = shard.write().remove(hash, key.as_bytes());
        if let Some(old) = &removed {
            self.stats_of(old).removed(old, cause);
        }
        removed.is_some()
    }

    /// See [`crate::Cache::policy_bytes`].
    pub(crate) fn policy_bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.read().memory_bytes() as u64).sum()
    }

    fn stats_of(&self, record: &Record) -> &CollectionStats {
        let CollectionId(id) = record.collection();
        &self.stats[usize::from(id)]
    }
}

fn capacity_of_shard(config: &Config, capacity_bytes: u64, shards: u64) -> ShardCapacity {
    ShardCapacity::of(capacity_bytes, config.negative_share, shards)
}

#[cfg(any(test, feature = "failpoints"))]
impl Store {
    /// Counts entries, negative entries and bytes of each collection from the shards.
    pub(crate) fn recount(&self) -> std::collections::HashMap<CollectionId, [u64; 3]> {
        let mut counts: std::collections::HashMap<_, [u64; 3]> = std::collections::HashMap::new();
        for shard in &self.shards {
            for record in shard.read().records() {
                let [entries, negative, bytes] = counts.entry(record.collection()).or_default();
                *entries += 1;
                *negative += u64::from(record.presence() == Presence::Missing);
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
