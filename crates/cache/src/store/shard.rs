//! One shard of the store: its entries, and the policy that evicts them.
//!
//! The policy is CLOCK-Pro with three changes: its size for hot entries is fixed, uses are counted
//! up to two, and small entries are passed over. Found and missing records share the slab and
//! the hash table; each kind has a [`Region`] with rings, capacity and remembered keys of its own,
//! so that an insertion evicts only entries of its own kind.
//!
//! * A new entry is *hot* while hot entries have room, or if its key is remembered; else *cold*.
//! * A full region looks at the head of the cold ring. A used entry becomes hot, and hot entries
//!   beyond their share are evicted. An unused one is evicted and its key remembered.
//! * In the hot ring a used entry loses a use and goes to the tail; an unused one is evicted.
//! * An unused entry of a `1/n` of the mean weight goes to the tail `n - 1` times first, because
//!   the room that it takes costs little (GDSF has the same idea). A use restores these passes.
//!   Where evicted small entries are read again less often than others, `n` is smaller, where more
//!   often, larger.

mod resize;

use std::hash::BuildHasher;

use foldhash::fast::FixedState;

#[cfg(all(test, not(feature = "shuttle")))]
pub(super) use self::resize::EVICTED_PER_STEP_MAX;
pub(crate) use self::resize::ShardCapacity;
use super::attached::Attached;
use super::entry::Entry;
use super::ghosts::Ghosts;
use super::slab::{NONE, PASSES_MAX, Ring, Slab};
use crate::record::{ENTRY_OVERHEAD_BYTES, Presence, Record};

/// Share of a region for hot entries. Measured on the traces of `bench/hitratio`.
const HOT_SHARE: f64 = 0.85;
/// Remembered evicted keys, as a share of the entries that fit. Measured likewise.
const GHOST_SHARE: f64 = 0.5;
/// Entries for which a region keeps room beside the hot ones, but at most half of it: with fewer, a
/// new entry is gone before it can be used again. Measured likewise, in regions of 20 and 40.
const COLD_ENTRIES: u64 = 16;
/// Evictions after which half of them are forgotten.
const EVICTIONS_MAX: u32 = 4096;
/// Largest factor on the passes of small entries where they return more often than others.
const USEFULNESS_MAX: f64 = 4.0;
/// Most keys that are looked up under one lock.
pub(crate) const BATCH_MAX: usize = 32;
/// Passes granted by one insertion; then the next unused entry is evicted whatever its size.
pub(super) const PASSES_PER_INSERT_MAX: u32 = 64;

/// Entries of one kind.
#[derive(Debug)]
pub(crate) struct Region {
    hot: Ring,
    cold: Ring,
    ghosts: Ghosts,
    capacity_bytes: u64,
    hot_bytes_max: u64,
    /// Of all entries.
    all: Returns,
    /// Of those below the mean weight.
    small: Returns,
}

/// How many evicted entries were stored again while their keys were remembered: they were evicted
/// too early.
#[derive(Debug)]
struct Returns {
    evictions: u32,
    returned: u32,
}

impl Returns {
    /// As if a fourth of a few entries had returned.
    const EMPTY: Self = Self { evictions: 64, returned: 16 };

    fn note_eviction(&mut self) {
        if self.evictions >= EVICTIONS_MAX {
            self.evictions /= 2;
            self.returned /= 2;
        }
        self.evictions += 1;
    }

    fn share(&self) -> f64 {
        f64::from(self.returned.max(1)) / f64::from(self.evictions)
    }
}

/// Result of [`Shard::insert`].
#[derive(Debug, PartialEq)]
pub(crate) enum Inserted {
    Stored,
    /// The record fits no region: it was dropped, and the old one too.
    TooLarge,
}

/// The shard; its lock is in [`super::Store`].
#[derive(Debug)]
pub(crate) struct Shard<R = Record> {
    slab: Slab<R>,
    found: Region,
    missing: Region,
    hasher: FixedState,
}

impl Region {
    fn new(capacity_bytes: u64) -> Self {
        Self {
            hot: Ring::EMPTY,
            cold: Ring::EMPTY,
            ghosts: Ghosts::default(),
            capacity_bytes,
            hot_bytes_max: Self::hot_bytes(capacity_bytes),
            all: Returns::EMPTY,
            small: Returns::EMPTY,
        }
    }

