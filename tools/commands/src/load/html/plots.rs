//! Plots of a run: the distribution of latency, and rate and latency over time.

use std::time::Duration;

use hotrow_load::latency_map::{Interval, LatencyMap, row_ends_ns};
use hotrow_load::outcome::{Outcome, Second};
use hotrow_load::stats::{CensoredNs, Timing};
use hotrow_report::numbers::{micros, percent};
use hotrow_report::plot::{
    Axis, Dot, HeatMap, Line, Lines, MarkedLines, Plot, Scale, Unit, latency_curve,
    latency_percentiles,
};

/// Most points of a curve; more could not be distinguished on a page.
const POINTS_MAX: usize = 600;
/// Shorter rests of a second are no points of a curve over time.
const SECOND_LENGTH_MIN: Duration = Duration::from_millis(500);
/// Length of the intervals that replace seconds in a short run, in s.
const SHORT_INTERVAL_S: f64 = 0.1;
/// Rows of the recorded map that make one of the drawn one: four per factor of two.
const ROWS_PER_CELL: usize = 4;

/// Points of a curve over time, and those of them that are lower bounds.
type OverTime = Vec<(f64, CensoredNs)>;

/// Returns the latency over the share of requests.
pub(super) fn distribution(outcome: &Outcome) -> Plot {
    let curves = [("latency", &outcome.total.latency), ("service time", &outcome.total.service)];
    let lines =
        curves.map(|(name, timing)| Line { label: name.to_owned(), points: points(timing) });
    let latency = &outcome.total.latency;
    let bounds = match latency.unbounded_count() {
        0 => String::new(),
        unbounded => format!(
            " The {} without the expected answer are at lower bounds.",
            percent(unbounded as f64 / latency.count() as f64)
        ),
    };
    Plot::Lines(latency_percentiles(
        "Latency by percentile".to_owned(),
        format!(
            "Latency and service time over the share of requests that were at least as \
             fast.{bounds}"
        ),
        lines.into_iter().filter(|line| !line.points.is_empty()).collect(),
    ))
}

/// Returns the plots over time.
pub(super) fn over_time(outcome: &Outcome) -> Vec<Plot> {
    let map = &outcome.latency_map;
    let short = map.interval_s() <= SHORT_INTERVAL_S && map.intervals().len() > 1;
    let [rates, latencies] = if short {
        [rates(answered_by_interval(outcome), Vec::new(), "100 ms"), fine_latencies(map)]
    } else {
        let seconds = whole(&outcome.seconds);
        let rate = |of: fn(&Second) -> u64| by_second(&seconds, of);
        let failed = rate(|second| second.errors + second.timeouts);
        let failed = if failed.iter().any(|(_, n)| *n > 0.0) { failed } else { Vec::new() };
        [rates(rate(|second| second.ok), failed, "second"), coarse_latencies(&seconds)]
    };
    let mut plots = vec![rates, latencies];
    plots.extend(heat_map(map).map(Plot::HeatMap));
    plots
}

/// Returns a duration's percentiles as a curve, with lower bounds of requests without the expected
/// answer.
fn points(timing: &Timing) -> Vec<(f64, f64)> {
    let mut up_to = 0;
    let all = timing.lower_bounds();
    let distribution: Vec<(f64, u64)> = all
        .iter()
        .map(|bucket| {
            up_to += bucket.count;
            (bucket.high.min(all.max()) as f64 / 1e3, up_to)
        })
        .collect();
    thinned(latency_curve(&distribution))
}

/// Returns seconds without short rests, whose figures vary; all of them if there are no others.
fn whole(seconds: &[Second]) -> Vec<&Second> {
    let whole: Vec<&Second> =
        seconds.iter().filter(|second| second.length >= SECOND_LENGTH_MIN).collect();
    if whole.is_empty() {
        seconds.iter().filter(|second| !second.length.is_zero()).collect()
    } else {
        whole
    }
}

fn by_second(seconds: &[&Second], of: fn(&Second) -> u64) -> Vec<(f64, f64)> {
    let point = |second: &&Second| {
        let length_s = second.length.as_secs_f64();
        (second.index as f64 + length_s, of(second) as f64 / length_s)
    };
    thinned(seconds.iter().map(point).collect())
}

/// Returns expected responses per second in each whole interval of the window.
fn answered_by_interval(outcome: &Outcome) -> Vec<(f64, f64)> {
    let map = &outcome.latency_map;
    let ends_s = (1..).map(|number: u32| f64::from(number) * map.interval_s());
    let within = ends_s.zip(map.intervals()).take_while(|(end_s, _)| {
        // A rest shorter than an interval has no rate of its own.
        *end_s <= outcome.window.as_secs_f64() + map.interval_s() / 100.0
    });
    within.map(|(end_s, interval)| (end_s, interval.answered() as f64 / map.interval_s())).collect()
}

fn rates(ok: Vec<(f64, f64)>, failed: Vec<(f64, f64)>, each: &str) -> Plot {
    let mut lines = vec![Line { label: "answered as expected".to_owned(), points: ok }];
    if !failed.is_empty() {
        lines.push(Line { label: "lost, wrong or timed out".to_owned(), points: failed });
    }
    Plot::Lines(Lines {
        title: "Requests per second".to_owned(),
        description: format!("Requests per second, with a point for each {each}."),
        x: Axis::time(),
        y: Axis { name: "requests/s".to_owned(), scale: Scale::Linear, unit: Unit::Number },
        lines,
    })
}

fn coarse_latencies(seconds: &[&Second]) -> Plot {
    let curve = |of: fn(&Second) -> Option<CensoredNs>| -> OverTime {
        let point = |second: &&Second| {
            Some((second.index as f64 + second.length.as_secs_f64(), of(second)?))
        };
        seconds.iter().filter_map(point).collect()
    };
    let curves = [
        ("p50", curve(|second| second.latency.p50)),
        ("p99", curve(|second| second.latency.p99)),
        ("max", curve(|second| second.latency.max)),
    ];
    latencies(&curves, "second")
}

