//! Slow start: at the beginning, time counts for less.
//!
//! Over the warm-up the rate grows linearly from a third of the full rate to the full rate. That
//! share, and the return to cold after idleness, are those of Guava's `RateLimiter`
//! (`SmoothWarmingUp`, cold factor 3). Here it is done by a clock: time *counts* a third at first
//! and wholly at the end, so that any limiter given this time warms up.

use hotrow_measure::clock::Nanos;

/// Ratio of the full rate to the rate at the beginning.
pub const COLD_FACTOR: u64 = 3;

/// A clock that starts slowly.
#[derive(Clone, Copy, Debug)]
pub struct WarmUp {
    over_ns: u64,
    begun: Nanos,
    /// Counted time when it last began.
    counted_ns: u64,
}

impl WarmUp {
    /// Warms up over `over_ns` nanoseconds, from `now` on; 0: warm at once.
    #[must_use]
    pub fn new(over_ns: u64, now: Nanos) -> Self {
        Self { over_ns, begun: now, counted_ns: 0 }
    }

    /// Returns the nanoseconds counted up to `now`. Never falls as `now` grows.
    #[inline]
    pub fn counted_ns(&self, now: Nanos) -> u64 {
        let since = now.0.saturating_sub(self.begun.0);
        if self.over_ns == 0 {
            return self.counted_ns.saturating_add(since);
        }
        self.counted_ns.saturating_add(counted(since, self.over_ns))
    }

    /// Returns the first moment up to which at least `counted_ns` has counted.
    pub fn moment(&self, counted_ns: u64) -> Nanos {
        let wanted = counted_ns.saturating_sub(self.counted_ns);
        Nanos(self.begun.0.saturating_add(needed(wanted, self.over_ns)))
    }

    /// Returns the part of `whole` granted at `now`: a third at the beginning, all of it at the
    /// end, at least 1.
    #[inline]
    pub fn share_of(&self, whole: u64, now: Nanos) -> u64 {
        let since = now.0.saturating_sub(self.begun.0);
        if since >= self.over_ns {
            return whole;
        }
        let since = u128::from(since);
        let over = u128::from(self.over_ns);
        let part = u128::from(whole) * (over + 2 * since) / (u128::from(COLD_FACTOR) * over);
        // A part of a u64 fits.
        (part as u64).max(1)
    }

    /// Makes it cold again from `now` on; the counted time stays.
    pub fn begin_again(&mut self, now: Nanos) {
        self.counted_ns = self.counted_ns(now);
        self.begun = now;
    }

    /// Returns its length in nanoseconds.
    pub fn over_ns(&self) -> u64 {
        self.over_ns
    }
}

/// The integral of a rate that grows from 1/3 to 1 over `over`: `t (t + over) / (3 over)`, and `t -
/// over / 3` after that.
fn counted(since: u64, over: u64) -> u64 {
    if since >= over {
        return since - over / COLD_FACTOR;
    }
    let t = u128::from(since);
    let over = u128::from(over);
    // Smaller than `since`.
    (t * (t + over) / (u128::from(COLD_FACTOR) * over)) as u64
}

/// The smallest time after which `wanted` has counted: the integral's inverse, corrected for
/// rounding.
fn needed(wanted: u64, over: u64) -> u64 {
    if over == 0 || wanted >= over - over / COLD_FACTOR {
        return wanted.saturating_add(over / COLD_FACTOR);
    }
    let y = u128::from(wanted);
    let w = u128::from(over);
    // Both are below 2^64 and y < w, so the maximum is 13 w^2: it fits unless w is above 2^62,
    // which is 146 years.
    let root = (w * w).saturating_add(12 * w * y).isqrt();
    let mut t = (root.saturating_sub(w) / 2) as u64;
    while counted(t, over) < wanted {
        t += 1;
    }
    t
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn the_rate_grows_from_a_third_to_the_whole() {
        let warm = WarmUp::new(30 * SECOND, Nanos(0));
        let at = |s: u64| warm.counted_ns(Nanos(s * SECOND));
        let first = warm.counted_ns(Nanos(SECOND / 1000)) as f64 / (SECOND / 1000) as f64;
        assert!((first - 1.0 / 3.0).abs() < 0.001, "{first}");
        assert_eq!(at(30), 20 * SECOND);
        assert_eq!(at(31) - at(30), SECOND);
        let middle = (warm.counted_ns(Nanos(15 * SECOND + 1000)) - at(15)) as f64 / 1000.0;
        assert!((middle - 2.0 / 3.0).abs() < 0.01, "half way: {middle}");
    }

    #[test]
    fn a_clock_can_be_cold_again_and_loses_nothing() {
        let mut warm = WarmUp::new(3 * SECOND, Nanos(0));
        let before = warm.counted_ns(Nanos(10 * SECOND));
        warm.begin_again(Nanos(10 * SECOND));
        assert_eq!(warm.counted_ns(Nanos(10 * SECOND)), before);
        assert_eq!(warm.counted_ns(Nanos(13 * SECOND)), before + 2 * SECOND);
        assert_eq!(warm.share_of(90, Nanos(10 * SECOND)), 30);
        assert_eq!(warm.share_of(90, Nanos(13 * SECOND)), 90);
        assert_eq!(warm.share_of(1, Nanos(10 * SECOND)), 1);
    }

    proptest! {
        #[test]
        fn the_inverse_finds_the_first_moment(
            over in 0..100 * SECOND,
            wanted in 0..200 * SECOND,
            begun in 0..SECOND,
        ) {
            let warm = WarmUp::new(over, Nanos(begun));
            let moment = warm.moment(wanted);
            prop_assert!(warm.counted_ns(moment) >= wanted);
            prop_assert!(moment.0 <= begun || warm.counted_ns(Nanos(moment.0 - 1)) < wanted);
        }

        #[test]
        fn the_clock_never_runs_faster_than_time_or_backwards(
            over in 0..100 * SECOND,
            a in 0..200 * SECOND,
            b in 0..SECOND,
        ) {
            let warm = WarmUp::new(over, Nanos(0));
            let grown = warm.counted_ns(Nanos(a + b)) - warm.counted_ns(Nanos(a));
            prop_assert!(grown <= b + 1, "{grown} in {b}");
        }
    }
}
