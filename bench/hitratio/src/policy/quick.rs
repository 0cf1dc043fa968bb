//! Raw `quick_cache`, get and insert, without a guard.

use std::num::NonZeroUsize;

use ahash::RandomState;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, UnitWeighter, Weighter};

use hotrow_replay::policy::Policy;

/// Settings of `quick_cache` that affect its hit ratio.
#[derive(Clone, Copy, Debug)]
pub struct QuickSettings {
    /// Share of the capacity for hot entries, 0 to 1.
    pub hot: f64,
    /// Remembered evicted keys over `estimate_entries`, 0 to 1.
    pub ghost: f64,
    /// Shards; `None`: the default of four per core. The library lowers it until a shard holds at
    /// least 32 entries.
    pub shards: Option<NonZeroUsize>,
    /// `estimated_items_capacity` over the real capacity.
    pub estimate: f64,
}

/// `quick_cache::sync::Cache` with fixed hash seeds, so that a run repeats exactly.
pub struct Quick(Cache<u32, u32, UnitWeighter, RandomState, DefaultLifecycle<u32, u32>>);

impl Quick {
    /// Creates a cache of `capacity` entries.
    pub fn new(capacity: usize, settings: QuickSettings) -> Self {
        let mut options = OptionsBuilder::new();
        options
            .estimated_items_capacity((capacity as f64 * settings.estimate).round() as usize)
            .weight_capacity(capacity as u64)
            .hot_allocation(settings.hot)
            .ghost_allocation(settings.ghost);
        if let Some(shards) = settings.shards {
            options.shards(shards.get());
        }
        #[expect(
            clippy::unwrap_used,
            reason = "build() fails only without the two capacities, which are set above"
        )]
        let options = options.build().unwrap();
        let hasher = RandomState::with_seeds(1, 2, 3, 4);
        Self(Cache::with_options(options, UnitWeighter, hasher, DefaultLifecycle::default()))
    }
}

impl Policy for Quick {
    fn get_or_insert(&mut self, key: u32) -> bool {
        if self.0.get(&key).is_some() {
            return true;
        }
        self.0.insert(key, key);
        false
    }

    fn entries(&self) -> usize {
        self.0.len()
    }
}

/// Weighs an entry by its value.
#[derive(Clone)]
struct ByValue;

impl Weighter<u32, u64> for ByValue {
    fn weight(&self, _: &u32, weight: &u64) -> u64 {
        *weight
    }
}

/// `quick_cache` under a byte bound, with the settings that the product had before its own store.
pub struct QuickBytes(Cache<u32, u64, ByValue, RandomState, DefaultLifecycle<u32, u64>>);

impl QuickBytes {
    /// Creates a cache of `capacity_bytes` for entries estimated at `estimate_bytes`.
    pub fn new(capacity_bytes: u64, estimate_bytes: u64) -> Self {
        #[expect(
            clippy::unwrap_used,
            reason = "build() fails only without the two capacities, which are set above"
        )]
        let options = OptionsBuilder::new()
            .estimated_items_capacity((capacity_bytes / estimate_bytes.max(1)).max(1) as usize)
            .weight_capacity(capacity_bytes)
            .hot_allocation(0.85)
            .ghost_allocation(0.5)
            .shards(1)
            .build()
            .unwrap();
        let hasher = RandomState::with_seeds(1, 2, 3, 4);
        Self(Cache::with_options(options, ByValue, hasher, DefaultLifecycle::default()))
    }

    /// Looks up `key` and inserts `weight` bytes after a miss. Returns true for a hit.
    pub fn get_or_insert(&self, key: u32, weight: u64) -> bool {
        if self.0.get(&key).is_some() {
            return true;
        }
        self.0.insert(key, weight);
        false
    }
}