    /// Returns the share of the capacity for hot entries.
    fn hot_bytes(capacity_bytes: u64) -> u64 {
        let hot = (capacity_bytes as f64 * HOT_SHARE) as u64;
        // At least 1 byte, or else a small capacity would reject everything.
        hot.clamp(capacity_bytes.min(1), capacity_bytes)
    }

    /// Returns the room for hot entries of the weight that entries turned out to have.
    fn hot_bytes_now(&self) -> u64 {
        let cold_bytes = COLD_ENTRIES.saturating_mul(self.mean_bytes());
        self.hot_bytes_max.min(self.capacity_bytes - cold_bytes.min(self.capacity_bytes / 2))
    }

    pub(crate) fn weight_bytes(&self) -> u64 {
        self.hot.weight_bytes + self.cold.weight_bytes
    }

    pub(crate) fn entries(&self) -> u32 {
        self.hot.entries + self.cold.entries
    }

    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// Returns the mean weight of the entries, at least 1.
    fn mean_bytes(&self) -> u64 {
        let entries = u64::from(self.hot.entries) + u64::from(self.cold.entries);
        self.weight_bytes().checked_div(entries).unwrap_or(0).max(1)
    }

    /// Returns how many keys to remember, by the weight that entries turned out to have.
    fn ghosts_max(&self) -> usize {
        // An empty region has no mean; no entry is smaller than this.
        let fitting = self.capacity_bytes / self.mean_bytes().max(ENTRY_OVERHEAD_BYTES);
        usize::try_from((fitting as f64 * GHOST_SHARE) as u64).unwrap_or(usize::MAX)
    }

    /// Returns how often an entry is passed over without a use.
    fn passes(&self, weight_bytes: u64) -> u32 {
        let mean_bytes = self.mean_bytes();
        if weight_bytes >= mean_bytes {
            return 0;
        }
        // By the square, because what returns is only what the passes of before have let go: the
        // ratio itself understates the difference. Measured likewise.
        let ratio = self.small.share() / self.all.share();
        let usefulness = (ratio * ratio).min(USEFULNESS_MAX);
        let worth = usefulness * mean_bytes as f64 / weight_bytes.max(1) as f64;
        (worth.round() as u32).saturating_sub(1).min(PASSES_MAX)
    }

    /// Returns the counts that an entry of this weight belongs to.
    fn returns_of(&mut self, weight_bytes: u64) -> impl Iterator<Item = &mut Returns> {
        let is_small = weight_bytes < self.mean_bytes();
        [Some(&mut self.all), is_small.then_some(&mut self.small)].into_iter().flatten()
    }

    fn ring_of(&mut self, hot: bool) -> &mut Ring {
        if hot { &mut self.hot } else { &mut self.cold }
    }
}

/// One insertion's work on a region: what it evicts, and the passes that it may still grant.
struct Evictor<'a, R> {
    slab: &'a mut Slab<R>,
    region: &'a mut Region,
    hasher: &'a FixedState,
    evicted: &'a mut Vec<R>,
    passes_left: u32,
}

impl<R: Entry> Evictor<'_, R> {
    /// Evicts until `weight_bytes` more would fit.
    fn make_room(&mut self, weight_bytes: u64) {
        while self.region.weight_bytes() + weight_bytes > self.region.capacity_bytes {
            let advanced = if self.region.cold.head == NONE {
                self.advance_hot()
            } else {
                self.advance_cold()
            };
            if !advanced {
                return;
            }
        }
    }

    /// Promotes or evicts one cold entry. `false`: there is none.
    fn advance_cold(&mut self) -> bool {
        loop {
            let at = self.region.cold.head;
            let Some(record) = self.slab.record(at) else { return false };
            let weight_bytes = record.weight_bytes();
            if self.slab.take_use(at) {
                self.slab.unlink(&mut self.region.cold, at, weight_bytes);
                self.slab.set_hot(at);
                self.slab.link(&mut self.region.hot, at, weight_bytes);
                while self.region.hot.weight_bytes > self.region.hot_bytes_now()
                    && self.advance_hot()
                {}
                return true;
            }
            if self.take_pass(at, weight_bytes) {
                self.slab.rotate(&mut self.region.cold);
                continue;
            }
            let hash = self.hasher.hash_one(KeyBytes(record_key(self.slab, at)));
            // Before the eviction: the mean of the full region.
            self.region.returns_of(weight_bytes).for_each(Returns::note_eviction);
            let ghosts_max = self.region.ghosts_max();
            self.slab.unlink(&mut self.region.cold, at, weight_bytes);
            self.evicted.extend(self.slab.remove(at));
            self.region.ghosts.push(hash as u32, ghosts_max);
            return true;
        }
    }

    /// Evicts one hot entry. `false`: there is none.
    fn advance_hot(&mut self) -> bool {
        loop {
            let at = self.region.hot.head;
            let Some(record) = self.slab.record(at) else { return false };
            let weight_bytes = record.weight_bytes();
            if self.slab.take_use(at) || self.take_pass(at, weight_bytes) {
                self.slab.rotate(&mut self.region.hot);
                continue;
            }
            self.slab.unlink(&mut self.region.hot, at, weight_bytes);
            self.evicted.extend(self.slab.remove(at));
            return true;
        }
    }

    fn take_pass(&mut self, at: u32, weight_bytes: u64) -> bool {
        let granted = self.region.passes(weight_bytes);
        let passes = self.passes_left > 0 && self.slab.take_pass(at, granted);
        self.passes_left -= u32::from(passes);
        passes
    }
}

