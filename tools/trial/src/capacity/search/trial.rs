//! One load of a search, and its verdict.

use std::time::Duration;

/// Distance of the lower plateau below the highest rate that short steps met. Short steps err
/// upwards: a burst that fits in a buffer, or a random queue that has not met its worst burst yet,
/// hides the limit. Value found by simulation.
pub const MARGIN_BELOW: f64 = 1.025;
/// Relative difference below which two rates are equal.
pub(super) const SAME: f64 = 1e-6;

/// One load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// Requests per second.
    pub rate_rps: f64,
    /// Warm-up before `length`; not counted.
    pub warmup: Duration,
    /// Measured time.
    pub length: Duration,
    /// Time without load afterwards.
    pub pause: Duration,
    /// Purpose of the load.
    pub purpose: Purpose,
}

/// Purpose of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Doubles the last rate that met the objective.
    Climb,
    /// Halves the last rate that failed, while no rate has met the objective.
    Fall,
    /// Bisects between a rate that met the objective and one that did not.
    Bisect,
    /// Plateau just below the highest rate that met the objective, or lower after one that failed.
    Confirm,
    /// Plateau just above the lowest rate that failed.
    SecondLook,
}

/// RateVerdict on a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateVerdict {
    /// The objective was met.
    Kept,
    /// The objective was missed.
    Missed,
    /// The generator was the bottleneck, so the load says nothing about the target.
    GeneratorLimited,
    /// The load caused harm; the search must end.
    Harmed,
}

/// One end of an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// Requests per second.
    pub rate_rps: f64,
    /// True if a plateau confirms it; otherwise a short step does.
    pub firm: bool,
    /// True if the generator was the bottleneck there.
    pub generator: bool,
}
