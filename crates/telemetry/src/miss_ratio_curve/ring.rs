//! Ring of one worker's sampled lookups: the worker writes, the predictor reads.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use hotrow_cache::Presence;
use hotrow_cache::miniature::sampling::{Event, Sample, Weighed};
use hotrow_measure::clock::Nanos;
use hotrow_measure::counter::Counter;
use hotrow_types::key::CollectionId;

/// Words of one lookup.
const WORDS: usize = 3;
const SCAN: u64 = 1;
const HELD: u64 = 1 << 1;
const MISSING: u64 = 1 << 2;
const COLLECTION_SHIFT: u32 = 16;
const WEIGHT_SHIFT: u32 = 32;

/// A bounded queue of lookups. One thread pushes and one takes; a lookup that finds it full is
/// dropped and counted. It has no memory before [`SampleRing::allocate`].
#[derive(Debug)]
pub(crate) struct SampleRing {
    slots: OnceLock<Box<[[AtomicU64; WORDS]]>>,
    capacity: usize,
    /// Lookups pushed so far. Written by the worker.
    pushed: AtomicU64,
    /// Lookups taken so far. Written by the predictor.
    taken: AtomicU64,
    dropped: Counter,
}

impl SampleRing {
    /// Creates an empty ring for `capacity` lookups.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            slots: OnceLock::new(),
            capacity,
            pushed: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            dropped: Counter::new(),
        }
    }

    /// Allocates its memory, unless it has it. Not for the writing thread: requests wait for that.
    pub(crate) fn allocate(&self) {
        self.slots.get_or_init(|| (0..self.capacity).map(|_| Default::default()).collect());
    }

    /// Returns whether it has its memory.
    pub(crate) fn is_allocated(&self) -> bool {
        self.slots.get().is_some()
    }

    /// Returns the bytes of its memory.
    #[cfg(test)]
    pub(crate) fn memory_bytes(&self) -> usize {
        self.slots.get().map_or(0, |slots| size_of_val(&**slots))
    }

    /// Returns the number of lookups dropped since the start.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.get()
    }

    /// Returns whether a lookup fits, and counts a drop otherwise. Asked before the lookup is
    /// described, which costs more than to drop it. Only for the writing thread.
    #[inline]
    pub(crate) fn admits(&self) -> bool {
        let waiting = self.pushed.load(Ordering::Relaxed) - self.taken.load(Ordering::Acquire);
        let fits = self.is_allocated() && waiting < self.capacity as u64;
        if !fits {
            self.dropped.increment();
        }
        fits
    }

    /// Appends a lookup; other events are not for rings. Only for the writing thread.
    pub(crate) fn push(&self, sample: &Sample) {
        let Event::Lookup { is_scan, held } = sample.event else { return };
        let pushed = self.pushed.load(Ordering::Relaxed);
        let waiting = pushed - self.taken.load(Ordering::Acquire);
        let Some(slots) = self.slots.get().filter(|slots| waiting < slots.len() as u64) else {
            return self.dropped.increment();
        };
        let mut word = u64::from(sample.collection.0) << COLLECTION_SHIFT;
        word |= if is_scan { SCAN } else { 0 };
        if let Some(Weighed { weight_bytes, presence }) = held {
            word |= HELD | u64::from(weight_bytes) << WEIGHT_SHIFT;
            word |= if presence == Presence::Missing { MISSING } else { 0 };
        }
        let slot = &slots[(pushed % slots.len() as u64) as usize];
        let words = [sample.key_hash, sample.at.0, word];
        slot.iter().zip(words).for_each(|(slot, word)| slot.store(word, Ordering::Relaxed));
        // The reader sees the words when it sees the number.
        self.pushed.store(pushed + 1, Ordering::Release);
    }

    /// Moves all lookups to the end of `samples`. Only for the reading thread.
    pub(crate) fn take(&self, samples: &mut Vec<Sample>) {
        let Some(slots) = self.slots.get() else { return };
        let pushed = self.pushed.load(Ordering::Acquire);
        let taken = self.taken.load(Ordering::Relaxed);
        for number in taken..pushed {
            let slot = &slots[(number % slots.len() as u64) as usize];
            let word = |at: usize| slot[at].load(Ordering::Relaxed);
            samples.push(sample_of([word(0), word(1), word(2)]));
        }
        // The writer may overwrite the slots when it sees the number.
        self.taken.store(pushed, Ordering::Release);
    }
}

