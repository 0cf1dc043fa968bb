//! Tables of the report.

use hotrow_report::document::{Cell, CellStyle, Column, Table};
use hotrow_report::numbers;

use super::super::results::{Calls, Figures, Measured, Outcome, Results};
use super::ratio;

/// Returns the table of results.
pub(super) fn main(results: &Results) -> Table {
    let columns = [
        "Threads",
        "Wall time",
        "Requests/s",
        "× sequential",
        "Floor",
        "Wall / floor",
        "CPU in use",
        "Peak memory",
    ];
    let row = |measured: &Measured| {
        let figures = measured.figures.as_ref();
        let mut cells = vec![Cell::plain(measured.name.clone()), count(measured.threads)];
        cells.extend(match (&measured.outcome, figures) {
            (Outcome::Finished, Some(figures)) => [
                Cell::plain(seconds(figures.wall_s)),
                measured
                    .throughput_tps
                    .map_or(Cell::none(), |tps| Cell::strong(numbers::grouped(tps), "")),
                ratio(results, measured)
                    .map_or(Cell::none(), |ratio| Cell::plain(numbers::ratio(ratio))),
            ],
            (outcome, _) => [Cell::quiet(ended(outcome)), no_throughput(outcome), Cell::none()],
        });
        cells.push(Cell {
            detail: measured.floor.by.clone(),
            ..Cell::plain(seconds(measured.floor.seconds))
        });
        cells.push(
            measured
                .distance
                .map_or(Cell::none(), |distance| Cell::plain(numbers::ratio(distance))),
        );
        cells
            .push(figures.map_or(Cell::none(), |figures| {
                Cell::plain(numbers::percent(figures.utilisation))
            }));
        cells.push(figures.map_or(Cell::none(), |figures| {
            Cell::plain(numbers::bytes(figures.rss_peak_bytes as f64))
        }));
        cells
    };
    Table {
        columns: columns_of("Model", &columns),
        rows: results.models.iter().map(row).collect(),
        foot: vec![
            "CPU in use: of all cores, over the wall time. Peak memory: the program itself \
             included."
                .to_owned(),
        ],
        ..Table::default()
    }
}

pub(super) fn ended(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Finished => "finished".to_owned(),
        Outcome::Wrong => "work missing".to_owned(),
        Outcome::Died { started, .. } => {
            format!("died at {} threads", numbers::grouped(*started as f64))
        }
        Outcome::Refused { .. } => "not started".to_owned(),
        Outcome::Lost { .. } => "no result".to_owned(),
    }
}

/// Returns the cell in place of a throughput; a run that was expected to die has not failed.
fn no_throughput(outcome: &Outcome) -> Cell {
    if matches!(outcome, Outcome::Wrong | Outcome::Lost { .. }) {
        Cell::failed()
    } else {
        Cell::none()
    }
}

/// Returns the published figures beside those measured here.
pub(super) fn published(results: &Results) -> Table {
    let columns = ["Published", "× published sequential", "Here", "× sequential here"];
    let row = |figure: &PublishedFigure| {
        let ours = results.models.iter().find(|measured| figure.model.is(measured));
        let here = ours.map_or(Cell::none(), |measured| {
            let (text, is_rate) = match measured.throughput_tps {
                Some(tps) => (format!("{}/s", numbers::grouped(tps)), true),
                None => (ended(&measured.outcome), false),
            };
            // A pool is named by its multiple of the cores here.
            let text = match figure.model {
                PublishedModel::Pool { .. } => format!("{text} ({})", measured.name),
                PublishedModel::Named(_) => text,
            };
            if is_rate { Cell::plain(text) } else { Cell::quiet(text) }
        });
        let ratio = ours.and_then(|measured| ratio(results, measured));
        vec![
            Cell::plain(figure.model.words()),
            Cell::plain(figure.text),
            figure
                .tps
                .map_or(Cell::none(), |tps| Cell::plain(numbers::ratio(tps / SEQUENTIAL_TPS))),
            here,
            ratio.map_or(Cell::none(), |ratio| Cell {
                style: CellStyle::Strong,
                ..Cell::plain(numbers::ratio(ratio))
            }),
        ]
    };
    Table {
        columns: columns_of("Model", &columns),
        rows: PUBLISHED.iter().map(row).collect(),
        foot: vec![
            "Pools are compared with the one of as many threads, which is another multiple of the \
             cores here. The other models have no published figures."
                .to_owned(),
        ],
        ..Table::default()
    }
}

