//! Replay of access traces against cache policies, with hit ratios beside published figures.

mod explore;
mod measure;
mod policy;
mod published;
mod report;
mod sized;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use hotrow_replay::trace::Trace;
use policy::{Hotrow, Lfu, Lru, Policy, Quick, QuickSettings, S3Fifo, S3Settings};

/// Capacities in % of a trace's unique keys.
const PERCENTS: [f64; 6] = [0.5, 1.0, 5.0, 10.0, 30.0, 50.0];
const TRACES: [&str; 2] = ["orm-busy", "web12"];

const USAGE: &str = "usage: hitratio [--traces DIR] [--json | --explore | --sizes]

Hit ratio and cost of cache policies on real traces, beside published figures.
  --traces DIR   folder with *.trace.xz (default: $HOTROW_TRACES)
  --json         one JSON object instead of Markdown tables
  --explore      a grid of settings instead of the table
  --sizes        byte bounds and drawn record sizes instead of equal ones";

/// A policy under test: its name, and how to create it for a number of entries.
pub struct Candidate {
    /// Column heading.
    pub name: String,
    /// Creates an empty cache.
    pub build: Box<dyn Fn(usize) -> Box<dyn Policy>>,
}

impl Candidate {
    fn new<P: Policy + 'static>(
        name: impl Into<String>,
        build: impl Fn(usize) -> P + 'static,
    ) -> Self {
        Self { name: name.into(), build: Box::new(move |capacity| Box::new(build(capacity))) }
    }
}

/// Settings of the published column "tuned".
pub const TUNED: QuickSettings =
    QuickSettings { hot: 0.9, ghost: 1.0, shards: Some(NonZeroUsize::MIN), estimate: 1.0 };

/// Columns of the main table. Add new policies here.
fn candidates() -> Vec<Candidate> {
    let default = QuickSettings { hot: 0.97, ghost: 0.5, ..TUNED };
    let s3 = S3Settings { small: 0.1, promote_at: 1, adapt: None, ghost: 0.9 };
    let adaptive = S3Settings { adapt: Some((0.01, 0.9)), ghost: 1.0, ..s3 };
    vec![
        Candidate::new("LRU", Lru::new),
        Candidate::new("LFU", Lfu::new),
        Candidate::new("quick_cache", move |capacity| Quick::new(capacity, default)),
        Candidate::new("quick_cache tuned", |capacity| Quick::new(capacity, TUNED)),
        Candidate::new("hotrow", Hotrow::new),
        Candidate::new("S3-FIFO, 1 hit", move |capacity| S3Fifo::new(capacity, s3)),
        Candidate::new("S3-FIFO adaptive", move |capacity| S3Fifo::new(capacity, adaptive)),
    ]
}

struct Arguments {
    traces: PathBuf,
    json: bool,
    explore: bool,
    sizes: bool,
}

fn arguments() -> Result<Option<Arguments>, String> {
    let mut traces = std::env::var_os("HOTROW_TRACES").map(PathBuf::from);
    let mut json = false;
    let mut explore = false;
    let mut sizes = false;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--traces" => traces = Some(arguments.next().ok_or("--traces needs a folder")?.into()),
            "--json" => json = true,
            "--explore" => explore = true,
            "--sizes" => sizes = true,
            "--help" | "-h" => return Ok(None),
            other => return Err(format!("unknown argument {other:?}\n{USAGE}")),
        }
    }
    let traces = traces.ok_or("name the folder of the traces with --traces or HOTROW_TRACES")?;
    Ok(Some(Arguments { traces, json, explore, sizes }))
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let traces = TRACES
        .iter()
        .map(|name| Trace::read(&arguments.traces.join(format!("{name}.trace.xz"))))
        .collect::<Result<Vec<_>, _>>()?;
    if arguments.explore {
        explore::print(&traces);
        return Ok(());
    }
    if arguments.sizes {
        sized::print(&traces);
        return Ok(());
    }
    let results = measure::all(&traces, &candidates());
    if arguments.json {
        report::json(&results)
    } else {
        report::markdown(&results)
    }
    Ok(())
}

fn main() -> ExitCode {
    match arguments() {
        Ok(None) => println!("{USAGE}"),
        Ok(Some(arguments)) => {
            if let Err(message) = run(&arguments) {
                eprintln!("hitratio: {message}");
                return ExitCode::FAILURE;
            }
        }
        Err(message) => {
            eprintln!("hitratio: {message}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
