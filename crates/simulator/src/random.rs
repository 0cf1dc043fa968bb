//! Random choices of a run, all from one seed.

use std::time::Duration;

/// The generator of a run.
#[derive(Debug)]
pub(crate) struct Random {
    numbers: fastrand::Rng,
    /// Whether latencies have no tails any more.
    has_no_tails: bool,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self { numbers: fastrand::Rng::with_seed(seed), has_no_tails: false }
    }

    /// Cuts the tails of latencies: from now on none is longer than typical.
    pub(crate) fn cut_tails(&mut self) {
        self.has_no_tails = true;
    }

    /// Returns a number below `bound`, which must not be 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.numbers.usize(..bound)
    }

    /// Returns any number.
    pub(crate) fn number(&mut self) -> u64 {
        self.numbers.u64(..)
    }

    /// Returns a number from 0 up to 1.
    #[cfg(feature = "failpoints")]
    pub(crate) fn share(&mut self) -> f64 {
        self.numbers.f64()
    }

    /// Returns `true` once in `times` calls on average.
    pub(crate) fn one_in(&mut self, times: u32) -> bool {
        self.numbers.u32(..times) == 0
    }

    /// Chooses one of the values.
    pub(crate) fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.numbers.usize(..values.len())]
    }

    /// Returns an evenly distributed time up to `bound`.
    pub(crate) fn up_to(&mut self, bound: Duration) -> Duration {
        Duration::from_nanos(self.numbers.u64(..=nanos(bound)))
    }

    /// Returns a latency with a long tail: mostly below `typical`, one in eight up to 8 times, one
    /// in sixty-four up to 64 times as long. The tail is what reorders events.
    pub(crate) fn latency(&mut self, typical: Duration) -> Duration {
        let bound = match self.numbers.u32(..64) {
            _ if self.has_no_tails => nanos(typical),
            0 => nanos(typical) * 64,
            1..8 => nanos(typical) * 8,
            _ => nanos(typical),
        };
        Duration::from_nanos(self.numbers.u64(..=bound))
    }

    /// Returns an index below `count`, small ones far more often.
    pub(crate) fn skewed(&mut self, count: usize) -> usize {
        let (a, b) = (self.numbers.f64(), self.numbers.f64());
        ((a * b * count as f64) as usize).min(count - 1)
    }
}

/// Returns a duration of the simulation, which is far below the bound of 64 bits, in nanoseconds.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 128)
}
