//! Bounded table of limiters by key. All its memory is allocated at the start; no number of keys
//! makes it grow.
//!
//! A key lives in one of the eight slots of its set, which a keyed hash chooses, so that no client
//! can aim at a set. A slot is a tag and a state (see [`Policy`]: 0 is "never seen", a larger state
//! owes more). A key without a slot takes over the slot of its set that owes least, *with its
//! debt*, as the counters of Space-Saving are taken over (Metwally, Agrawal and El Abbadi, 2005).
//! Two consequences:
//! - No key ever gets tokens back early. States only grow, so the least state of a set only grows.
//!   A key that lost its slot, because its state was the least, returns to a state at least as
//!   large. Until that is paid off it owes what it owed.
//! - The table errs on the strict side, by a bound: a newcomer owes at most what the least of eight
//!   neighbours owes. That is nothing while one of them has settled; to make it something
//!   everywhere, an attacker must send about as many requests per second as the table has slots,
//!   times the rate.
//!
//! A key with a slot is charged by one compare-and-swap. Only newcomers take a lock, one of
//! [`SHARDS`].

use hotrow_measure::clock::Nanos;
use siphasher::sip128::SipHasher13;

use super::sync::{AtomicU64, Mutex, Ordering};
use super::{Decision, Policy};

/// Slots of a set.
const WAYS: usize = 8;
/// Locks for newcomers.
const SHARDS: usize = 64;
/// Tag of a free slot.
const NO_KEY: u64 = 0;

/// Limiters by key.
#[derive(Debug)]
pub struct Keyed {
    sets: Box<[Set]>,
    shards: Box<[Mutex<Counts>]>,
    /// With the secret. One and three rounds, as in the standard library against hash flooding.
    hasher: SipHasher13,
}

/// A hashed key: 64 bits choose the set and 64 others are the tag, so that two keys collide once in
/// 10¹⁹.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHash(u128);

/// Counters of a table since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Slots in use; they are taken over, never freed.
    pub kept: u64,
    /// Keys whose slot was taken over while they still had a debt.
    pub displaced: u64,
}

/// Two cache lines: the tags, which every lookup reads, and the states.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Set {
    tags: [AtomicU64; WAYS],
    states: [AtomicU64; WAYS],
}

impl Keyed {
    /// Creates a table for `keys_max` keys, rounded up to a multiple of eight. `seed` must be
    /// random and secret.
    #[must_use]
    pub fn new(keys_max: usize, seed: [u64; 2]) -> Self {
        let sets = keys_max.div_ceil(WAYS).max(1);
        Self {
            sets: (0..sets).map(|_| Set::default()).collect(),
            shards: (0..SHARDS.min(sets)).map(|_| Mutex::new(Counts::default())).collect(),
            hasher: SipHasher13::new_with_keys(seed[0], seed[1]),
        }
    }

    /// Returns the size of a table for `keys_max` keys in bytes: 16 per key and a little.
    pub fn bytes(keys_max: usize) -> usize {
        keys_max.div_ceil(WAYS).max(1) * size_of::<Set>()
            + SHARDS * size_of::<Mutex<Counts>>()
            + size_of::<Self>()
    }

    /// Returns how many keys it can distinguish at once.
    pub fn keys_max(&self) -> usize {
        self.sets.len() * WAYS
    }

