//! Change of a shard's capacity while it serves.
//!
//! A larger capacity holds at once. Towards a smaller one the shard goes in steps: each evicts a
//! bounded number of entries under the lock, and leaves the capacity at what is still stored. So
//! the weight never exceeds the capacity in force, and an insertion between two steps evicts for
//! itself alone.

use super::{Evictor, PASSES_PER_INSERT_MAX, Region, Shard};
use crate::store::Entry;
use crate::store::slab::NONE;

/// Entries evicted by one step, for each kind.
pub(in crate::store) const EVICTED_PER_STEP_MAX: usize = 128;
/// Remembered keys forgotten by one step, for each kind.
const FORGOTTEN_PER_STEP_MAX: usize = 1024;

/// Capacity of each kind of entries, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShardCapacity {
    pub(in crate::store) found_bytes: u64,
    pub(in crate::store) missing_bytes: u64,
}

impl ShardCapacity {
    /// Returns the part of a capacity that one of `shards` has.
    pub(crate) fn of(capacity_bytes: u64, negative_share: f64, shards: u64) -> Self {
        let missing_bytes = (capacity_bytes as f64 * negative_share.clamp(0.0, 0.1)) as u64;
        Self {
            found_bytes: (capacity_bytes - missing_bytes) / shards,
            missing_bytes: missing_bytes / shards,
        }
    }
}

impl Region {
    fn is_at(&self, capacity_bytes: u64) -> bool {
        self.capacity_bytes == capacity_bytes
            && self.hot_bytes_max == Self::hot_bytes(capacity_bytes)
            && self.ghosts.len() <= self.ghosts_max()
    }

    /// Sets the capacity, or as near to it as the entries permit.
    fn set_capacity(&mut self, capacity_bytes: u64) {
        self.capacity_bytes = capacity_bytes.max(self.weight_bytes());
        let hot_bytes = Self::hot_bytes(capacity_bytes);
        self.hot_bytes_max = hot_bytes.max(self.hot.weight_bytes);
    }
}

impl<R: Entry> Evictor<'_, R> {
    fn step_to(&mut self, capacity_bytes: u64) {
        let hot_bytes = Region::hot_bytes(capacity_bytes);
        let evicted_max = self.evicted.len() + EVICTED_PER_STEP_MAX;
        self.region.set_capacity(capacity_bytes);
        while self.evicted.len() < evicted_max {
            let advanced = if self.region.hot.weight_bytes > hot_bytes {
                self.advance_hot()
            } else if self.region.weight_bytes() <= capacity_bytes {
                break;
            } else if self.region.cold.head == NONE {
                self.advance_hot()
            } else {
                self.advance_cold()
            };
            if !advanced {
                break;
            }
            // A promotion evicts hot entries beyond this bound: not more than it adds.
            self.region.set_capacity(capacity_bytes);
        }
        let ghosts_max = self.region.ghosts_max();
        self.region.ghosts.shrink(ghosts_max, FORGOTTEN_PER_STEP_MAX);
    }
}

impl<R: Entry + Clone> Shard<R> {
    /// Returns whether the capacity has been reached.
    pub(in crate::store) fn is_at(&self, capacity: ShardCapacity) -> bool {
        self.found.is_at(capacity.found_bytes) && self.missing.is_at(capacity.missing_bytes)
    }

    /// Takes one step towards a capacity. Appends what it evicts to `evicted`.
    pub(in crate::store) fn step_to(&mut self, capacity: ShardCapacity, evicted: &mut Vec<R>) {
        let Self { slab, found, missing, hasher } = self;
        let regions = [(found, capacity.found_bytes), (missing, capacity.missing_bytes)];
        for (region, capacity_bytes) in regions {
            let passes_left = PASSES_PER_INSERT_MAX;
            let (slab, hasher) = (&mut *slab, &*hasher);
            Evictor { slab, region, hasher, evicted, passes_left }.step_to(capacity_bytes);
        }
    }
}
