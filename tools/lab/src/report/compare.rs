//! Comparison of two runs of one experiment, row by row.

use hotrow_measure::statistics::{self, Comparison, ComparisonVerdict, VALUES_MIN};

use super::bounds::Bound;
use super::sections::{Section, sections};
use super::summary::{RowState, RowSummary, SEED, Summary};
use super::verdict as limits;
use hotrow_report::document::{Block, Cell, CellStyle, Column, Document, Table};
use hotrow_report::numbers::{bytes, date, ends, number, percent, ratio, ratio_ends};
use hotrow_report::plot::{Bar, Bars, Plot};
use hotrow_results::{Host, Results, Row};

/// Reason two runs cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// They belong to different experiments.
    #[error(
        "A is a run of the experiment {a:?} and B one of {b:?}; compare runs of the same experiment"
    )]
    Experiments {
        /// Name of the first.
        a: String,
        /// Name of the second.
        b: String,
    },
    /// A row has different conditions.
    #[error(
        "the row {row:?} is {a} in A and {b} in B; compare runs of the same form of the experiment"
    )]
    Rows {
        /// Its id.
        row: String,
        /// Its conditions in the first.
        a: String,
        /// Its conditions in the second.
        b: String,
    },
    /// They have no common row.
    #[error("no row is in both runs; the first rows are {a:?} in A and {b:?} in B")]
    NothingInCommon {
        /// A row of the first.
        a: String,
        /// A row of the second.
        b: String,
    },
}

/// Compares run B with run A; a ratio above 1 means that B is faster.
///
/// # Errors
/// Runs of different experiments.
pub fn document(a: &Results, b: &Results) -> Result<Document, CompareError> {
    check(a, b)?;
    let (first, second) = (Summary::of(a), Summary::of(b));
    let sections = sections(&first);
    let mut counts = Counts::default();
    let tables: Vec<(String, Table, Bars)> = sections
        .iter()
        .map(|section| {
            let rows: Vec<Pair<'_>> =
                section.rows().map(|row| Pair::of(row, &first, &second)).collect();
            rows.iter().for_each(|pair| counts.add(pair));
            (section.title.clone(), table(section, &rows), bars(section, &rows))
        })
        .collect();
    let mut blocks = vec![Block::Answer(counts.sentence())];
    blocks.extend(warnings(a, b).into_iter().map(Block::Warning));
    blocks.push(Block::Heading("Requests per second".to_owned()));
    for (title, table, bars) in tables {
        if !title.is_empty() {
            blocks.push(Block::Subheading(title));
        }
        blocks.extend([Block::Table(table), Block::Plot(Plot::Bars(bars))]);
    }
    blocks.push(Block::Heading("The two runs".to_owned()));
    let run = |run: &Results| {
        format!("{}, {}; {}", date(run.began_unix_s), machine(&run.host), run.command)
    };
    blocks.push(Block::Facts(vec![("A".to_owned(), run(a)), ("B".to_owned(), run(b))]));
    let about = &a.experiment;
    let title = if about.title.trim().is_empty() { &about.name } else { &about.title };
    Ok(Document {
        title: format!("B against A: {title}"),
        subtitle: format!("Experiment {}; {}", about.name, measured_on(a, b)),
        blocks,
    })
}

/// Describes when and where both runs were made.
fn measured_on(a: &Results, b: &Results) -> String {
    let (on_a, on_b) = (machine(&a.host), machine(&b.host));
    let (date_a, date_b) = (date(a.began_unix_s), date(b.began_unix_s));
    if on_a == on_b {
        format!("A {date_a}, B {date_b}; {on_a}")
    } else {
        format!("A {date_a}, {on_a}; B {date_b}, {on_b}")
    }
}

fn check(a: &Results, b: &Results) -> Result<(), CompareError> {
    if a.experiment.name != b.experiment.name {
        return Err(CompareError::Experiments {
            a: a.experiment.name.clone(),
            b: b.experiment.name.clone(),
        });
    }
    let mut common = false;
    for row in &a.rows {
        let Some(other) = b.rows.iter().find(|other| other.id == row.id) else { continue };
        common = true;
        if meaning(row) != meaning(other) {
            return Err(CompareError::Rows {
                row: row.id.clone(),
                a: meaning(row),
                b: meaning(other),
            });
        }
    }
    let id = |results: &Results| results.rows.first().map(|row| row.id.clone()).unwrap_or_default();
    if common { Ok(()) } else { Err(CompareError::NothingInCommon { a: id(a), b: id(b) }) }
}

