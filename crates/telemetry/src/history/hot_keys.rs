//! The most requested keys: each worker samples its lookups into a ring of its own, and the thread
//! of the history drains the rings once a second into a sketch per collection.
//!
//! A worker takes a sample about every `step` lookups, with a random distance, so that no pattern
//! of requests stays in step with it. The draining thread adapts the step to the traffic, so that
//! the ring is half full each second; samples that find it full are counted and dropped, and the
//! others of that second weigh more. A sample is some plain stores: no lock, no allocation, and
//! only the worker writes those lines.
//!
//! **Error.** Two parts add up. The sketch: a key with more than 1/[`KEYS_MAX`] of its collection's
//! samples is never missed, and its count is at most that share too high (`measure::top_keys`). The
//! sampling: a key with n samples has a relative standard error of 1/√n.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use hotrow_measure::top_keys::TopKeys;
use hotrow_types::key::{CollectionId, Key};

/// Most samples in a ring, of one worker and one second.
const RING_SLOTS_MAX: usize = 256;
/// Most samples in all rings.
const RING_SLOTS_TOTAL_MAX: usize = 4_096;
/// Longest key that is sampled, in bytes as encoded.
pub(crate) const KEY_BYTES_MAX: usize = KEY_WORDS * 8;
const KEY_WORDS: usize = 14;
/// Longest mean distance of two samples, in lookups.
const STEP_MAX: u32 = 1 << 20;
/// Most collections with a sketch.
pub(crate) const SKETCHES_MAX: usize = 64;
/// Keys of a sketch.
pub const KEYS_MAX: usize = 128;
/// Time in which the weight of a request halves.
pub const HALF_LIFE_S: f64 = 60.0;
/// Weight below which a sketch gives its place to another collection.
const IDLE_WEIGHT: f64 = 0.5;

/// Samples of one worker. The worker writes; one thread drains.
#[derive(Debug)]
pub struct KeyRing {
    slots: Box<[Slot]>,
    /// Samples written.
    head: AtomicU64,
    /// Samples drained.
    tail: AtomicU64,
    /// Mean distance of two samples, in lookups.
    step: AtomicU32,
    /// Samples for which there was no room.
    dropped: AtomicU64,
    /// `dropped` at the last drain. Only the draining thread uses it.
    dropped_before: AtomicU64,
    /// Samples whose key is longer than [`KEY_BYTES_MAX`].
    too_long: AtomicU64,
}

#[derive(Debug, Default)]
struct Slot {
    hash: AtomicU64,
    /// Lookups that the sample represents (upper half), and bytes of the key.
    weight_and_length: AtomicU64,
    words: [AtomicU64; KEY_WORDS],
}

impl KeyRing {
    /// Creates the rings of all workers.
    pub fn of_workers(workers: usize) -> Vec<Arc<Self>> {
        let slots = (RING_SLOTS_TOTAL_MAX / workers.max(1)).clamp(16, RING_SLOTS_MAX);
        let ring = || Self {
            slots: (0..slots).map(|_| Slot::default()).collect(),
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            step: AtomicU32::new(1),
            dropped: AtomicU64::new(0),
            dropped_before: AtomicU64::new(0),
            too_long: AtomicU64::new(0),
        };
        (0..workers).map(|_| Arc::new(ring())).collect()
    }

    /// Writes a sample. Only for the worker.
    fn push(&self, hash: u64, key: &[u8], weight: u32) {
        if key.len() > KEY_BYTES_MAX {
            self.too_long.store(self.too_long.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            return;
        }
        let head = self.head.load(Ordering::Relaxed);
        let room = self.slots.len() as u64;
        if head - self.tail.load(Ordering::Acquire) >= room {
            self.dropped.store(self.dropped.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            return;
        }
        let slot = &self.slots[(head % room) as usize];
        slot.hash.store(hash, Ordering::Relaxed);
        let packed = u64::from(weight) << 32 | key.len() as u64;
        slot.weight_and_length.store(packed, Ordering::Relaxed);
        for (word, bytes) in slot.words.iter().zip(key.chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(padded), Ordering::Relaxed);
        }
        self.head.store(head + 1, Ordering::Release);
    }

    /// Takes all samples and adapts the step. Only for the draining thread.
    fn drain(&self, mut each: impl FnMut(u64, &[u8], f64)) {
        let tail = self.tail.load(Ordering::Relaxed);
        let head = self.head.load(Ordering::Acquire);
        let dropped = self.dropped.load(Ordering::Relaxed);
        let lost = dropped - self.dropped_before.swap(dropped, Ordering::Relaxed);
        let taken = head - tail;
        // The samples represent the lost ones too.
        let scale = (taken + lost) as f64 / taken.max(1) as f64;
        let mut key = [0; KEY_BYTES_MAX];
        for sample in tail..head {
            let slot = &self.slots[(sample % self.slots.len() as u64) as usize];
            let packed = slot.weight_and_length.load(Ordering::Relaxed);
            let length = (packed & 0xffff_ffff) as usize;
            for (bytes, word) in key.chunks_mut(8).zip(&slot.words) {
                bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
            }
            let weight = (packed >> 32) as f64 * scale;
            each(slot.hash.load(Ordering::Relaxed), &key[..length.min(KEY_BYTES_MAX)], weight);
        }
        self.tail.store(head, Ordering::Release);
        let step = u64::from(self.step.load(Ordering::Relaxed));
        let half = (self.slots.len() as u64 / 2).max(1);
        let fitting = (step * (taken + lost)).div_ceil(half);
        // Downwards slowly: a pause of a second is not the end of the traffic.
        let next = fitting.clamp((step / 2).max(1), u64::from(STEP_MAX));
        self.step.store(next as u32, Ordering::Relaxed);
    }
}

/// The choice of sampled lookups, on a worker's thread.
#[derive(Debug)]
pub struct KeySampler {
    ring: Arc<KeyRing>,
    /// Lookups before the next sample.
    left: Cell<u32>,
    /// Step by which `left` was drawn: the weight of the next sample.
    step: Cell<u32>,
    random: Cell<u64>,
}

impl KeySampler {
    /// Creates the sampler of a worker. `seed`: any number that clients do not know.
    pub fn new(ring: Arc<KeyRing>, seed: u64) -> Self {
        Self { ring, left: Cell::new(0), step: Cell::new(1), random: Cell::new(seed | 1) }
    }