    /// Hashes a key.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash(self.hasher.hash(key).as_u128())
    }

    /// Hashes one more part of a key.
    pub fn hash_after(&self, KeyHash(before): KeyHash, part: &[u8]) -> KeyHash {
        let mut both = [0; 32];
        both[..16].copy_from_slice(&before.to_le_bytes());
        both[16..].copy_from_slice(&self.hash(part).0.to_le_bytes());
        self.hash(&both)
    }

    /// Decides for a key, and takes what is admitted.
    #[inline]
    pub fn decide(&self, key: KeyHash, policy: &impl Policy, cost: u64, now: Nanos) -> Decision {
        let (index, tag) = self.place(key);
        let set = &self.sets[index];
        while let Some(way) = set.find(tag) {
            if let Some(decision) = set.charge(way, tag, policy, cost, now) {
                return decision;
            }
        }
        self.newcomer(index, tag, policy, cost, now)
    }

    /// Returns the state by which a key would be judged now.
    pub fn state(&self, key: KeyHash) -> u64 {
        let (index, tag) = self.place(key);
        let set = &self.sets[index];
        match set.find(tag) {
            Some(way) => set.states[way].load(Ordering::Relaxed),
            None => set.least().1,
        }
    }

    /// Returns the counters since the start.
    pub fn counts(&self) -> Counts {
        self.shards.iter().fold(Counts::default(), |sum, shard| {
            let counts = *shard.lock();
            Counts { kept: sum.kept + counts.kept, displaced: sum.displaced + counts.displaced }
        })
    }

    fn place(&self, KeyHash(hash): KeyHash) -> (usize, u64) {
        let low = hash as u64;
        let high = (hash >> 64) as u64;
        // Multiply and shift: as even as a remainder, without the division; below the number of
        // sets.
        let index = ((u128::from(low) * self.sets.len() as u128) >> 64) as usize;
        (index, if high == NO_KEY { 1 } else { high })
    }

    /// Finds a slot for a key without one. The lock serialises newcomers of a set, so that no key
    /// gets two slots; keys with a slot are charged concurrently.
    #[cold]
    fn newcomer(
        &self,
        index: usize,
        tag: u64,
        policy: &impl Policy,
        cost: u64,
        now: Nanos,
    ) -> Decision {
        let set = &self.sets[index];
        let mut counts = self.shards[index % self.shards.len()].lock();
        loop {
            // Another thread may have inserted the key since.
            if let Some(way) = set.find(tag) {
                match set.charge(way, tag, policy, cost, now) {
                    Some(decision) => return decision,
                    None => continue,
                }
            }
            let (way, state) = set.least();
            let (decision, next) = policy.judge(state, cost, now);
            let Some(next) = next else { return decision };
            if let Some(before) = set.take_over(way, tag, state, next) {
                counts.kept += u64::from(before == NO_KEY);
                counts.displaced +=
                    u64::from(before != NO_KEY && !policy.settled_after(state, now).is_zero());
                return decision;
            }
        }
    }
}

impl Set {
    #[inline]
    fn find(&self, tag: u64) -> Option<usize> {
        self.tags.iter().position(|t| t.load(Ordering::Acquire) == tag)
    }

    /// Returns the slot that owes least, with its state.
    fn least(&self) -> (usize, u64) {
        let states = self.states.iter().map(|state| state.load(Ordering::Acquire));
        states.enumerate().min_by_key(|(_, state)| *state).unwrap_or_default()
    }

    /// Decides by the state in a slot; `None` when another thread was faster, or the slot was taken
    /// over.
    #[inline]
    fn charge(
        &self,
        way: usize,
        tag: u64,
        policy: &impl Policy,
        cost: u64,
        now: Nanos,
    ) -> Option<Decision> {
        let state = self.states[way].load(Ordering::Acquire);
        // After the state, because a takeover clears the tag first. If the tag is still there and
        // the state does not change until the swap, the slot belonged to the key throughout,
        // because states only grow.
        if self.tags[way].load(Ordering::Acquire) != tag {
            return None;
        }
        let (decision, next) = policy.judge(state, cost, now);
        let Some(next) = next else { return Some(decision) };
        debug_assert!(next > state, "a state only grows");
        let swapped =
            self.states[way].compare_exchange(state, next, Ordering::AcqRel, Ordering::Relaxed);
        swapped.is_ok().then_some(decision)
    }

    /// Gives a slot to another key and returns the previous tag; `None` when it was charged in the
    /// meantime and may no longer owe least. Called under the lock only.
    fn take_over(&self, way: usize, tag: u64, state: u64, next: u64) -> Option<u64> {
        let before = self.tags[way].load(Ordering::Relaxed);
        self.tags[way].store(NO_KEY, Ordering::Relaxed);
        // The swap publishes the empty tag: a reader of the new state cannot take the slot for the
        // old key's.
        let swapped =
            self.states[way].compare_exchange(state, next, Ordering::AcqRel, Ordering::Relaxed);
        self.tags[way].store(if swapped.is_ok() { tag } else { before }, Ordering::Release);
        swapped.is_ok().then_some(before)
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