fn record_key<R: Entry>(slab: &Slab<R>, at: u32) -> &[u8] {
    slab.record(at).map_or(&[], R::key_bytes)
}

/// Hashes as [`hotrow_types::key::Key`] does.
pub(crate) struct KeyBytes<'a>(pub(crate) &'a [u8]);

impl std::hash::Hash for KeyBytes<'_> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write(self.0);
    }
}

impl<R: Entry + Clone> Shard<R> {
    pub(crate) fn new(capacity: ShardCapacity, hasher: FixedState) -> Self {
        Self {
            slab: Slab::new(),
            found: Region::new(capacity.found_bytes),
            missing: Region::new(capacity.missing_bytes),
            hasher,
        }
    }

    /// Returns the entry and counts a use.
    #[inline]
    pub(crate) fn get(&self, hash: u64, key: &[u8]) -> Option<&R> {
        let at = self.slab.find(hash, key)?;
        self.slab.note_use(at);
        self.slab.record(at)
    }

    /// Looks up the keys of a batch that this shard holds, and counts a use of each unless `peek`.
    /// First all slots are found, then all records are looked at, and then all are cloned: looks
    /// at memory that do not wait for each other, with the locked instructions behind them.
    pub(super) fn get_some(
        &self,
        some: &[u8],
        wanted: &[(u64, &[u8])],
        peek: bool,
        found: &mut [Option<R>],
    ) {
        let mut slots = [NONE; BATCH_MAX];
        for i in some {
            slots[usize::from(*i)] = self.slab.find_tag(wanted[usize::from(*i)].0);
        }
        for i in some {
            let (slot, (hash, key)) = (&mut slots[usize::from(*i)], wanted[usize::from(*i)]);
            if *slot != NONE && !self.slab.has_key(*slot, key) {
                *slot = self.slab.find(hash, key).unwrap_or(NONE);
            }
        }
        for i in some {
            let at = slots[usize::from(*i)];
            if at != NONE && !peek {
                self.slab.note_use(at);
            }
            found[usize::from(*i)] = self.slab.record(at).cloned();
        }
    }

    /// Returns the entry without counting a use.
    #[inline]
    pub(crate) fn peek(&self, hash: u64, key: &[u8]) -> Option<&R> {
        self.slab.record(self.slab.find(hash, key)?)
    }

    pub(crate) fn region(&self, presence: Presence) -> &Region {
        match presence {
            Presence::Found => &self.found,
            Presence::Missing => &self.missing,
        }
    }

