//! One small copy of the store: a shard with the real policy, whose entries have weights and no
//! rows.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;

use super::sampling::Weighed;
use crate::record::Presence;
use crate::store::{Entry, KeyBytes, Shard, ShardCapacity};

/// Share of the capacity from which a copy counts as full for scanning clients, as the store does.
const FULL_SHARE: f64 = 0.95;

/// An entry without a row.
#[derive(Clone, Debug)]
pub(super) struct Phantom {
    /// The hash of the key, in place of the key.
    pub(super) key: [u8; 8],
    pub(super) weight_bytes: u32,
    /// In ticks of the simulation.
    pub(super) expires_at: u32,
    /// Number of flushes of its collection when it was read, modulo 2^16.
    pub(super) epoch: u16,
    pub(super) presence: Presence,
}

impl Entry for Phantom {
    #[inline]
    fn key_bytes(&self) -> &[u8] {
        &self.key
    }

    fn weight_bytes(&self) -> u64 {
        self.weight_bytes.into()
    }

    fn presence(&self) -> Presence {
        self.presence
    }

    fn is(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

/// Where a key is in every copy: computed once per event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) key: [u8; 8],
    hash: u64,
}

impl Place {
    pub(super) fn new(key_hash: u64, hasher: &FixedState) -> Self {
        let key = key_hash.to_ne_bytes();
        Self { key, hash: hasher.hash_one(KeyBytes(&key)) }
    }
}

/// The copy.
#[derive(Debug)]
pub(super) struct Copy {
    shard: Shard<Phantom>,
    /// Emptied after each use.
    evicted: Vec<Phantom>,
}

impl Copy {
    pub(super) fn new(capacity_bytes: u64, negative_share: f64, hasher: &FixedState) -> Self {
        let capacity = ShardCapacity::of(capacity_bytes, negative_share, 1);
        Self { shard: Shard::new(capacity, hasher.clone()), evicted: Vec::new() }
    }

    /// Returns the entry, and counts a use unless `peek`.
    pub(super) fn get(&self, place: &Place, peek: bool) -> Option<&Phantom> {
        if peek {
            self.shard.peek(place.hash, &place.key)
        } else {
            self.shard.get(place.hash, &place.key)
        }
    }

    /// Returns the number of entries of existing records.
    pub(super) fn entries(&self) -> u32 {
        self.shard.region(Presence::Found).entries()
    }

    /// Returns whether an insertion evicts an entry, or soon will.
    pub(super) fn is_full(&self) -> bool {
        let found = self.shard.region(Presence::Found);
        found.weight_bytes() as f64 >= FULL_SHARE * found.capacity_bytes() as f64
    }

    /// Stores an entry in place of the key's.
    pub(super) fn insert(&mut self, place: &Place, entry: Phantom) {
        let mut replaced = None;
        // An entry that is too large is dropped, as in the store.
        let _ = self.shard.insert(place.hash, entry, &mut replaced, &mut self.evicted);
        self.evicted.clear();
    }

    /// Puts `new` in the place of `old`, which has the same key, without counting a use. If the
    /// kind is another, nothing changes: only an insertion moves an entry between the kinds.
    pub(super) fn exchange(&mut self, place: &Place, old: &Phantom, new: Phantom) {
        if old.presence == new.presence {
            let _ = self.shard.exchange(place.hash, old, new, &mut self.evicted);
            self.evicted.clear();
        }
    }

    /// Removes the entry. Returns whether there was one.
    pub(super) fn remove(&mut self, place: &Place) -> bool {
        self.shard.remove(place.hash, &place.key).is_some()
    }

    /// Returns the memory of the tables in use, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.shard.memory_bytes()
    }
}

impl Weighed {
    pub(super) fn entry(self, place: &Place, expires_at: u32, epoch: u16) -> Phantom {
        let Self { weight_bytes, presence } = self;
        Phantom { key: place.key, weight_bytes, expires_at, epoch, presence }
    }
}
