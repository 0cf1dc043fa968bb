//! Prediction of the hit ratio at other capacities: miniature simulations.
//!
//! A hash selects a share of the keys ([`sampling`]). Every event of these keys is replayed in
//! eight copies of the store that are smaller by the same share ([`Simulation`]): their hit ratios
//! are those of stores with a fourth to eight times the capacity ([`curve`]). The method is that
//! of Waldspurger and others, "Cache Modeling and Optimization using Miniature Simulations" (2017).
//!
//! Replayed: lookups, weights, the time to live, changes, purges, flushes, gaps of the feed, the
//! warm start, and that scanning clients' hits count as no use. Not replayed: requests that read
//! past memory, lookups while the feed is behind, the order of events that are closer together
//! than a read takes, compressed forms before the next lookup of their record, and what scanning
//! clients read that the real store did not keep.

mod copy;
pub mod curve;
mod estimate;
mod plan;
pub mod sampling;
mod simulation;

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;

pub use self::curve::{Advice, CollectionCurve, Curve, Point};
pub use self::estimate::Estimate;
pub use self::plan::{COPY_ENTRIES_MIN, MEMORY_BYTES_MAX, RATE_MAX, RATE_MIN, Unplanned, plan};
pub use self::simulation::{LookupTotals, Settings, Simulation};

/// Number of copies.
pub const COPIES: usize = 8;
/// Capacity of each copy as a multiple of the store's.
pub const FACTORS: [f64; COPIES] = [0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0, 8.0];
/// Sum of [`FACTORS`].
const FACTORS_SUM: f64 = 18.0;
/// Index of half the capacity.
const HALF: usize = 1;
/// Index of the capacity in force.
const CURRENT: usize = 3;
/// Index of twice the capacity.
const DOUBLE: usize = 5;
