//! Mean size of a collection's rows, learnt from reads.

use std::sync::atomic::{AtomicU64, Ordering};

/// Weight of the earlier mean, in rows: about as many recent rows determine the mean.
const MEMORY_ROWS: f64 = 16.0;
/// Nothing has been learnt yet.
const UNKNOWN: u64 = u64::MAX;

/// Running mean of sizes in bytes. Any thread may read and write it; of two concurrent updates one
/// may be lost.
#[derive(Debug)]
pub struct MeanBytes {
    /// The bits of an `f64`, or [`UNKNOWN`].
    bits: AtomicU64,
    /// Mean before the first row.
    first_guess: u64,
}

impl MeanBytes {
    /// Creates a mean of `first_guess` until a row is read.
    #[must_use]
    pub fn new(first_guess: u64) -> Self {
        Self { bits: AtomicU64::new(UNKNOWN), first_guess }
    }

    /// Returns the mean, in bytes, rounded up.
    #[must_use]
    pub fn get(&self) -> u64 {
        match self.bits.load(Ordering::Relaxed) {
            UNKNOWN => self.first_guess,
            // `as` saturates.
            bits => f64::from_bits(bits).ceil() as u64,
        }
    }

    /// Learns from `rows` rows of `bytes` bytes together. More rows weigh more.
    pub fn learn(&self, rows: u64, bytes: u64) {
        if rows == 0 {
            return;
        }
        let (rows, mean) = (rows as f64, bytes as f64 / rows as f64);
        let learnt = match self.bits.load(Ordering::Relaxed) {
            UNKNOWN => mean,
            bits => {
                let before = f64::from_bits(bits);
                before + (mean - before) * rows / (rows + MEMORY_ROWS)
            }
        };
        self.bits.store(learnt.to_bits(), Ordering::Relaxed);
    }
}
