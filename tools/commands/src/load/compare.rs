//! `hotrow load compare`: tests whether two sides of results differ.

use std::path::PathBuf;

use clap::Args;
use hotrow_measure::statistics::{self, Comparison, ComparisonVerdict, VALUES_MIN};
use hotrow_report::document::{Block, Cell, Column, Document, Table};
use hotrow_report::numbers::{date, grouped, micros, number, percent, ratio, ratio_ends};
use hotrow_report::plot::{Axis, Line, Lines, Plot, Scale, Unit, latency_percentiles};

use super::saved_result::{self, SavedResult, SavedResultError};
use crate::machine::MachineInfo;
use hotrow_cli::Exit;
use hotrow_cli::output::{self, OutputError};

/// Seed of the bootstrap: equal files give equal intervals.
const SEED: u64 = 0x10ad;
/// Shorter seconds are left out; the last one of a run often is.
const SECOND_LENGTH_MIN_S: f64 = 0.9;

/// Arguments of `load compare`.
#[derive(Debug, Args)]
pub(super) struct CompareArgs {
    /// The reference result
    #[arg(value_name = "A.json", required_unless_present = "side_a", requires = "file_b")]
    #[arg(conflicts_with_all = ["side_a", "side_b"])]
    file_a: Option<PathBuf>,
    /// The result to compare
    #[arg(value_name = "B.json")]
    file_b: Option<PathBuf>,
    /// Results of side A, one of each run; intervals need five
    #[arg(long = "a", value_name = "FILES", num_args = 1.., requires = "side_b")]
    side_a: Vec<PathBuf>,
    /// Results of side B
    #[arg(long = "b", value_name = "FILES", num_args = 1.., requires = "side_a")]
    side_b: Vec<PathBuf>,
    /// Also write the comparison as an HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Reasons for a missing comparison.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// A file is no result.
    #[error(transparent)]
    SavedResultError(#[from] SavedResultError),
    /// Standard output cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The page cannot be written.
    #[error(transparent)]
    Report(#[from] hotrow_report::file::WriteError),
}

pub(super) fn run(args: &CompareArgs) -> Result<Exit, CompareError> {
    let read =
        |one: &Option<PathBuf>, side: &[PathBuf]| -> Result<Vec<SavedResult>, SavedResultError> {
            one.iter().chain(side).map(|path| saved_result::read(path)).collect()
        };
    let a = read(&args.file_a, &args.side_a)?;
    let b = read(&args.file_b, &args.side_b)?;
    let document = document(&a, &b);
    let printed =
        output::print(std::io::stdout(), hotrow_report::text::render(&document).trim_end());
    if let Some(file) = &args.html {
        hotrow_report::file::replace(file, &hotrow_report::html::render(&document))?;
    }
    printed?;
    Ok(Exit::Fine)
}

struct Figure {
    name: &'static str,
    more_is_better: bool,
    format_value: fn(f64) -> String,
    of_run: fn(&SavedResult) -> Option<f64>,
    of_second: fn(&saved_result::Second) -> Option<f64>,
}

const FIGURES: [Figure; 3] = [
    Figure {
        name: "Requests/s",
        more_is_better: true,
        format_value: number,
        of_run: |run| Some(run.throughput_rps),
        of_second: |second| Some(second.ok as f64 / second.length_s),
    },
    Figure {
        name: "Latency p50",
        more_is_better: false,
        format_value: micros,
        of_run: |run| run.latency_us.p50.0,
        of_second: |second| second.p50_us.0,
    },
    Figure {
        name: "Latency p99",
        more_is_better: false,
        format_value: micros,
        of_run: |run| run.latency_us.p99.0,
        of_second: |second| second.p99_us.0,
    },
];

/// Builds the comparison of B with A.
fn document(a: &[SavedResult], b: &[SavedResult]) -> Document {
    let by_second = a.len() == 1 && b.len() == 1;
    let found = FIGURES.map(|figure| FigureComparison::of(figure, a, b, by_second));
    let mut sentences = found.iter().map(sentence);
    let mut blocks: Vec<Block> = sentences.next().map(Block::Answer).into_iter().collect();
    blocks.push(Block::List(sentences.collect()));
    blocks.extend(warnings(a, b, by_second).into_iter().map(Block::Warning));
    blocks.push(Block::Table(table(&found, by_second)));
    if let ([a], [b]) = (a, b) {
        blocks.extend(overlaid(a, b).map(Block::Plot));
    }
    blocks.push(Block::Facts(
        [("A", a), ("B", b)].iter().flat_map(|(name, side)| facts(name, side)).collect(),
    ));
    Document { title: "B against A".to_owned(), subtitle: measured_on(a, b), blocks }
}

/// Returns plots with both runs laid over each other: over time from their beginnings, and by
/// percentile.
fn overlaid(a: &SavedResult, b: &SavedResult) -> [Plot; 3] {
    let lines = |points: fn(&SavedResult) -> Vec<(f64, f64)>, label: &str| {
        [("A", a), ("B", b)]
            .map(|(name, run)| Line { label: format!("{name}{label}"), points: points(run) })
    };
    let rates = Lines {
        title: "Requests per second".to_owned(),
        description: "Expected answers of each second of both runs.".to_owned(),
        x: Axis::time(),
        y: Axis { name: "requests/s".to_owned(), scale: Scale::Linear, unit: Unit::Number },
        lines: lines(|run| by_second(run, FIGURES[0].of_second), "").into(),
    };
    let p50 = lines(|run| by_second(run, |second| second.p50_us.0), " p50");
    let p99 = lines(|run| by_second(run, |second| second.p99_us.0), " p99");
    let latencies = Lines {
        title: "Latency".to_owned(),
        description: "Median and 99th percentile of each second of both runs.".to_owned(),
        x: Axis::time(),
        y: Axis::latency(),
        lines: p50.into_iter().chain(p99).collect(),
    };
    let percentiles = latency_percentiles(
        "Latency by percentile".to_owned(),
        "Latency of both runs over the share of requests that were at least as fast.".to_owned(),
        lines(|run| run.latency_us.curve(), "").into(),
    );
    [percentiles, rates, latencies].map(Plot::Lines)
}

/// Returns the whole seconds of a run as points at their ends.
fn by_second(
    run: &SavedResult,
    of: impl Fn(&saved_result::Second) -> Option<f64>,
) -> Vec<(f64, f64)> {
    let mut end_s = 0.0;
    let mut points = Vec::new();
    for second in &run.seconds {
        end_s += second.length_s;
        if second.length_s >= SECOND_LENGTH_MIN_S {
            points.extend(of(second).map(|value| (end_s, value)));
        }
    }
    points
}

/// Returns the days and the machines of the runs, those that are known.
fn measured_on(a: &[SavedResult], b: &[SavedResult]) -> String {
    let runs = || a.iter().chain(b);
    let began = || runs().filter_map(|run| run.began_unix_s);
    let mut parts: Vec<String> = match (began().min(), began().max()) {
        (Some(first), Some(last)) if date(first) == date(last) => vec![date(first)],
        (Some(first), Some(last)) => vec![format!("{} to {}", date(first), date(last))],
        _ => Vec::new(),
    };
    for machine in runs().filter_map(|run| run.machine.as_ref()).map(MachineInfo::to_string) {
        if !parts.contains(&machine) {
            parts.push(machine);
        }
    }
    parts.join("; ")
}

struct FigureComparison {
    figure: Figure,
    a: Option<f64>,
    b: Option<f64>,
    compared: Option<Comparison>,
}

impl FigureComparison {
    fn of(figure: Figure, a: &[SavedResult], b: &[SavedResult], by_second: bool) -> Self {
        let values = |side: &[SavedResult]| -> Vec<f64> {
            if by_second {
                let seconds = side
                    .iter()
                    .flat_map(|run| &run.seconds)
                    .filter(|s| s.length_s >= SECOND_LENGTH_MIN_S);
                seconds.filter_map(figure.of_second).collect()
            } else {
                side.iter().filter_map(figure.of_run).collect()
            }
        };
        let a = values(a);
        let b = values(b);
        let compared = statistics::compare(&b, &a, SEED);
        Self { a: statistics::median(&a), b: statistics::median(&b), compared, figure }
    }
}

fn sentence(found: &FigureComparison) -> String {
    let figure = &found.figure;
    let name = figure.name;
    let Some(found) = &found.compared else {
        return format!("{name}: unknown, because one side has no value.");
    };
    let by = percent((found.ratio - 1.0).abs());
    let ends = ratio_ends(found.low, found.high, "–");
    let times = ratio(found.ratio);
    match found.verdict {
        ComparisonVerdict::Faster | ComparisonVerdict::Slower => {
            let way = if found.ratio > 1.0 { "higher" } else { "lower" };
            let worth =
                if (found.ratio > 1.0) == figure.more_is_better { "better" } else { "worse" };
            format!("{name}: B is {by} {way}, {worth} ({times} times A's; 95 %: {ends}).")
        }
        ComparisonVerdict::NoDifferenceShown => {
            format!("{name}: no difference shown ({times} times A's; 95 %: {ends}).")
        }
        ComparisonVerdict::TooFew => format!(
            "{name}: B's is {times} times A's, but {} on a side are too few for a conclusion \
             ({VALUES_MIN} are needed).",
            hotrow_load::format::counted(found.values, "value")
        ),
    }
}

fn warnings(a: &[SavedResult], b: &[SavedResult], by_second: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    if by_second {
        warnings.push(
            "these are the seconds of one run per side. Seconds of a run are not independent of \
             each other, and all of them share what made this run fast or slow: the true interval \
             is wider. Several runs per side, in turn, show more (--a and --b)."
                .to_owned(),
        );
    }
    let first = a.first().map(|run| &run.target);
    if a.iter().chain(b).any(|run| {
        Some((run.target.connections, run.target.keepalive, &run.target.rate))
            != first.map(|t| (t.connections, t.keepalive, &t.rate))
    }) {
        warnings.push(
            "the runs had different connections, keep-alive or rates: that alone can make a \
             difference."
                .to_owned(),
        );
    } else if first.is_some_and(|target| !target.rate.is_null()) {
        warnings.push(
            "all runs had the same rate to keep: compare latencies, because throughput only shows \
             whether it was kept."
                .to_owned(),
        );
    }
    for (name, side) in [("A", a), ("B", b)] {
        let count = |of: fn(&SavedResult) -> bool| side.iter().filter(|run| of(run)).count();
        let runs = |n: usize| {
            if side.len() == 1 {
                name.to_owned()
            } else {
                format!("{n} of {} runs of {name}", side.len())
            }
        };
        let limited = count(|run| run.generator.limited);
        if limited > 0 {
            let runs = runs(limited);
            warnings.push(format!(
                "in {runs} the generator was short of time: rates may be lower bounds, and \
                 latencies include its lateness."
            ));
        }
        let failed = count(|run| run.requests.errors + run.requests.timeouts > 0);
        if failed > 0 {
            warnings.push(format!("in {} requests failed or timed out.", runs(failed)));
        }
        let broken_off = count(|run| run.end != "complete");
        if broken_off > 0 {
            warnings.push(format!("{} did not reach the planned end.", runs(broken_off)));
        }
    }
    warnings
}

fn table(found: &[FigureComparison], by_second: bool) -> Table {
    let row = |found: &FigureComparison| {
        let side = |value: Option<f64>| {
            value.map_or_else(Cell::none, |value| Cell::plain((found.figure.format_value)(value)))
        };
        let compared = found.compared.as_ref();
        let over = compared.map_or_else(Cell::none, |compared| {
            Cell::strong(ratio(compared.ratio), ratio_ends(compared.low, compared.high, " – "))
        });
        let p = compared.map_or_else(Cell::none, |compared| Cell::quiet(number(compared.p)));
        vec![Cell::plain(found.figure.name), side(found.a), side(found.b), over, p]
    };
    let names = ["A", "B", "B over A", "p"];
    let what = if by_second { "medians of the seconds" } else { "medians of the runs" };
    Table {
        columns: [Column::words("Figure")].into_iter().chain(names.map(Column::figures)).collect(),
        rows: found.iter().map(row).collect(),
        foot: vec![format!(
            "A, B: {what}. p: chance of ranks as far apart without a difference (Mann–Whitney)."
        )],
        ..Table::default()
    }
}

fn facts(name: &str, side: &[SavedResult]) -> Vec<(String, String)> {
    let fact = |run: &SavedResult| {
        let SavedResult { target, duration_s, requests, verdict, .. } = run;
        let keepalive = if target.keepalive { "" } else { ", no keep-alive" };
        let connections = hotrow_load::format::counted(target.connections, "connection");
        let threads = hotrow_load::format::counted(target.threads, "thread");
        let value = format!(
            "{}{}, {connections}, {threads}{keepalive}, {} s, {} ok, {} requests/s. {verdict}",
            run.began_unix_s.map_or_else(String::new, |began| format!("{}: ", date(began))),
            target.url,
            number(*duration_s),
            grouped(requests.ok as f64),
            number(run.throughput_rps)
        );
        (name.to_owned(), value)
    };
    side.iter().map(fact).collect()
}
