//! Requests per second, beside the original's, and what each row gains over the first of its kind.

use hotrow_measure::statistics::{Comparison, Spread, VALUES_MIN, Verdict};

use super::document::{Block, Cell, Column, Table};
use super::labels::{Property, common, telling};
use super::numbers::{ends, number, ratio, ratio_ends};
use super::plot::{Bar, Bars, Plot};
use super::sections::Section;
use super::summary::{RowSummary, State, Summary};
use super::verdict;

/// Bars of one drawing.
const BARS_MAX: usize = 36;

pub(super) fn blocks(summary: &Summary<'_>, sections: &[Section<'_>]) -> Vec<Block> {
    let mut blocks = vec![Block::Heading("Requests per second".to_owned())];
    for section in sections {
        if !section.title.is_empty() {
            blocks.push(Block::Subheading(section.title.clone()));
        }
        blocks.push(Block::Table(table(summary, section)));
        blocks.push(Block::Plot(Plot::Bars(bars(section))));
    }
    if blocks.len() == 1 {
        blocks.push(Block::Text("The experiment has no rows.".to_owned()));
    } else if !summary.results.experiment.original.trim().is_empty() {
        blocks.push(Block::Text(format!("Original: {}", summary.results.experiment.original.trim())));
    }
    blocks
}

fn table(summary: &Summary<'_>, section: &Section<'_>) -> Table {
    let described = section.described();
    let properties = telling(&described);
    let has_original = described.iter().any(|row| row.original_rps.is_some());
    let mut columns: Vec<Column> = properties
        .iter()
        .map(|p| Column { name: p.name().to_owned(), figures: p.figures(), about: *p != Property::Setup })
        .collect();
    columns.extend([Column::figures("Requests/s"), Column::figures("Ratio")]);
    if has_original {
        columns.extend([Column::figures("Original"), Column::figures("Its ratio")]);
    }
    columns.push(Column::words("Limited by"));
    let row = |row: &RowSummary<'_>| {
        let mut cells: Vec<Cell> = properties.iter().map(|p| Cell::plain(p.of(row.row))).collect();
        cells.extend([rate(row), gain(section, row)]);
        if has_original {
            cells.push(row.row.original_rps.map_or_else(Cell::none, |rps| Cell::plain(number(rps))));
            cells.push(original_ratio(section, row).map_or_else(Cell::none, |r| Cell::plain(ratio(r))));
        }
        let limit = verdict::of(row, summary.results.host.cpus);
        cells.push(limit.map_or_else(Cell::none, |limit| Cell::plain(limit.short)));
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

fn foot(section: &Section<'_>) -> Vec<String> {
    let common = common(&section.described());
    let rounds = section.rows().map(|row| row.runs().len()).max().unwrap_or(0);
    let mut foot = Vec::new();
    if !common.is_empty() {
        foot.push(format!("In all rows: {}.", common.join("; ")));
    }
    let group = if section.groups.len() > 1 { "the first row of its group" } else { "the first row" };
    foot.push(match rounds {
        0 | 1 => format!("Ratio: to {group}."),
        n if n < VALUES_MIN => format!(
            "Medians of {n} rounds; below them the least and the largest, for an interval needs {VALUES_MIN} rounds. \
             Ratio: to {group}."
        ),
        n => format!("Medians of {n} rounds with their 95 % interval. Ratio: to {group}, paired by round."),
    });
    if section.rows().any(RowSummary::generator_limited) {
        foot.push("≥: the generator was the limit, so that the rate is a lower bound.".to_owned());
    }
    foot
}

fn rate(row: &RowSummary<'_>) -> Cell {
    match (&row.state, row.rps()) {
        (State::Failed(_), _) => Cell::failed(),
        (State::Measured(_), Some(rps)) => {
            let bound = if row.generator_limited() { "≥ " } else { "" };
            Cell::strong(format!("{bound}{}", number(rps.median)), ends(&rps, number))
        }
        (State::Missing, _) | (State::Measured(_), None) => Cell::quiet("not measured"),
    }
}

fn gain(section: &Section<'_>, row: &RowSummary<'_>) -> Cell {
    let Some(base) = section.base(row) else { return Cell::none() };
    if base.row.id == row.row.id {
        return if row.runs().is_empty() { Cell::none() } else { Cell::quiet("1") };
    }
    row.over(base, |run| Some(run.load.rps)).map_or_else(Cell::none, |found| ratio_cell(&found))
}

/// A ratio with its ends.
pub(super) fn ratio_cell(found: &Comparison) -> Cell {
    let ends = ratio_ends(found.low, found.high, if found.verdict == Verdict::TooFew { " … " } else { " – " });
    let detail = if found.values > 1 { ends } else { String::new() };
    Cell { text: ratio(found.ratio), detail, ..Cell::default() }
}

fn original_ratio(section: &Section<'_>, row: &RowSummary<'_>) -> Option<f64> {
    let base = section.base(row)?.row.original_rps.filter(|rps| *rps > 0.0)?;
    Some(row.row.original_rps? / base)
}

fn bars(section: &Section<'_>) -> Bars {
    let bar = |row: &RowSummary<'_>| {
        let (rps, base) = (row.rps(), section.base(row));
        let is_base = base.is_some_and(|base| base.row.id == row.row.id);
        let gained = base.and_then(RowSummary::rps).map(|rps| rps.median);
        Bar {
            label: section.label(row.row),
            value: rps.map(|rps| rps.median),
            words: rate(row).text,
            whisker: rps.filter(|rps| rps.values > 1).map(|rps| (rps.low, rps.high)),
            mark: original_ratio(section, row).zip(gained).filter(|_| !is_base).map(|(ratio, base)| ratio * base),
        }
    };
    let bars: Vec<Bar> = section.rows().take(BARS_MAX).map(bar).collect();
    let told: Vec<String> = bars.iter().map(|bar| format!("{}: {}", bar.label, bar.words)).collect();
    let whiskers = section.rows().filter_map(RowSummary::rps).find(|rps| rps.values > 1);
    let whisker = whiskers.map(|rps| match rps.spread {
        Spread::Interval => "95 % interval of the median".to_owned(),
        Spread::Range => "least and largest round".to_owned(),
    });
    let marked = bars.iter().any(|bar| bar.mark.is_some());
    Bars {
        title: "Requests per second".to_owned(),
        description: format!("Requests per second. {}.", told.join("; ")),
        whisker,
        mark: marked.then(|| "where it would be with the original's ratio".to_owned()),
        bars,
    }
}