fn sample_of([key_hash, at, word]: [u64; WORDS]) -> Sample {
    let presence = if word & MISSING == 0 { Presence::Found } else { Presence::Missing };
    let entry = Weighed { weight_bytes: (word >> WEIGHT_SHIFT) as u32, presence };
    let held = (word & HELD != 0).then_some(entry);
    let event = Event::Lookup { is_scan: word & SCAN != 0, held };
    let collection = CollectionId((word >> COLLECTION_SHIFT) as u16);
    Sample { at: Nanos(at), key_hash, collection, event }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(number: u64) -> Sample {
        let presence = if number.is_multiple_of(5) { Presence::Missing } else { Presence::Found };
        let entry = Weighed { weight_bytes: u32::MAX - number as u32, presence };
        let held = (!number.is_multiple_of(3)).then_some(entry);
        let event = Event::Lookup { is_scan: number.is_multiple_of(2), held };
        let collection = CollectionId(u16::MAX - number as u16);
        Sample { at: Nanos(number), key_hash: number.wrapping_mul(0x9e37), collection, event }
    }

    #[test]
    fn what_was_pushed_is_taken_and_the_rest_is_counted() {
        let ring = SampleRing::new(4);
        ring.allocate();
        let mut taken = Vec::new();
        for round in 0..5 {
            (0..6).for_each(|n| ring.push(&sample(10 * round + n)));
            taken.clear();
            ring.take(&mut taken);
            let expected: Vec<Sample> = (0..4).map(|n| sample(10 * round + n)).collect();
            assert_eq!(taken, expected);
            assert_eq!(ring.dropped(), 2 * (round + 1));
        }
        let event = Event::Removed { is_change: true };
        ring.push(&Sample { event, ..sample(1) });
        assert!(ring.admits());
        (0..4).for_each(|n| ring.push(&sample(n)));
        assert!(!ring.admits());
        assert_eq!(ring.dropped(), 11);
        ring.take(&mut taken);
        taken.clear();
        ring.take(&mut taken);
        assert_eq!(taken, [], "only lookups");
    }

    #[test]
    fn a_ring_without_memory_drops_and_counts() {
        let ring = SampleRing::new(4);
        let mut taken = Vec::new();
        assert!(!ring.admits());
        ring.push(&sample(1));
        ring.take(&mut taken);
        assert_eq!((taken.len(), ring.dropped(), ring.memory_bytes()), (0, 2, 0));
        ring.allocate();
        ring.push(&sample(2));
        // It keeps what it has.
        ring.allocate();
        ring.take(&mut taken);
        assert_eq!((taken, ring.memory_bytes()), (vec![sample(2)], 4 * WORDS * 8));
    }

    #[test]
    fn two_threads_lose_nothing_but_what_is_counted() {
        const LOOKUPS: u64 = 200_000;
        let ring = SampleRing::new(64);
        ring.allocate();
        let mut taken = Vec::new();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| (0..LOOKUPS).for_each(|n| ring.push(&sample(n))));
            while !writer.is_finished() {
                ring.take(&mut taken);
            }
        });
        ring.take(&mut taken);
        assert_eq!(taken.len() as u64 + ring.dropped(), LOOKUPS);
        assert!(taken.is_sorted_by_key(|sample| sample.at));
        assert!(taken.iter().all(|taken| *taken == sample(taken.at.0)), "no torn lookup");
    }
}