/// Returns the quantiles of each interval; lower bounds are at the longest answer.
fn fine_latencies(map: &LatencyMap) -> Plot {
    let quantile = |interval: &Interval, share: f64| {
        let longest = interval.rows().iter().rposition(|count| *count > 0);
        match (interval.quantile_ns(share), longest) {
            (Some(ns), _) => Some(CensoredNs::Exact(ns)),
            (None, Some(row)) => row_ends_ns().nth(row).map(CensoredNs::AtLeast),
            (None, None) => None,
        }
    };
    let curve = |share: f64| -> OverTime {
        let intervals = map.intervals().iter().enumerate();
        intervals
            .filter_map(|(number, interval)| {
                Some(((number as f64 + 1.0) * map.interval_s(), quantile(interval, share)?))
            })
            .collect()
    };
    latencies(&[("p50", curve(0.5)), ("p99", curve(0.99)), ("max", curve(1.0))], "100 ms")
}

fn latencies(curves: &[(&str, OverTime)], each: &str) -> Plot {
    let us = |(at_s, value): &(f64, CensoredNs)| (*at_s, value.ns() as f64 / 1e3);
    let worst = curves.iter().flat_map(|(_, points)| points).map(|(_, value)| value.ns()).max();
    let worst = worst
        .map_or_else(String::new, |ns| format!(" The largest is {}.", micros(ns as f64 / 1e3)));
    let bounds = curves.iter().enumerate().flat_map(|(curve, (_, points))| {
        let bounds = points.iter().filter(|(_, value)| matches!(value, CensoredNs::AtLeast(_)));
        bounds.map(move |point| Dot { curve, at: us(point), hollow: true })
    });
    let dots: Vec<Dot> = thinned(bounds.collect());
    let line = |(name, points): &(&str, OverTime)| Line {
        label: (*name).to_owned(),
        points: thinned(points.iter().map(us).collect()),
    };
    Plot::Marked(MarkedLines {
        lines: Lines {
            title: "Latency".to_owned(),
            description: format!(
                "Median, 99th percentile and largest latency of each {each}.{worst}"
            ),
            x: Axis::time(),
            y: Axis::latency(),
            lines: curves.iter().map(line).collect(),
        },
        dots,
        hollow: Some(
            "hollow: at least this, among requests without the expected answer".to_owned(),
        ),
        bands: Vec::new(),
        rules: Vec::new(),
    })
}

/// Returns the map with coarser rows, without empty rows at its ends; `None` without answers.
fn heat_map(map: &LatencyMap) -> Option<HeatMap> {
    // The first row, of all that is shorter, is a part of the first cell.
    let coarse = |interval: &Interval| -> Vec<u64> {
        let (first, rows) = interval.rows().split_first().unwrap_or((&0, &[]));
        let sum = |rows: &[u32]| rows.iter().map(|count| u64::from(*count)).sum();
        let mut cells: Vec<u64> = rows.chunks(ROWS_PER_CELL).map(sum).collect();
        cells.iter_mut().take(1).for_each(|cell| *cell += u64::from(*first));
        cells
    };
    let counts: Vec<Vec<u64>> = map.intervals().iter().map(coarse).collect();
    let rows = counts.first()?.len();
    let mut filled = (0..rows).filter(|row| counts.iter().any(|column| column[*row] > 0));
    let first = filled.next()?;
    let last = filled.next_back().unwrap_or(first);
    let ends: Vec<f64> = row_ends_ns().step_by(ROWS_PER_CELL).map(|ns| ns as f64 / 1e3).collect();
    Some(HeatMap {
        title: "Latency over time".to_owned(),
        description: format!(
            "Expected answers by latency, in intervals of {} s.",
            map.interval_s()
        ),
        column_s: map.interval_s(),
        row_ends_us: ends.get(first..=last + 1)?.to_vec(),
        counts: counts.iter().map(|column| column[first..=last].to_vec()).collect(),
    })
}

/// Returns every n-th point, and the last.
fn thinned<T>(points: Vec<T>) -> Vec<T> {
    let step = points.len().div_ceil(POINTS_MAX).max(1);
    let last = points.len().saturating_sub(1);
    points
        .into_iter()
        .enumerate()
        .filter(|(i, _)| i % step == 0 || *i == last)
        .map(|(_, point)| point)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_runs_are_thinned_to_what_a_page_can_show() {
        let points: Vec<(f64, f64)> = (0..10_000).map(|i| (f64::from(i), 1.0)).collect();
        let kept = thinned(points);
        assert!(
            kept.len() <= POINTS_MAX + 1 && kept.last() == Some(&(9_999.0, 1.0)),
            "{}",
            kept.len()
        );
        assert_eq!(thinned(vec![(1.0, 2.0)]), [(1.0, 2.0)]);
    }

    #[test]
    fn lower_bounds_are_hollow() {
        let curve = vec![(1.0, CensoredNs::Exact(5_000)), (2.0, CensoredNs::AtLeast(7_000))];
        let Plot::Marked(drawn) = latencies(&[("p99", curve)], "second") else {
            unreachable!("curves with dots")
        };
        assert_eq!(drawn.dots, [Dot { curve: 0, at: (2.0, 7.0), hollow: true }]);
        assert_eq!(drawn.lines.lines[0].points, [(1.0, 5.0), (2.0, 7.0)]);
    }

    #[test]
    fn an_empty_map_has_no_heat_map() {
        assert_eq!(heat_map(&LatencyMap::default()), None);
    }
}
