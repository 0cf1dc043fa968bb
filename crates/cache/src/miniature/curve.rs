//! The curve: hit ratios by capacity, and what follows from them.

use super::estimate::{ByGroup, Estimate, Scale};
use super::simulation::{FadingTotals, Simulation};
use super::{COPIES, CURRENT, DOUBLE, FACTORS, HALF};

/// Sampled lookups from which on the curve is shown.
pub const LOOKUPS_MIN: u64 = 4_096;
/// Gain of twice the capacity, as a share of all lookups, from which on it is worth mentioning.
pub const GAIN_MIN: f64 = 0.005;
/// Loss by half the capacity, likewise, up to which it suffices.
pub const LOSS_MAX: f64 = 0.001;

/// A capacity and the hit ratio that it would have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The capacity as a multiple of the one in force.
    pub factor: f64,
    /// The capacity in bytes.
    pub capacity_bytes: u64,
    /// Answers from memory, as a share of all lookups.
    pub hit_ratio: Estimate,
    /// Keys read from the database per second, at the rate of lookups of the window.
    pub database_reads_per_s: f64,
}

/// Hit ratios of one collection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CollectionCurve {
    /// All its lookups in the window.
    pub lookups: f64,
    /// What the service measured; `None` without a lookup.
    pub measured: Option<f64>,
    /// At the capacities of [`Curve::points`]; `None` without a lookup.
    pub hit_ratios: Option<[f64; COPIES]>,
}

/// What the curve says about the capacity in force.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Advice {
    /// Twice the capacity gains this share of all lookups.
    Grow(f64),
    /// Half the capacity suffices: it loses this share of all lookups.
    Shrink(f64),
    /// Twice gains too little, and half loses too much.
    Keep {
        /// Gain by twice the capacity.
        gain: f64,
        /// Loss by half the capacity.
        loss: f64,
    },
}

/// The curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Share of the keys that are sampled.
    pub sampling_rate: f64,
    /// Lookups that were replayed since the beginning.
    pub sampled_lookups: u64,
    /// Events that were lost since the beginning.
    pub dropped: u64,
    /// Time that the figures describe, in seconds: at most an hour, with less weight on old counts.
    pub window_s: f64,
    /// What the service measured in the same window, at the capacity in force.
    pub measured: f64,
    /// Rising.
    pub points: [Point; COPIES],
    /// By collection.
    pub collections: Vec<CollectionCurve>,
    /// What follows.
    pub advice: Advice,
}

impl Curve {
    /// Returns the point of the capacity in force.
    pub fn current(&self) -> &Point {
        &self.points[CURRENT]
    }

    /// Returns the point of half that capacity.
    pub fn half(&self) -> &Point {
        &self.points[HALF]
    }

    /// Returns the point of twice that capacity.
    pub fn double(&self) -> &Point {
        &self.points[DOUBLE]
    }
}

/// Returns the growth of the hit ratio with the logarithm of the capacity, between the neighbours
/// of a point.
fn slope(values: &[f64; COPIES], at: usize) -> f64 {
    let (below, above) = (at.saturating_sub(1), (at + 1).min(COPIES - 1));
    (values[above] - values[below]) / (FACTORS[above] / FACTORS[below]).ln()
}

impl Simulation {
    /// Returns the curve; `None` before [`LOOKUPS_MIN`] sampled lookups.
    pub fn curve(&self) -> Option<Curve> {
        let mut all = FadingTotals::default();
        for collection in &self.collections {
            all.answered += collection.all.answered;
            all.lookups += collection.all.lookups;
            all.reads += collection.all.reads;
        }
        if self.sampled_total < LOOKUPS_MIN || all.lookups < 1.0 {
            return None;
        }
        let dropped_share = self.dropped / (self.dropped + self.sampled).max(1.0);
        let rate = self.settings.rate.share();
        let scale = Scale { rate, lookups: all.lookups, dropped_share };
        let missed = all.lookups - all.answered;
        // Some misses join the read of another one.
        let reads_per_miss = if missed > 0.0 { (all.reads / missed).min(1.0) } else { 1.0 };
        let misses_per_s = |share: f64| share * all.lookups / self.window_s.max(1.0);
        let values = self.misses.map(|misses| 1.0 - scale.share(&misses).value);
        let point = |at: usize| {
            let deviation = self.capacity_deviation(at);
            let hit_ratio = scale.hit_ratio(&self.misses[at], slope(&values, at), deviation);
            Point {
                factor: FACTORS[at],
                capacity_bytes: (self.settings.capacity_bytes as f64 * FACTORS[at]) as u64,
                hit_ratio,
                database_reads_per_s: misses_per_s(1.0 - hit_ratio.value) * reads_per_miss,
            }
        };
        let collection = |own: &super::simulation::CollectionCounts| {
            let FadingTotals { answered, lookups, .. } = own.all;
            let expected = rate * lookups * (1.0 - dropped_share);
            let is_known = lookups >= 1.0 && expected > 0.0;
            let hit_ratio = |misses: f64| (1.0 - misses / expected).clamp(0.0, 1.0);
            CollectionCurve {
                lookups,
                measured: (lookups >= 1.0).then(|| answered / lookups),
                hit_ratios: is_known.then(|| own.misses.map(hit_ratio)),
            }
        };
        Some(Curve {
            sampling_rate: rate,
            sampled_lookups: self.sampled_total,
            dropped: self.dropped_total,
            window_s: self.window_s,
            measured: all.answered / all.lookups,
            points: std::array::from_fn(point),
            collections: self.collections.iter().map(collection).collect(),
            advice: self.advice(&scale),
        })
    }

    /// Compares twice and half the capacity with the one in force. The differences are more precise
    /// than the hit ratios themselves, because all copies see the same keys.
    fn advice(&self, scale: &Scale) -> Advice {
        let between = |fewer: usize, more: usize| {
            let differences: ByGroup =
                std::array::from_fn(|group| self.misses[fewer][group] - self.misses[more][group]);
            scale.share(&differences)
        };
        let gain = between(CURRENT, DOUBLE);
        let loss = between(HALF, CURRENT);
        if gain.value >= GAIN_MIN && gain.low > 0.0 {
            Advice::Grow(gain.value)
        } else if loss.value <= LOSS_MAX && loss.high < GAIN_MIN {
            Advice::Shrink(loss.value.max(0.0))
        } else {
            Advice::Keep { gain: gain.value.max(0.0), loss: loss.value.max(0.0) }
        }
    }
}
