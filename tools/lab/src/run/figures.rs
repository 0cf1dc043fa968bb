//! Figures of a measurement from samples. Pure, except for the generator's own memory.

use hotrow_load::outcome::Outcome;
use hotrow_load::stats::{CensoredNs, Timing};
use hotrow_measure::histogram::Histogram;

use super::instance::Backend;
use super::snapshot::Interval;
use crate::experiment::Figure;
use hotrow_results as results;

/// Most points of a distribution.
const POINTS_MAX: usize = 200;
/// Divisor for the spacing of points: each covers at least this part of the requests above the
/// point before, in even steps in the body and ever finer ones in the tail. A billion requests make
/// 187 points.
const POINT_PART: u64 = 9;

/// Returns the generator's result.
pub(super) fn load(outcome: &Outcome, verdict: String) -> results::Load {
    let counts = &outcome.total.counts;
    results::Load {
        window_s: outcome.window.as_secs_f64(),
        ok: counts.ok_in_window,
        errors: counts.errors.total() + counts.connect_errors,
        timeouts: counts.timeouts,
        rps: outcome.throughput_rps(),
        received_bytes: counts.bytes_received,
        generator_limited: outcome.limit().is_generator(),
        verdict,
        ..latencies(&outcome.total.latency)
    }
}

/// Returns a result with latencies only. Quantiles among requests without the expected response are
/// lower bounds.
fn latencies(latency: &Timing) -> results::Load {
    let mut lower_bounds = Vec::new();
    let mut us = |name: &str, known: Option<CensoredNs>| {
        if matches!(known, Some(CensoredNs::AtLeast(_))) {
            lower_bounds.push(name.to_owned());
        }
        known.map(|known| known.ns() as f64 / 1e3)
    };
    results::Load {
        mean_us: us("mean", latency.mean()),
        p50_us: us("p50", latency.quantile(0.5)),
        p90_us: us("p90", latency.quantile(0.9)),
        p95_us: us("p95", latency.quantile(0.95)),
        p99_us: us("p99", latency.quantile(0.99)),
        p999_us: us("p99.9", latency.quantile(0.999)),
        max_us: us("max", latency.max()),
        lower_bounds,
        unbounded: latency.unbounded_count(),
        distribution: distribution(&latency.lower_bounds()),
        ..results::Load::default()
    }
}

/// Returns upper bounds in µs, each with the number of requests up to it.
fn distribution(histogram: &Histogram) -> Vec<(f64, u64)> {
    let (total, mut counted, mut sum, mut points) = (histogram.count(), 0, 0, Vec::new());
    for bucket in histogram.iter() {
        sum += bucket.count;
        let enough = (sum - counted) * POINT_PART >= total - counted || sum == total;
        if bucket.count > 0 && enough && points.len() < POINTS_MAX {
            points.push((bucket.high as f64 / 1e3, sum));
            counted = sum;
        }
    }
    points
}

/// Returns the requests of each backend; empty if they have no counts.
pub(super) fn backends(backends: &[Backend], served: Option<&[u64]>) -> Vec<results::Backend> {
    let counted = backends.iter().zip(served.unwrap_or_default());
    counted
        .map(|(backend, served)| results::Backend {
            name: backend.name.clone(),
            weight: backend.weight,
            requests: *served,
        })
        .collect()
}

/// Returns the responses by origin behind a caching proxy: requests that no backend counted were
/// served from the cache.
pub(super) fn cache(outcome: &Outcome, served: Option<&[u64]>) -> Vec<(String, u64)> {
    let Some(served) = served else { return Vec::new() };
    let behind: u64 = served.iter().sum();
    let answered: u64 = outcome.total.counts.status.values().sum();
    vec![
        ("from the cache".to_owned(), answered.saturating_sub(behind)),
        ("from a backend".to_owned(), behind),
    ]
}