    /// Counts the lookups of a request; samples some of them.
    #[inline]
    pub fn note(&self, keys: &[Key], hash: impl Fn(&Key) -> u64) {
        let left = self.left.get() as usize;
        match left.checked_sub(keys.len()) {
            Some(left) => self.left.set(left as u32),
            None => self.sample(keys, left, hash),
        }
    }

    #[cold]
    fn sample(&self, keys: &[Key], mut next: usize, hash: impl Fn(&Key) -> u64) {
        while let Some(key) = keys.get(next) {
            self.ring.push(hash(key), key.as_bytes(), self.step.get());
            next += self.distance();
        }
        self.left.set((next - keys.len()) as u32);
    }

    /// Draws the distance to the next sample: 1 to 2 × step − 1, all equally likely.
    fn distance(&self) -> usize {
        let step = self.ring.step.load(Ordering::Relaxed).max(1);
        self.step.set(step);
        let mut random = self.random.get();
        random ^= random >> 12;
        random ^= random << 25;
        random ^= random >> 27;
        self.random.set(random);
        let high = random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        1 + ((high * u64::from(2 * step - 1)) >> 32) as usize
    }
}

/// Sketches of all collections, fed by the rings.
#[derive(Debug)]
pub(crate) struct HotKeys {
    rings: Vec<Arc<KeyRing>>,
    sketches: Vec<(CollectionId, TopKeys)>,
    /// Seconds observed, decayed as the counts are: count / seconds is a rate.
    seconds: f64,
}

impl HotKeys {
    pub(crate) fn new(rings: Vec<Arc<KeyRing>>) -> Self {
        Self { rings, sketches: Vec::new(), seconds: 0.0 }
    }

    /// Takes the samples of the last `seconds`.
    pub(crate) fn collect(&mut self, seconds: f64) {
        let factor = (-seconds / HALF_LIFE_S).exp2();
        self.sketches.iter_mut().for_each(|(_, sketch)| sketch.decay(factor));
        self.seconds = self.seconds * factor + seconds;
        let sketches = &mut self.sketches;
        for ring in &self.rings {
            ring.drain(|hash, key, weight| {
                let Some(collection) = key.first_chunk::<2>() else { return };
                let collection = CollectionId(u16::from_be_bytes(*collection));
                if let Some(sketch) = sketch_of(sketches, collection) {
                    sketch.add(hash, key, weight);
                }
            });
        }
    }

    /// Returns the sketches, and the seconds for which their counts stand.
    pub(crate) fn view(&self) -> (&[(CollectionId, TopKeys)], f64) {
        (&self.sketches, self.seconds)
    }

    /// Returns the number of samples whose key was too long to be kept.
    pub(crate) fn too_long_total(&self) -> u64 {
        self.rings.iter().map(|ring| ring.too_long.load(Ordering::Relaxed)).sum()
    }

    /// Returns the bytes of rings and sketches, without the allocator's own.
    #[cfg(test)]
    pub(crate) fn memory_bytes(&self) -> usize {
        let slots: usize = self.rings.iter().map(|ring| ring.slots.len()).sum();
        let sketches: usize = self.sketches.iter().map(|(_, sketch)| sketch.memory_bytes()).sum();
        slots * size_of::<Slot>() + sketches
    }
}

/// Returns the sketch of a collection: its own, a new one, or that of an idle collection; `None` if
/// all belong to others.
fn sketch_of(
    sketches: &mut Vec<(CollectionId, TopKeys)>,
    collection: CollectionId,
) -> Option<&mut TopKeys> {
    let own = sketches.iter().position(|(id, _)| *id == collection);
    let position = match own {
        Some(position) => position,
        None if sketches.len() < SKETCHES_MAX => {
            sketches.push((collection, TopKeys::new(KEYS_MAX)));
            sketches.len() - 1
        }
        None => {
            let idle = sketches.iter().position(|(_, sketch)| sketch.total() < IDLE_WEIGHT)?;
            sketches[idle] = (collection, TopKeys::new(KEYS_MAX));
            idle
        }
    };
    sketches.get_mut(position).map(|(_, sketch)| sketch)
}

#[cfg(test)]
mod tests;
