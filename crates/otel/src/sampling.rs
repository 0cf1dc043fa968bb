//! Which requests are traced: those that their caller traces, and a share of the others, within a
//! number per second.

use std::sync::atomic::{AtomicU64, Ordering};

use hotrow_measure::clock::Nanos;

use crate::context::TraceParent;

/// Why a request is traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its caller records its own span.
    Parent,
    /// It has no caller that has decided, and belongs to the sample.
    Sample,
}

/// Decision by the parent, else by chance ("parent-based" in the terms of OpenTelemetry).
#[derive(Clone, Copy, Debug)]
pub struct Sampler {
    /// Share of 2^64; `None`: all.
    threshold: Option<u64>,
}

impl Sampler {
    /// Creates a sampler for a share of the requests without a caller's decision, 0 to 1.
    #[must_use]
    pub fn new(share: f64) -> Self {
        // Saturates.
        Self { threshold: (share < 1.0).then_some((share * 2.0_f64.powi(64)) as u64) }
    }

    /// Returns why a request is traced; `None`: it is not. `random` is asked only where no caller
    /// has decided.
    pub fn reason(
        &self,
        parent: Option<&TraceParent>,
        random: impl FnOnce() -> u64,
    ) -> Option<Reason> {
        match parent {
            Some(parent) => parent.is_sampled.then_some(Reason::Parent),
            None => self
                .threshold
                .is_none_or(|threshold| random() < threshold)
                .then_some(Reason::Sample),
        }
    }
}

/// Bound on the traced requests of a second, for all threads: callers must not decide how much is
/// recorded.
#[derive(Debug)]
pub struct PerSecond {
    max: u32,
    /// The second in the upper 32 bits, what it has taken in the lower.
    taken: AtomicU64,
}

impl PerSecond {
    /// Creates the bound.
    #[must_use]
    pub fn new(max: u32) -> Self {
        Self { max, taken: AtomicU64::new(0) }
    }

    /// Takes one of the present second. `false`: none is left.
    pub fn take(&self, now: Nanos) -> bool {
        self.take_of(self.max, now)
    }

    /// Takes one if less than half of the second is taken, so that frequent requests leave the
    /// other half to the rest.
    pub fn take_of_half(&self, now: Nanos) -> bool {
        self.take_of(self.max.div_ceil(2), now)
    }

    fn take_of(&self, max: u32, now: Nanos) -> bool {
        let second = (now.0 / 1_000_000_000) & u64::from(u32::MAX);
        let next = |before: u64| {
            // A thread whose clock reading is older takes of the newer second.
            let (of, count) = (before >> 32, before & u64::from(u32::MAX));
            match of < second {
                true => Some(second << 32 | 1),
                false => (count < u64::from(max)).then_some(before + 1),
            }
        };
        max > 0 && self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use crate::context::RandomIds;

    use super::*;

    fn parent(is_sampled: bool) -> TraceParent {
        TraceParent { span: RandomIds::default().root(), is_sampled }
    }

    #[test]
    fn the_callers_decision_comes_first() {
        for share in [0.0, 0.5, 1.0] {
            let sampler = Sampler::new(share);
            let never = || panic!("chance is not asked");
            assert_eq!(sampler.reason(Some(&parent(true)), never), Some(Reason::Parent));
            assert_eq!(sampler.reason(Some(&parent(false)), never), None);
        }
    }

    #[test]
    fn others_are_sampled_by_their_share() {
        let ids = RandomIds::default();
        for (share, expected) in [(0.0, 0..=0), (0.25, 24_000..=26_000), (1.0, 100_000..=100_000)] {
            let sampler = Sampler::new(share);
            let taken = (0..100_000)
                .filter(|_| sampler.reason(None, || ids.number()) == Some(Reason::Sample))
                .count();
            assert!(expected.contains(&taken), "{share}: {taken}");
        }
    }

    #[test]
    fn a_second_has_a_bound() {
        let at = |ms: u64| Nanos(ms * 1_000_000);
        let bound = PerSecond::new(3);
        let taken = |ms: u64| (0..10).filter(|_| bound.take(at(ms))).count();
        assert_eq!((taken(5_000), taken(5_999), taken(6_000)), (3, 0, 3));
        // A late reading of the clock opens no second again.
        assert_eq!((taken(5_999), taken(7_000)), (0, 3));
        assert!(!PerSecond::new(0).take(at(1)));
        // Half of a second is left to the others.
        let half = (0..10).filter(|_| bound.take_of_half(at(9_000))).count();
        assert_eq!((half, taken(9_000)), (2, 1));
    }

    #[test]
    fn threads_share_the_bound() {
        let bound = PerSecond::new(1_000);
        let count = || (0..1_000).filter(|_| bound.take(Nanos(1))).count();
        let taken: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(taken, 1_000);
    }
}