/// Returns the table of CPU time, context switches, threads and system calls.
pub(super) fn cost(results: &Results) -> Table {
    let columns = [
        "User",
        "System",
        "Idle",
        "Switches, waited",
        "Switches, preempted",
        "Threads",
        "futex",
        "clone",
        "mmap",
        "mprotect",
    ];
    let row = |measured: &Measured| {
        let figures = measured.figures.as_ref();
        let cell = |value: fn(&Figures) -> Cell| figures.map_or(Cell::none(), value);
        let mut cells = vec![
            Cell::plain(measured.name.clone()),
            cell(|f| Cell::plain(seconds(f.user_s))),
            cell(|f| Cell::plain(seconds(f.system_s))),
            cell(|f| Cell::plain(seconds(f.idle_s))),
            cell(|f| count(f.switches_voluntary)),
            cell(|f| count(f.switches_involuntary)),
            measured.threads_peak.map_or(Cell::none(), count),
        ];
        cells.extend(match measured.calls {
            Calls::Counted { futex, clone, mmap, mprotect, .. } => {
                [futex, clone, mmap, mprotect].map(count)
            }
            Calls::NotCounted { .. } => [(); 4].map(|()| Cell::none()),
        });
        cells
    };
    let mut foot = vec![
        "Idle: CPU time that the cores had and the model did not use. Threads: the most that were \
         seen in the process, in looks 5 ms apart."
            .to_owned(),
    ];
    let mut reasons: Vec<String> = results.models.iter().filter_map(not_counted).collect();
    reasons.dedup();
    foot.extend(reasons);
    Table {
        columns: columns_of("Model", &columns),
        rows: results.models.iter().map(row).collect(),
        foot,
        ..Table::default()
    }
}

/// Explains why a finished model has no counts.
fn not_counted(measured: &Measured) -> Option<String> {
    match (&measured.outcome, &measured.calls) {
        (Outcome::Finished, Calls::NotCounted { why }) => {
            Some(format!("System calls were not counted: {why}."))
        }
        _ => None,
    }
}

/// Returns the table of queueing and processing time.
pub(super) fn latency(results: &Results) -> Table {
    let columns = [
        "Queue p50",
        "Queue p99",
        "Queue max",
        "Processing p50",
        "Processing p99",
        "Processing p99.9",
        "Processing max",
    ];
    let row = |measured: &Measured| {
        let mut cells = vec![Cell::plain(measured.name.clone())];
        cells.extend(match &measured.figures {
            Some(Figures { queue_us: queue, processing_us: processing, .. }) => [
                queue.p50,
                queue.p99,
                queue.max,
                processing.p50,
                processing.p99,
                processing.p999,
                processing.max,
            ]
            .map(|us| Cell::plain(numbers::micros(us))),
            None => [(); 7].map(|()| Cell::none()),
        });
        cells
    };
    Table {
        columns: columns_of("Model", &columns),
        rows: results.models.iter().map(row).collect(),
        ..Table::default()
    }
}

fn columns_of(first: &str, rest: &[&str]) -> Vec<Column> {
    std::iter::once(Column::words(first))
        .chain(rest.iter().map(|name| Column::figures(name)))
        .collect()
}

fn seconds(seconds: f64) -> String {
    numbers::micros(seconds * 1e6)
}

fn count(count: u64) -> Cell {
    Cell::plain(numbers::grouped(count as f64))
}

/// A figure of the published experiments, from a machine with 4 cores and 8 hardware threads,
/// compiled without optimisation. Absolute figures of another machine say little; ratios to the
/// sequential model say more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PublishedFigure {
    /// The model here to which it compares.
    pub(crate) model: PublishedModel,
    /// Its text form.
    text: &'static str,
    /// Requests per second; `None` for the run that died.
    tps: Option<f64>,
}

/// The model of a published figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PublishedModel {
    /// The model of this name.
    Named(&'static str),
    /// A pool of this many threads, whatever the number of cores.
    Pool { threads: u64 },
}

impl PublishedModel {
    fn is(self, measured: &Measured) -> bool {
        match self {
            Self::Named(name) => measured.name == name,
            Self::Pool { threads } => {
                measured.name.starts_with("pool-") && measured.threads == threads
            }
        }
    }

    fn words(self) -> String {
        match self {
            Self::Named(name) => name.to_owned(),
            Self::Pool { threads } => format!("pool of {threads} threads"),
        }
    }
}

/// Middle of the published 4,104 to 4,235 requests/s.
const SEQUENTIAL_TPS: f64 = 4_170.0;

/// All published figures.
pub(crate) const PUBLISHED: [PublishedFigure; 4] = [
    PublishedFigure {
        model: PublishedModel::Named("sequential"),
        text: "4,104–4,235/s",
        tps: Some(SEQUENTIAL_TPS),
    },
    PublishedFigure {
        model: PublishedModel::Named(super::super::THREAD_PER_REQUEST),
        text: "died at 32,747 threads",
        tps: None,
    },
    PublishedFigure {
        model: PublishedModel::Named("batches-100"),
        text: "3,881/s",
        tps: Some(3_881.0),
    },
    // One for each of eight hardware threads.
    PublishedFigure {
        model: PublishedModel::Pool { threads: 8 },
        text: "29,575/s",
        tps: Some(29_575.0),
    },
];
