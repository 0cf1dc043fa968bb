//! Token bucket in the form of the generic cell rate algorithm (ITU-T I.371, annex A): no
//! refilling, one number per key.
//!
//! An idle key has its whole burst. Each unit moves the time at which the burst is complete again
//! further ahead; a request that would move it further than a burst is refused and takes nothing.

use std::time::Duration;

use hotrow_measure::clock::Nanos;

use super::meter::Meter;
use super::{Decision, Policy};

/// A token bucket per key.
#[derive(Debug)]
pub struct Gcra(pub Meter);

impl Policy for Gcra {
    #[inline]
    fn judge(&self, state: u64, cost: u64, now: Nanos) -> (Decision, Option<u64>) {
        self.0.judge(state, cost, now, Duration::ZERO)
    }

    fn settled_after(&self, state: u64, now: Nanos) -> Duration {
        self.0.settled_after(state, now)
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
