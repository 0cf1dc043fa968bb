//! Latency over the share of requests that were at least as fast.

use crate::plot::{Axis, Line, Lines, Scale, Unit};

/// Returns a plot of latencies in µs over shares of requests.
#[must_use]
pub fn percentiles(title: String, description: String, lines: Vec<Line>) -> Lines {
    Lines {
        title,
        description,
        x: Axis { name: "share of requests".to_owned(), scale: Scale::Nines, unit: Unit::Share },
        y: Axis { name: "latency".to_owned(), scale: Scale::Log, unit: Unit::Micros },
        lines,
    }
}

/// Returns the points of a curve from `(upper bound in µs, requests up to it)`. A bound is placed
/// at the middle of the last request below it, so that the slowest request lies below 100 %.
#[must_use]
pub fn curve(distribution: &[(f64, u64)]) -> Vec<(f64, f64)> {
    let total = distribution.last().map_or(0, |(_, requests)| *requests);
    let place = |requests: u64| (requests as f64 - 0.5) / total as f64;
    distribution
        .iter()
        .filter(|(_, requests)| *requests > 0)
        .map(|(us, requests)| (place(*requests), *us))
        .collect()
}
