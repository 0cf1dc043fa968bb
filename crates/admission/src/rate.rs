//! Rate limits.
//!
//! A [`Policy`] is what a server keeps per key. Its state of one key is a single 64-bit number that
//! *only grows*: 0 is a key never seen, and of two numbers the larger owes more. So a decision is
//! one compare-and-swap without a lock, a swap that succeeds proves that no other thread
//! intervened, and a bounded table ([`keyed`]) can pass a number on to another key without ever
//! returning tokens. [`gcra`], [`leaky`] and [`window`] are the policies; [`limit`] is one of them
//! by configuration.
//!
//! Reading order: [`value`] (rates as text), [`warm_up`], [`meter`] (from time to units), [`gcra`],
//! [`leaky`], [`window`], [`limit`], [`keyed`].

pub mod gcra;
pub mod keyed;
pub mod leaky;
pub mod limit;
pub mod meter;
mod snapshot;
mod sync;
pub mod value;
pub mod warm_up;
pub mod window;

use std::time::Duration;

use hotrow_measure::clock::Nanos;

use self::sync::{AtomicU64, Ordering};

/// Decision of a limiter on a request. Only the first two take anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Admitted at once.
    Admitted {
        /// Whole units that would still be admitted at this moment.
        remaining: u64,
    },
    /// Admitted after this delay. The cost is taken already; the caller waits.
    Wait {
        /// The delay.
        delay: Duration,
    },
    /// Refused for now.
    Refused {
        /// Time after which the same request would be admitted if no other came.
        retry_after: Duration,
    },
    /// Refused for ever: the cost exceeds what is ever available at once.
    TooLarge {
        /// The largest cost that can be admitted.
        most: u64,
    },
}

impl Decision {
    /// Returns whether the request is admitted, now or after its delay.
    pub fn is_admitted(&self) -> bool {
        matches!(self, Self::Admitted { .. } | Self::Wait { .. })
    }
}

/// A rule whose state of one key is a single number that only grows.
pub trait Policy {
    /// Judges a request for `cost` units at `now`, by the `state` of its key. Returns a next state
    /// only where something is taken; it is larger than `state`.
    fn judge(&self, state: u64, cost: u64, now: Nanos) -> (Decision, Option<u64>);

    /// Returns the time until a key in this state equals one never seen; zero if it does now.
    fn settled_after(&self, state: u64, now: Nanos) -> Duration;
}

/// State of one key, shared by threads. On a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Cell(AtomicU64);

impl Cell {
    /// Decides, and takes what is admitted.
    pub fn decide(&self, policy: &impl Policy, cost: u64, now: Nanos) -> Decision {
        let mut state = self.0.load(Ordering::Relaxed);
        loop {
            let (decision, next) = policy.judge(state, cost, now);
            let Some(next) = next else { return decision };
            debug_assert!(next > state, "a state only grows");
            match self.0.compare_exchange_weak(state, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return decision,
                Err(changed) => state = changed,
            }
        }
    }

    /// Returns the state, for [`Policy::judge`] without taking anything.
    pub fn state(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
#[cfg(feature = "shuttle")]
mod tests {
    mod schedules;
}
