//! Budgets of bytes shared by many requests: answers, request bodies, rows read from the database.
//!
//! A [`ByteBudget`] is a limit and the sum of its reservations. A [`Reservation`] belongs to one
//! holder; it grows when the holder needs more, and returns its bytes when dropped. Nothing waits
//! here: a reservation that does not fit is refused at once, because a waiting request would hold
//! what it already has.

mod answer;
mod defaults;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use self::answer::{AnswerRefused, AnswerReservation};
pub use self::defaults::{BYTES_MIN, MemoryLimits, Totals};

/// A limit on bytes, shared by all holders of reservations. On cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub struct ByteBudget {
    limit_bytes: u64,
    used_bytes: AtomicU64,
    refused: AtomicU64,
}

/// Error of a reservation that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom {
    /// Requested bytes.
    pub wanted_bytes: u64,
    /// Limit of all reservations, in bytes.
    pub limit_bytes: u64,
}

/// Reservation of one holder; returned when dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<ByteBudget>,
    bytes: u64,
}

impl ByteBudget {
    /// Creates a budget without reservations.
    #[must_use]
    pub fn new(limit_bytes: u64) -> Arc<Self> {
        Arc::new(Self { limit_bytes, used_bytes: AtomicU64::new(0), refused: AtomicU64::new(0) })
    }

    /// Returns the limit.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Returns the reserved bytes.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of refused reservations since the start.
    pub fn refused_total(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Returns an empty reservation, which can grow.
    #[must_use]
    pub fn empty(self: &Arc<Self>) -> Reservation {
        Reservation { budget: Arc::clone(self), bytes: 0 }
    }

    /// Reserves `bytes`.
    ///
    /// # Errors
    /// [`NoRoom`] when they do not fit beside the present reservations.
    pub fn reserve(self: &Arc<Self>, bytes: u64) -> Result<Reservation, NoRoom> {
        let mut reservation = self.empty();
        reservation.grow(bytes)?;
        Ok(reservation)
    }

    fn take(&self, bytes: u64) -> Result<(), NoRoom> {
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.limit_bytes);
        match self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(()),
            Err(_) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                Err(NoRoom { wanted_bytes: bytes, limit_bytes: self.limit_bytes })
            }
        }
    }

    fn give_back(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Reservation {
    /// Returns the reserved bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reserves `more` bytes; a refusal changes nothing.
    ///
    /// # Errors
    /// [`NoRoom`] when they do not fit.
    pub fn grow(&mut self, more: u64) -> Result<(), NoRoom> {
        if more > 0 {
            self.budget.take(more)?;
            self.bytes += more;
        }
        Ok(())
    }

    /// Grows to at least `bytes`.
    ///
    /// # Errors
    /// [`NoRoom`] when the difference does not fit.
    pub fn grow_to(&mut self, bytes: u64) -> Result<(), NoRoom> {
        self.grow(bytes.saturating_sub(self.bytes))
    }

    /// Shrinks to at most `bytes`.
    pub fn shrink_to(&mut self, bytes: u64) {
        if let Some(less) = self.bytes.checked_sub(bytes) {
            self.budget.give_back(less);
            self.bytes = bytes;
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

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

#[cfg(test)]
mod tests;
