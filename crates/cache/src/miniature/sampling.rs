//! Sampling of keys: every event of a sampled key is replayed, and none of another.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use hotrow_measure::clock::Nanos;
use hotrow_types::key::CollectionId;

use crate::record::Presence;
use crate::sync::Mutex;

/// Most events in [`SampleLog`]: a quarter of a MiB.
pub const LOG_SAMPLES_MAX: usize = 1 << 13;

/// Odd, and without relation to the constants of the key's hash: digits of the golden ratio and of
/// the square root of 2.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
const OFFSET: u64 = 0x6a09_e667_f3bc_c908;

/// Mixes a key's hash once more. The store takes its shard from the bits 32 to 37 of the hash and
/// its bucket from the bits 0 to 25; each bit of the result depends on all bits of the hash, so
/// that the sampled keys spread over shards and buckets like all others. One multiplication.
#[inline]
pub fn selector(key_hash: u64) -> u64 {
    let product = u128::from(key_hash ^ OFFSET) * u128::from(FACTOR);
    (product >> 64) as u64 ^ product as u64
}

/// Share of the keys that are sampled, in units of 2^-32. The keys of a lower rate are among those
/// of a higher one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SamplingRate(u32);

impl SamplingRate {
    /// No key is sampled.
    pub const NONE: Self = Self(0);

    /// Rounds down to a rate; `share` is from 0 to 1.
    #[must_use]
    pub fn from_share(share: f64) -> Self {
        // `as` saturates.
        Self((share * (1_u64 << 32) as f64) as u32)
    }

    /// Returns the share of the keys, from 0 to 1.
    #[must_use]
    pub fn share(self) -> f64 {
        f64::from(self.0) / (1_u64 << 32) as f64
    }

    /// Returns whether the key with this hash is sampled.
    #[inline]
    #[must_use]
    pub fn takes(self, key_hash: u64) -> bool {
        ((selector(key_hash) >> 32) as u32) < self.0
    }
}

/// What is known of an entry: its weight and its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weighed {
    /// As the store accounts it; what exceeds 4 GiB is cut off.
    pub weight_bytes: u32,
    /// Whether the database had the record.
    pub presence: Presence,
}

/// An event of a sampled key, or of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Time of the event.
    pub at: Nanos,
    /// Hash of the key, as [`crate::Cache::hash`] returns it; 0 in events of a collection.
    pub key_hash: u64,
    /// Collection of the key.
    pub collection: CollectionId,
    /// What happened.
    pub event: Event,
}

/// What happened to a sampled key or a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client looked it up.
    Lookup {
        /// The client scans: no use is counted.
        is_scan: bool,
        /// The entry that answered; `None` after a miss.
        held: Option<Weighed>,
    },
    /// A read stored it.
    Stored {
        /// The new entry.
        entry: Weighed,
        /// The read belongs to the warm start, not to a request.
        is_warm_up: bool,
    },
    /// It left the store for another reason than capacity.
    Removed {
        /// It changed: a hot record is read again without a request.
        is_change: bool,
    },
    /// All records of the collection left.
    Flushed,
    /// All records of all collections left.
    Gap,
}

/// On cache lines of its own, because every hit reads it and others are written to.
#[derive(Debug)]
#[repr(align(128))]
struct RateInForce(AtomicU32);

/// Rate in force, and events that no worker's ring takes: stored and removed records. All of them
/// are off the hit path.
#[derive(Debug)]
pub struct SampleLog {
    rate: RateInForce,
    samples: Mutex<Vec<Sample>>,
    dropped_total: AtomicU64,
}

impl SampleLog {
    pub(crate) fn new() -> Self {
        Self {
            rate: RateInForce(AtomicU32::new(SamplingRate::NONE.0)),
            samples: Mutex::new(Vec::new()),
            dropped_total: AtomicU64::new(0),
        }
    }

    /// Returns the rate in force.
    #[inline]
    pub fn rate(&self) -> SamplingRate {
        SamplingRate(self.rate.0.load(Relaxed))
    }

    /// Sets the rate.
    pub fn set_rate(&self, rate: SamplingRate) {
        self.rate.0.store(rate.0, Relaxed);
    }

    /// Appends an event, or drops it if [`LOG_SAMPLES_MAX`] wait.
    pub(crate) fn push(&self, sample: Sample) {
        let mut samples = self.samples.lock();
        if samples.len() < LOG_SAMPLES_MAX {
            samples.push(sample);
        } else {
            self.dropped_total.fetch_add(1, Relaxed);
        }
    }

    /// Moves all events to the end of `samples`.
    pub fn take(&self, samples: &mut Vec<Sample>) {
        samples.append(&mut self.samples.lock());
    }

    /// Returns the number of dropped events since the start.
    pub fn dropped_total(&self) -> u64 {
        self.dropped_total.load(Relaxed)
    }
}