/// Describes the conditions of a row.
fn meaning(row: &Row) -> String {
    let mut parts = vec![
        row.request.clone(),
        format!("proxy {}", row.proxy),
        format!("caching {}", row.caching),
        format!("balancing {}", row.balancing),
        format!("connections {}", row.connections),
        format!("keep-alive {}", if row.keepalive { "on" } else { "off" }),
    ];
    parts.extend(row.rate.map(|rate| format!("{}/s", number(rate))));
    parts.extend(row.conditions.iter().map(|(name, value)| format!("{name} {value}")));
    parts.join(", ")
}

/// A row in both runs.
struct Pair<'a> {
    a: &'a RowSummary<'a>,
    b: Option<&'a RowSummary<'a>>,
    found: Option<Comparison>,
    /// Bound of the ratio.
    bound: Bound,
    /// Bottleneck in a few words; empty without a measurement.
    limited: String,
}

impl<'a> Pair<'a> {
    fn of(a: &'a RowSummary<'a>, first: &Summary<'a>, second: &'a Summary<'a>) -> Self {
        let b = second.row(&a.row.id);
        let rates =
            |row: &RowSummary<'_>| row.runs().iter().map(|run| run.load.rps).collect::<Vec<_>>();
        let found = b.and_then(|b| statistics::compare(&rates(b), &rates(a), SEED));
        let limit =
            |row, of: &Summary<'_>| limits::of(row, of.results.host.cpus).map(|limit| limit.short);
        let limited = match (limit(a, first), b.and_then(|b| limit(b, second))) {
            (Some(a), Some(b)) if a != b => format!("A: {a}; B: {b}"),
            (a, b) => a.or(b).unwrap_or_default(),
        };
        let bound = b.map_or(Bound::Exact, |b| Bound::of_ratio(b, a));
        Self { a, b, found, bound, limited }
    }
}

#[derive(Debug, Default)]
struct Counts {
    faster: usize,
    slower: usize,
    alike: usize,
    few: usize,
    /// The generator was the limit, so that the measured difference shows none of the services.
    bounded: usize,
    none: usize,
}

impl Counts {
    fn add(&mut self, pair: &Pair<'_>) {
        let count = match pair.found.map(|found| found.verdict) {
            Some(verdict) if !pair.bound.supports(verdict) => &mut self.bounded,
            Some(ComparisonVerdict::Faster) => &mut self.faster,
            Some(ComparisonVerdict::Slower) => &mut self.slower,
            Some(ComparisonVerdict::NoDifferenceShown) => &mut self.alike,
            Some(ComparisonVerdict::TooFew) => &mut self.few,
            None => &mut self.none,
        };
        *count += 1;
    }

    fn sentence(&self) -> String {
        let Self { faster, slower, alike, few, bounded, none } = *self;
        let judged = faster + slower + alike;
        let rows = |n: usize| if n == 1 { "1 row".to_owned() } else { format!("{n} rows") };
        let mut parts = Vec::new();
        if judged > 0 {
            parts.push(match (faster, slower) {
                (0, 0) => format!("No difference is shown in {}.", rows(alike)),
                _ => format!(
                    "B is faster than A in {faster} and slower in {slower} of {}.",
                    rows(judged)
                ),
            });
        }
        if few > 0 {
            parts.push(format!("For {} there are too few rounds.", rows(few)));
        }
        if bounded > 0 {
            parts.push(format!(
                "For {} the generator was the limit, so that no difference can be shown.",
                rows(bounded)
            ));
        }
        if none > 0 {
            parts.push(format!(
                "{} cannot be compared, because it failed or is missing in a run.",
                rows(none)
            ));
        }
        parts.join(" ")
    }
}

fn warnings(a: &Results, b: &Results) -> Vec<String> {
    let mut warnings = Vec::new();
    if a.host != b.host {
        warnings.push(
            "the runs were made on different machines, kernels or versions: which may cause a \
             difference."
                .to_owned(),
        );
    }
    if a.duration_s != b.duration_s {
        warnings.push("measurements of A and B had different lengths.".to_owned());
    }
    for (name, run) in [("A", a), ("B", b)] {
        if !run.complete {
            warnings.push(format!("{name} is not complete."));
        }
    }
    warnings
}

