//! Latencies: a table of percentiles, and the distributions as curves.

use super::sections::Section;
use super::summary::{RowState, RowSummary, Run};
use hotrow_report::document::{Block, Cell, Column, Table};
use hotrow_report::numbers::micros;
use hotrow_report::plot::{CURVES_MAX, Line, Lines, Plot, latency_curve, latency_percentiles};
use hotrow_results::Load;

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
    let has_published = section.rows().any(|row| !row.row.published_more.is_empty());
    let mut columns = vec![Column::words("Deployment")];
    columns.extend(PERCENTILES.iter().map(|(name, _)| Column::figures(name)));
    if has_published {
        columns.push(Column::words("Published"));
    }
    let row = |row: &RowSummary<'_>| {
        let figure =
            |(name, of): &(&str, Percentile)| match (&row.state, row.median(|run| of(run.load))) {
                (RowState::Failed(_), _) => Cell::failed(),
                (_, Some(us)) => Cell::plain(format!("{}{}", lower_bound(row, name), micros(us))),
                (_, None) => Cell::none(),
            };
        let mut cells = vec![Cell::plain(section.label(row.row))];
        cells.extend(PERCENTILES.iter().map(figure));
        if has_published {
            let more: Vec<String> = row
                .row
                .published_more
                .iter()
                .map(|(name, text)| format!("{name} {text}"))
                .collect();
            cells.push(Cell::quiet(more.join(", ")));
        }
        cells
    };
    Table {
        caption: String::new(),
        columns,
        rows: section.rows().map(row).collect(),
        groups: section.breaks(),
        foot: foot(section),
    }
}

/// Returns the mark of a percentile that is a lower bound in any round: the median may be larger.
fn lower_bound(row: &RowSummary<'_>, name: &str) -> &'static str {
    let bound = |run: &Run<'_>| run.load.lower_bounds.iter().any(|bound| bound == name);
    if row.runs().iter().any(bound) { "≥ " } else { "" }
}

fn foot(section: &Section<'_>) -> Vec<String> {
    let mut foot =
        vec!["From a request's intended time to its response; medians over the rounds.".to_owned()];
    if section.rows().flat_map(RowSummary::runs).any(|run| run.load.unbounded > 0) {
        foot.push(
            "≥: a lower bound, because requests without the expected response are behind it. \
             Curves end before these."
                .to_owned(),
        );
    }
    foot
}

/// Returns one plot of all rows, or one per group if there are too many.
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
        "Latency over the share of requests that were at least as fast, in the round with the \
         middle rate, of {}.",
        names.join("; ")
    );
    let title = format!("Latency by percentile{more}");
    (!lines.is_empty()).then(|| latency_percentiles(title, description, lines))
}

/// Returns the curve of a run, without the requests of which only lower bounds are known.
fn points(run: &Run<'_>) -> Vec<(f64, f64)> {
    let distribution = &run.load.distribution;
    let all = distribution.last().map_or(0, |(_, requests)| *requests);
    let known = all.saturating_sub(run.load.unbounded);
    let mut points = latency_curve(distribution);
    let answered = distribution.iter().filter(|(_, requests)| (1..=known).contains(requests));
    points.truncate(answered.count());
    points
}

#[cfg(test)]
mod tests {
    use super::super::summary::Summary;
    use super::super::tests::fixture;
    use super::*;

    #[test]
    fn a_curve_ends_before_requests_without_a_response() {
        let shown = |unbounded: u64| {
            let mut results = fixture::results(1);
            let load = results.measurements[0].load.as_mut().unwrap();
            load.distribution = vec![(10.0, 50), (20.0, 90), (30.0, 100)];
            load.unbounded = unbounded;
            let summary = Summary::of(&results);
            points(&summary.row("direct/date/1").unwrap().runs()[0])
        };
        assert_eq!(shown(0), [(0.495, 10.0), (0.895, 20.0), (0.995, 30.0)]);
        assert_eq!(shown(10), [(0.495, 10.0), (0.895, 20.0)]);
        assert_eq!(shown(20), [(0.495, 10.0)]);
        assert!(shown(100).is_empty());
    }
}
