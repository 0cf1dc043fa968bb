//! Plots of the report.

use super::super::results::{Measured, Outcome, Results};
use super::super::timeline::{SHOWN_MAX, WINDOW};
use super::tables;
use hotrow_report::document::Block;
use hotrow_report::numbers;
use hotrow_report::plot::{Axis, Bar, Bars, Line, Lines, Plot, Scale, Timeline, Unit};

/// Returns the throughput of all models, and over the number of threads where that varies.
pub(super) fn throughput(results: &Results) -> Vec<Block> {
    let bar = |measured: &Measured| Bar {
        label: measured.name.clone(),
        value: measured.throughput_tps,
        words: measured.throughput_tps.map_or_else(
            || tables::ended(&measured.outcome),
            |tps| format!("{}/s", numbers::grouped(tps)),
        ),
        ..Bar::default()
    };
    let bars = Bars {
        title: "Requests per second".to_owned(),
        description: "Requests per second of every model; the table above has the same figures."
            .to_owned(),
        bars: results.models.iter().map(bar).collect(),
        mark: None,
        whisker: None,
    };
    let mut blocks = vec![Block::Plot(Plot::Bars(bars))];
    blocks.extend(over_threads(results).map(|lines| Block::Plot(Plot::Lines(lines))));
    blocks
}

fn over_threads(results: &Results) -> Option<Lines> {
    let curve = |label: &str, prefix: &str| {
        let family = results.models.iter().filter(|measured| measured.name.starts_with(prefix));
        let mut points: Vec<(f64, f64)> = family
            .filter_map(|measured| Some((measured.threads as f64, measured.throughput_tps?)))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Line { label: label.to_owned(), points }
    };
    let mut lines = vec![
        curve("pool on one queue", "pool-"),
        curve("batches of threads", "batches-"),
        curve("I/O-aware pool", "io-aware"),
        curve("work stealing", "stealing"),
    ];
    lines.retain(|line| !line.points.is_empty());
    let varied = lines.iter().any(|line| line.points.len() > 1);
    varied.then(|| Lines {
        title: "Requests per second over threads".to_owned(),
        description:
            "Requests per second over the number of threads: pools gain until sleep is hidden, \
             batches hardly."
                .to_owned(),
        x: Axis { name: "threads".to_owned(), scale: Scale::Log, unit: Unit::Number },
        y: Axis { name: "requests/s".to_owned(), scale: Scale::Linear, unit: Unit::Number },
        lines,
    })
}

/// Returns the timeline of a model's first moments.
pub(super) fn timeline(results: &Results, measured: &Measured) -> Option<Block> {
    let figures = measured.figures.as_ref().filter(|figures| !figures.timeline.is_empty())?;
    let window_us = WINDOW.as_micros() as f64 * results.scale;
    let shown = if measured.threads > SHOWN_MAX as u64 {
        format!(", {SHOWN_MAX} of {} threads", numbers::grouped(measured.threads as f64))
    } else {
        String::new()
    };
    let end = match measured.outcome {
        Outcome::Died { .. } => ", until it died",
        _ => "",
    };
    Some(Block::Plot(Plot::Timeline(Timeline {
        title: format!("The first {}{end}{shown}", numbers::micros(window_us)),
        description: format!(
            "Which threads of {} ran, slept and waited when the run began.",
            measured.name
        ),
        end_us: window_us,
        rows: figures.timeline.clone(),
    })))
}
