//! Latencies: percentiles in a table, and the whole distribution as curves.

use super::document::{Block, Cell, Column, Table};
use super::numbers::micros;
use super::plot::{Axis, Line, Lines, Plot, Scale, Unit};
use super::sections::Section;
use super::summary::{RowSummary, Run, State};
use super::svg::CURVES_MAX;
use crate::results::Load;

type Percentile = fn(&Load) -> Option<f64>;
const PERCENTILES: [(&str, Percentile); 6] = [
    ("p50", |load| load.p50_us),
    ("p90", |load| load.p90_us),
    ("p95", |load| load.p95_us),
    ("p99", |load| load.p99_us),
    ("p99.9", |load| load.p999_us),
    ("max", |load| load.max_us),
];

pub(super) fn blocks(sections: &[Section<'_>]) -> Vec<Block> {
    let mut blocks = vec![Block::Heading("Latency".to_owned())];
    for section in sections {
        if !section.title.is_empty() {
            blocks.push(Block::Subheading(section.title.clone()));
        }
        blocks.push(Block::Table(table(section)));
        blocks.extend(plots(section).into_iter().map(|lines| Block::Plot(Plot::Lines(lines))));
    }
    blocks
}

fn table(section: &Section<'_>) -> Table {
    let has_original = section.rows().any(|row| !row.row.original_more.is_empty());
    let mut columns = vec![Column::words("Set-up")];
    columns.extend(PERCENTILES.iter().map(|(name, _)| Column::figures(name)));
    if has_original {
        columns.push(Column::words("Original"));
    }
    let row = |row: &RowSummary<'_>| {
        let figure = |of: &Percentile| match (&row.state, row.median(|run| of(run.load))) {
            (State::Failed(_), _) => Cell::failed(),
            (_, Some(us)) => Cell::plain(micros(us)),
            (_, None) => Cell::none(),
        };
        let mut cells = vec![Cell::plain(section.label(row.row))];
        cells.extend(PERCENTILES.iter().map(|(_, of)| figure(of)));
        if has_original {
            let more: Vec<String> = row.row.original_more.iter().map(|(name, text)| format!("{name} {text}")).collect();
            cells.push(Cell::quiet(more.join(", ")));
        }
        cells
    };
    Table {
        caption: String::new(),
        columns,
        rows: section.rows().map(row).collect(),
        groups: section.breaks(),
        foot: vec!["From the time at which a request was due to its answer; medians over the rounds.".to_owned()],
    }
}

/// One drawing of all rows, or one of each group where they are too many.
fn plots(section: &Section<'_>) -> Vec<Lines> {
    let all: Vec<&RowSummary<'_>> = section.rows().collect();
    let parts = if all.len() <= CURVES_MAX { vec![all] } else { section.groups.clone() };
    parts.iter().filter_map(|rows| plot(section, rows)).collect()
}

fn plot(section: &Section<'_>, rows: &[&RowSummary<'_>]) -> Option<Lines> {
    let line = |row: &&RowSummary<'_>| {
        let points = row.middle().map(points).filter(|points| !points.is_empty())?;
        Some(Line { label: section.label(row.row), points })
    };
    let mut lines: Vec<Line> = rows.iter().filter_map(line).collect();
    let left_out = lines.len().saturating_sub(CURVES_MAX);
    lines.truncate(CURVES_MAX);
    let more = if left_out > 0 { format!(" (the first {CURVES_MAX})") } else { String::new() };
    let names: Vec<&str> = lines.iter().map(|line| line.label.as_str()).collect();
    let description = format!(
        "Latency over the share of requests that were at least as fast, in the round with the middle rate, of {}.",
        names.join("; ")
    );
    let title = format!("Latency by percentile{more}");
    (!lines.is_empty()).then(|| percentiles(title, description, lines))
}

/// Curves of latencies in µs over shares of requests.
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

fn points(run: &Run<'_>) -> Vec<(f64, f64)> {
    curve(&run.load.distribution)
}

/// Points of a curve from `(upper bound in µs, requests up to it)`: a bound stands at the middle of the last request under it,
/// so that the slowest request too has a place below 100 %.
#[must_use]
pub fn curve(distribution: &[(f64, u64)]) -> Vec<(f64, f64)> {
    let total = distribution.last().map_or(0, |(_, requests)| *requests);
    let place = |requests: u64| (requests as f64 - 0.5) / total as f64;
    distribution.iter().filter(|(_, requests)| *requests > 0).map(|(us, requests)| (place(*requests), *us)).collect()
}