    /// Stores a record. Appends the key's old entry to `replaced`, and what the policy evicts to
    /// `evicted`; that may be the record itself, if it outgrew its old entry.
    pub(crate) fn insert(
        &mut self,
        hash: u64,
        record: R,
        replaced: &mut Option<R>,
        evicted: &mut Vec<R>,
    ) -> Inserted {
        let presence = record.presence();
        let weight_bytes = record.weight_bytes();
        let mut old = self.slab.find(hash, record.key_bytes());
        let fits = weight_bytes <= self.region(presence).hot_bytes_max;
        let old_presence = old.and_then(|at| self.slab.record(at)).map(R::presence);
        if old.is_some() && (!fits || old_presence != Some(presence)) {
            *replaced = self.remove(hash, record.key_bytes());
            old = None;
        }
        let Self { slab, found, missing, hasher } = self;
        let (region, other) = match presence {
            Presence::Found => (found, missing),
            Presence::Missing => (missing, found),
        };
        // What it was as the other kind says nothing about it.
        other.ghosts.take(hash as u32);
        if !fits {
            return Inserted::TooLarge;
        }
        let passes_left = PASSES_PER_INSERT_MAX;
        let mut evictor = Evictor { slab, region, hasher, evicted, passes_left };
        if let Some(at) = old {
            *replaced = evictor.slab.replace(at, record);
            evictor.slab.note_use(at);
            let old_bytes = replaced.as_ref().map_or(0, R::weight_bytes);
            let ring = evictor.region.ring_of(evictor.slab.is_hot(at));
            ring.weight_bytes = ring.weight_bytes - old_bytes + weight_bytes;
            evictor.make_room(0);
            return Inserted::Stored;
        }
        let remembered = evictor.region.ghosts.take(hash as u32);
        if remembered {
            evictor.region.returns_of(weight_bytes).for_each(|counts| counts.returned += 1);
        }
        let hot = remembered
            || evictor.region.hot.weight_bytes + weight_bytes <= evictor.region.hot_bytes_now();
        if !remembered {
            // Before it is linked: a new entry is not looked at by its own insertion.
            evictor.make_room(weight_bytes);
        }
        let Some(at) = evictor.slab.insert(hash, record, hot) else { return Inserted::TooLarge };
        evictor.slab.link(evictor.region.ring_of(hot), at, weight_bytes);
        evictor.make_room(0);
        Inserted::Stored
    }

    /// Puts `new` in the place of `old`, a record of the same key and kind, if that is still the
    /// entry. Appends what the policy evicts to `evicted`; that may be the entry itself.
    pub(crate) fn exchange(
        &mut self,
        hash: u64,
        old: &R,
        new: R,
        evicted: &mut Vec<R>,
    ) -> Attached {
        let found = self.slab.find(hash, old.key_bytes());
        let Some(at) = found.filter(|at| self.slab.record(*at).is_some_and(|now| now.is(old)))
        else {
            return Attached::Superseded;
        };
        let presence = old.presence();
        let (old_bytes, new_bytes) = (old.weight_bytes(), new.weight_bytes());
        if new_bytes > self.region(presence).hot_bytes_max {
            return Attached::TooLarge;
        }
        let Self { slab, found, missing, hasher } = self;
        let region = match presence {
            Presence::Found => found,
            Presence::Missing => missing,
        };
        let passes_left = PASSES_PER_INSERT_MAX;
        let mut evictor = Evictor { slab, region, hasher, evicted, passes_left };
        // The caller has the old record, so that nothing is freed under the lock.
        evictor.slab.replace(at, new);
        let ring = evictor.region.ring_of(evictor.slab.is_hot(at));
        ring.weight_bytes = ring.weight_bytes - old_bytes + new_bytes;
        evictor.make_room(0);
        Attached::Stored
    }

    /// Removes the key's entry, and forgets the key.
    pub(crate) fn remove(&mut self, hash: u64, key: &[u8]) -> Option<R> {
        let Some(at) = self.slab.find(hash, key) else {
            self.found.ghosts.take(hash as u32);
            self.missing.ghosts.take(hash as u32);
            return None;
        };
        let record = self.slab.record(at)?;
        let weight_bytes = record.weight_bytes();
        let region = match record.presence() {
            Presence::Found => &mut self.found,
            Presence::Missing => &mut self.missing,
        };
        let ring = region.ring_of(self.slab.is_hot(at));
        self.slab.unlink(ring, at, weight_bytes);
        self.slab.remove(at)
    }

    pub(super) fn slab(&self) -> &Slab<R> {
        &self.slab
    }

    /// Returns the memory of the tables, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.slab.memory_bytes()
            + self.found.ghosts.memory_bytes()
            + self.missing.ghosts.memory_bytes()
    }

    #[cfg(any(test, feature = "failpoints"))]
    pub(super) fn records(&self) -> impl Iterator<Item = &R> {
        self.slab.records()
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
