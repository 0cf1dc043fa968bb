//! Requests per second, beside published ones, and the ratio of each row to the first of its group.

use hotrow_measure::statistics::{Comparison, ComparisonVerdict, Spread, VALUES_MIN};

use super::bounds::Bound;
use super::labels::{common, distinguishing};
use super::sections::Section;
use super::summary::{RowState, RowSummary, Summary};
use super::verdict;
use hotrow_report::document::{Block, Cell, Column, Table};
use hotrow_report::numbers::{ends, number, ratio, ratio_ends};
use hotrow_report::plot::{Bar, Bars, Plot};

/// Most bars of one plot.
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
    } else if !summary.results.experiment.published_source.trim().is_empty() {
        blocks.push(Block::Text(format!(
            "Published figures: {}",
            summary.results.experiment.published_source.trim()
        )));
    }
    blocks
}

fn table(summary: &Summary<'_>, section: &Section<'_>) -> Table {
    let described = section.described();
    let properties = distinguishing(&described);
    let has_published = described.iter().any(|row| row.published_rps.is_some());
    let mut columns: Vec<Column> = properties
        .iter()
        .map(|p| Column { name: p.name().to_owned(), figures: p.figures() })
        .collect();
    columns.extend([Column::figures("Requests/s"), Column::figures("Ratio")]);
    if has_published {
        columns.extend([Column::figures("Published"), Column::figures("Published ratio")]);
    }
    columns.push(Column::words("Limited by"));
    let row = |row: &RowSummary<'_>| {
        let mut cells: Vec<Cell> = properties.iter().map(|p| Cell::plain(p.of(row.row))).collect();
        cells.extend([rate(row), gain(section, row)]);
        if has_published {
            cells.push(
                row.row.published_rps.map_or_else(Cell::none, |rps| Cell::plain(number(rps))),
            );
            cells.push(
                published_ratio(section, row).map_or_else(Cell::none, |r| Cell::plain(ratio(r))),
            );
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
    let group =
        if section.groups.len() > 1 { "the first row of its group" } else { "the first row" };
    foot.push(match rounds {
        0 | 1 => format!("Ratio: to {group}."),
        n if n < VALUES_MIN => format!(
            "Medians of {n} rounds; below them the least and the largest, for an interval needs \
             {VALUES_MIN} rounds. Ratio: to {group}."
        ),
        n => format!(
            "Medians of {n} rounds with their 95 % interval. Ratio: to {group}, paired by round."
        ),
    });
    if section.rows().any(RowSummary::generator_limited) {
        foot.push(
            "≥ and ≤: the generator was the limit, so that a rate is a lower bound, and a ratio \
             a bound, or not known if it was the limit of both rows."
                .to_owned(),
        );
    }
    foot
}

fn rate(row: &RowSummary<'_>) -> Cell {
    match (&row.state, row.rps()) {
        (RowState::Failed(_), _) => Cell::failed(),
        (RowState::Measured(_), Some(rps)) => {
            let bound = Bound::of_rate(row).sign();
            Cell::strong(format!("{bound}{}", number(rps.median)), ends(&rps, number))
        }
        (RowState::Missing, _) | (RowState::Measured(_), None) => Cell::quiet("not measured"),
    }
}

fn gain(section: &Section<'_>, row: &RowSummary<'_>) -> Cell {
    let Some(base) = section.base(row) else { return Cell::none() };
    if base.row.id == row.row.id {
        return if row.runs().is_empty() { Cell::none() } else { Cell::quiet("1") };
    }
    let bound = Bound::of_ratio(row, base);
    row.over(base, |run| Some(run.load.rps))
        .map_or_else(Cell::none, |found| ratio_cell(&found, bound))
}

/// Returns a cell with a ratio and its interval.
pub(super) fn ratio_cell(found: &Comparison, bound: Bound) -> Cell {
    if bound == Bound::Unknown {
        return Cell::quiet("not known");
    }
    let ends = ratio_ends(
        found.low,
        found.high,
        if found.verdict == ComparisonVerdict::TooFew { " … " } else { " – " },
    );
    let detail = if found.values > 1 { ends } else { String::new() };
    Cell { text: format!("{}{}", bound.sign(), ratio(found.ratio)), detail, ..Cell::default() }
}

fn published_ratio(section: &Section<'_>, row: &RowSummary<'_>) -> Option<f64> {
    let base = section.base(row)?.row.published_rps.filter(|rps| *rps > 0.0)?;
    Some(row.row.published_rps? / base)
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
            mark: published_ratio(section, row)
                .zip(gained)
                .filter(|_| !is_base)
                .map(|(ratio, base)| ratio * base),
        }
    };
    let bars: Vec<Bar> = section.rows().take(BARS_MAX).map(bar).collect();
    let values: Vec<String> =
        bars.iter().map(|bar| format!("{}: {}", bar.label, bar.words)).collect();
    let whiskers = section.rows().filter_map(RowSummary::rps).find(|rps| rps.values > 1);
    let whisker = whiskers.map(|rps| match rps.spread {
        Spread::Interval => "95 % interval of the median".to_owned(),
        Spread::Range => "least and largest round".to_owned(),
    });
    let marked = bars.iter().any(|bar| bar.mark.is_some());
    Bars {
        title: "Requests per second".to_owned(),
        description: format!("Requests per second. {}.", values.join("; ")),
        whisker,
        mark: marked.then(|| "value at the published ratio".to_owned()),
        bars,
    }
}
