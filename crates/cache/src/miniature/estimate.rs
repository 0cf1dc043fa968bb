//! From counts of the sample to hit ratios with intervals.
//!
//! The misses of the sample, divided by the rate, estimate the misses of all lookups, whose number
//! is known. A very popular key that the sample has or lacks by chance changes the number of
//! sampled lookups much and the number of sampled misses hardly: this is the correction of
//! SHARDS-adj. The interval has two causes. Groups of sampled keys differ in their misses. And the
//! sample has by chance more or fewer keys than its share, so that a copy represents a smaller
//! or larger capacity: this matters where the curve is steep.

/// Number of groups of keys.
pub(super) const GROUPS: usize = 16;
/// Half the width of the interval in standard deviations. Calibrated on the traces of
/// `bench/curve`: with 2.13, Student's quantile for 95 %, about 86 % of the intervals held the
/// actual hit ratio.
const DEVIATIONS: f64 = 3.0;

/// Counts by group of keys; fractions, because old ones fade.
pub(super) type ByGroup = [f64; GROUPS];

/// What a count is related to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// Share of the keys that are sampled.
    pub(super) rate: f64,
    /// All lookups, sampled or not.
    pub(super) lookups: f64,
    /// Share of the sampled events that were lost.
    pub(super) dropped_share: f64,
}

/// A share of all lookups, from 0 to 1, with an interval that is meant to hold the actual share.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// The estimate.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Scale {
    /// Returns the number of sampled lookups that represent all lookups.
    fn expected(&self) -> f64 {
        self.rate * self.lookups * (1.0 - self.dropped_share)
    }

    /// Returns the share of all lookups that `counts` of the sample represent. It may be negative
    /// for a difference of counts. Dropped events widen the interval by their share.
    pub(super) fn share(&self, counts: &ByGroup) -> Estimate {
        self.share_with(counts, 0.0)
    }

    /// The same, with a standard deviation of another cause, as a share of all lookups.
    fn share_with(&self, counts: &ByGroup, deviation: f64) -> Estimate {
        let expected = self.expected();
        if expected <= 0.0 {
            return Estimate { value: 0.0, low: -1.0, high: 1.0 };
        }
        let sum: f64 = counts.iter().sum();
        let mean = sum / GROUPS as f64;
        let squares: f64 = counts.iter().map(|count| (count - mean).powi(2)).sum();
        let groups = GROUPS as f64;
        // Of the sum of the groups, drawn without replacement.
        let variance = (1.0 - self.rate) * groups * squares / (groups - 1.0);
        // Not `hypot`, which needs a newer C library than RHEL 9 has.
        let deviation = (variance / expected.powi(2) + deviation.powi(2)).sqrt();
        let half = DEVIATIONS * deviation + self.dropped_share;
        let value = sum / expected;
        Estimate { value, low: value - half, high: value + half }
    }

    /// Returns the hit ratio of a copy with these misses. `slope`: growth of the hit ratio with the
    /// logarithm of the capacity there; `capacity_deviation`: relative standard deviation of the
    /// capacity that the copy represents.
    pub(super) fn hit_ratio(
        &self,
        misses: &ByGroup,
        slope: f64,
        capacity_deviation: f64,
    ) -> Estimate {
        let missed = self.share_with(misses, slope * capacity_deviation);
        let within = |share: f64| (1.0 - share).clamp(0.0, 1.0);
        Estimate { value: within(missed.value), low: within(missed.high), high: within(missed.low) }
    }
}