fn table(section: &Section<'_>, rows: &[Pair<'_>]) -> Table {
    let row = |pair: &Pair<'_>| {
        let said =
            pair.found.map_or_else(Cell::none, |found| Cell::plain(verdict(&found, pair.bound)));
        vec![
            Cell::plain(section.label(pair.a.row)),
            rate(Some(pair.a)),
            rate(pair.b),
            match pair.found {
                Some(_) if pair.bound == Bound::Unknown => Cell::quiet("not known"),
                Some(found) => Cell {
                    style: CellStyle::Strong,
                    ..super::rates::ratio_cell(&found, pair.bound)
                },
                None => Cell::none(),
            },
            said,
            if pair.limited.is_empty() { Cell::none() } else { Cell::plain(pair.limited.clone()) },
        ]
    };
    Table {
        caption: String::new(),
        columns: vec![
            Column::words("Deployment"),
            Column::figures("A"),
            Column::figures("B"),
            Column::figures("B over A"),
            Column::words("B against A"),
            Column::words("Limited by"),
        ],
        rows: rows.iter().map(row).collect(),
        groups: section.breaks(),
        foot: vec![format!(
            "Medians with 95 % intervals, of {VALUES_MIN} rounds and more. Rounds of two runs are \
             no pairs: what drifted between the runs counts as a difference. Of 20 rows without \
             one, about one shows one by chance."
        )],
    }
}

/// Describes the verdict in a few words.
fn verdict(found: &Comparison, bound: Bound) -> String {
    match found.verdict {
        _ if bound == Bound::Unknown => "not known: the generator was the limit of both".to_owned(),
        ComparisonVerdict::Faster => {
            format!("{}{} faster", bound.words(), percent(found.ratio - 1.0))
        }
        ComparisonVerdict::Slower => {
            format!("{}{} slower", bound.inverse().words(), percent(1.0 - found.ratio))
        }
        ComparisonVerdict::NoDifferenceShown => "no difference shown".to_owned(),
        ComparisonVerdict::TooFew => "too few rounds".to_owned(),
    }
}

fn rate(row: Option<&RowSummary<'_>>) -> Cell {
    match row.map(|row| (&row.state, row.rps())) {
        Some((RowState::Failed(_), _)) => Cell::failed(),
        Some((_, Some(rps))) => {
            let sign = row.map_or("", |row| Bound::of_rate(row).sign());
            let detail = ends(&rps, number);
            Cell { detail, ..Cell::plain(format!("{sign}{}", number(rps.median))) }
        }
        Some((_, None)) | None => Cell::quiet("not measured"),
    }
}

fn bars(section: &Section<'_>, rows: &[Pair<'_>]) -> Bars {
    let bars: Vec<Bar> = rows
        .iter()
        .map(|pair| Bar {
            label: section.label(pair.a.row),
            value: pair.found.map(|found| found.ratio),
            words: match pair.found {
                Some(_) if pair.bound == Bound::Unknown => "not known".to_owned(),
                Some(found) => format!("{}{}", pair.bound.sign(), ratio(found.ratio)),
                None => "–".to_owned(),
            },
            whisker: pair
                .found
                .filter(|found| found.values > 1)
                .map(|found| (found.low, found.high)),
            mark: pair.found.map(|_| 1.0),
        })
        .collect();
    let shown = rows.iter().zip(&bars).filter_map(|(pair, bar)| {
        let found = pair.found?;
        Some(format!(
            "{}: {} ({})",
            bar.label,
            bar.words,
            ratio_ends(found.low, found.high, " to ")
        ))
    });
    Bars {
        title: "Rate of B over that of A".to_owned(),
        description: format!(
            "Ratios of the rates of B and A. {}.",
            shown.collect::<Vec<_>>().join("; ")
        ),
        bars,
        mark: Some("as fast as A".to_owned()),
        whisker: Some("95 % interval; with few rounds, the full range".to_owned()),
    }
}

/// Describes a machine in a line.
pub(super) fn machine(host: &Host) -> String {
    format!(
        "{}, {} online, {}, kernel {}",
        host.cpu,
        host.cpus,
        bytes(host.memory_bytes as f64),
        host.kernel
    )
}
