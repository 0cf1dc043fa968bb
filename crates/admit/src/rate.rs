//! How often one may ask.
//!
//! Two families:
//! - [`bucket`] is a token bucket with one owner and every call that one can wish for: take, take what is there, take if the
//!   wait is short, wait; with a quantum, changes while it runs, and warm-up.
//! - A [`Policy`] is what a server keeps per key. Its memory of one key is a single 64-bit number that *only grows*: 0 is a key
//!   that was never seen, and of two numbers the larger owes more. So a decision is one compare-and-swap without a lock, a swap
//!   that succeeds proves that nobody came between, and a bounded table ([`keyed`]) can hand a number on to another key without
//!   ever giving tokens back. [`gcra`], [`leaky`] and [`window`] are the policies, [`limit`] is one of them by configuration.
//!
//! Reading order: [`value`] (rates as people write them), [`bucket`], [`warm_up`], [`meter`] (from time to units), [`gcra`],
//! [`leaky`], [`window`], [`limit`], [`keyed`].

pub mod bucket;
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

/// What a limiter says to a request. Only the first two take anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Now.
    Admitted {
        /// Whole units that would still be admitted at this moment.
        remaining: u64,
    },
    /// After this delay. What it costs is taken already; the caller waits.
    Wait {
        /// How long.
        delay: Duration,
    },
    /// Not now.
    Refused {
        /// The same request would be let in after this time if nobody else came.
        retry_after: Duration,
    },
    /// Never: it costs more than is ever there at once.
    TooLarge {
        /// The largest cost that can be let in.
        most: u64,
    },
}

impl Decision {
    /// Whether the request may go on, now or after its delay.
    #[must_use]
    pub fn lets_in(&self) -> bool {
        matches!(self, Self::Admitted { .. } | Self::Wait { .. })
    }
}

/// A rule whose memory of one key is a single number that only grows.
pub trait Policy {
    /// Judges a request for `cost` units at `now`, by the `state` of its key. There is a next state only where something is
    /// taken, and it is larger than `state`.
    fn judge(&self, state: u64, cost: u64, now: Nanos) -> (Decision, Option<u64>);

    /// Time until a key in this state is like one that was never seen; zero if it is.
    fn settled_after(&self, state: u64, now: Nanos) -> Duration;
}

/// The memory of one key, shared by threads. It has a cache line to itself.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Cell(AtomicU64);

impl Cell {
    /// Decides, and takes what is let in.
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

    /// The state, for [`Policy::judge`] without taking anything.
    #[must_use]
    pub fn state(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
#[cfg(feature = "shuttle")]
mod schedules;