/// Returns figures from metrics, without those that have no value (zero divisor, missing series).
/// They are of all intervals together, between which instances ended or started.
pub(super) fn of_metrics(
    figures: &[Figure],
    intervals: &[Interval<'_>],
) -> Vec<(String, f64, String)> {
    let value = |figure: &Figure, series: &[String]| {
        let end = intervals.last()?.end.sum(series)?;
        let increase = || intervals.iter().map(|interval| interval.increase(series)).sum();
        Some(if figure.at_end { end } else { increase() })
    };
    let figure = |figure: &Figure| {
        let value = match figure.over.as_slice() {
            [] => value(figure, &figure.of)?,
            // A counter that was never incremented may be missing: zero.
            over => {
                value(figure, &figure.of).unwrap_or(0.0)
                    / value(figure, over).filter(|over| *over != 0.0)?
            }
        };
        // Metrics may be NaN.
        value.is_finite().then(|| (figure.name.clone(), value, figure.unit.clone()))
    };
    figures.iter().filter_map(figure).collect()
}

/// Returns the figures of one interval that are increases.
pub(super) fn of_phase(figures: &[Figure], interval: Interval<'_>) -> Vec<(String, f64, String)> {
    let increases: Vec<Figure> = figures.iter().filter(|of| !of.at_end).cloned().collect();
    of_metrics(&increases, &[interval])
}

/// Returns the resident memory of this process, in bytes; 0 if the system does not report it.
pub(super) fn own_rss_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::Snapshot;
    use super::*;

    #[test]
    fn a_distribution_is_bounded_and_keeps_the_tail() {
        let mut histogram = Histogram::default();
        // One in a million is slow.
        (1..=1000_u64).for_each(|us| histogram.record_n(us * 1000, 1000));
        histogram.record(5_000_000_000);
        let points = distribution(&histogram);
        assert!((20..=POINTS_MAX).contains(&points.len()), "{}", points.len());
        assert!(points.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1), "{points:?}");
        let (last_us, all) = points[points.len() - 1];
        assert!(last_us >= 4_900_000.0 && all == histogram.count(), "{last_us} {all}");
        // Half of the requests are up to about 500 µs.
        let median = points.iter().find(|(_, n)| *n >= 500_000).unwrap();
        assert!((450.0..620.0).contains(&median.0), "{median:?}");
        assert!(distribution(&Histogram::default()).is_empty());
    }

    #[test]
    fn latencies_of_requests_without_a_response_are_lower_bounds() {
        let mut timing = Timing::default();
        (0..970).for_each(|_| timing.answered.record(1_000_000));
        let exact = latencies(&timing);
        assert!(exact.lower_bounds.is_empty() && exact.unbounded == 0, "{exact:?}");
        timing.record_unbounded(50_000_000, 30);
        let load = latencies(&timing);
        assert_eq!(load.lower_bounds, ["mean", "p99", "p99.9", "max"]);
        assert_eq!((load.unbounded, load.distribution.last().map(|(_, n)| *n)), (30, Some(1000)));
        assert!(load.p95_us < Some(1_100.0) && load.p99_us > Some(49_000.0), "{load:?}");
        // The kept form keeps the bounds too; older results have none.
        let text = serde_json::to_string(&load).unwrap();
        assert_eq!(serde_json::from_str::<results::Load>(&text).unwrap(), load);
        assert!(!serde_json::to_string(&exact).unwrap().contains("bound"));
    }

    #[test]
    fn figures_come_from_increases() {
        let of = |text: &[&str]| text.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>();
        let figure = |name: &str, of_: &[&str], over: &[&str], at_end| Figure {
            name: name.to_owned(),
            unit: String::new(),
            of: of(of_),
            over: of(over),
            at_end,
        };
        let before = "lookups{result=\"hit\"} 10\nlookups{result=\"miss\"} 10\nbytes 5\n";
        let after = "lookups{result=\"hit\"} 40\nlookups{result=\"miss\"} 20\nbytes 7\nnew 3\n\
            nan NaN\n";
        let figures = [
            figure("ratio", &["lookups{result=\"hit\"}"], &["lookups"], false),
            figure("bytes", &["bytes"], &[], true),
            figure("new", &["new"], &[], false),
            figure("none of something", &["absent"], &["lookups"], false),
            figure("nothing to divide by", &["bytes"], &["absent"], false),
            figure("absent", &["absent"], &[], false),
            figure("no number", &["nan"], &[], true),
        ];
        let [before, after] = [before, after].map(|page| Snapshot::of(&[None], &[page]));
        let shown = |intervals: &[Interval<'_>]| -> Vec<(String, f64)> {
            let found = of_metrics(&figures, intervals);
            found.into_iter().map(|(name, value, _)| (name, value)).collect()
        };
        let whole = Interval { begin: &before, end: &after };
        let expected = [("ratio", 0.75), ("bytes", 7.0), ("new", 3.0), ("none of something", 0.0)];
        assert_eq!(shown(&[whole]), expected.map(|(name, value)| (name.to_owned(), value)));
        // An instance that was killed had counted too, and its successor began at zero.
        let lost = "lookups{result=\"hit\"} 20\nlookups{result=\"miss\"} 20\nbytes 100\n";
        let lost = Snapshot::of(&[None], &[lost]);
        let (first, zero) = (Interval { begin: &before, end: &lost }, lost.without(0));
        assert_eq!(
            shown(&[first, Interval { begin: &zero, end: &after }])[..2],
            [("ratio".to_owned(), 50.0 / 80.0), ("bytes".to_owned(), 7.0)]
        );
        assert_eq!(of_phase(&figures, whole).len(), 3, "without the values at the end");
    }
}
