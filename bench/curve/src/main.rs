//! Accuracy and cost of the prediction of hit ratios at other capacities.
//!
//! Accuracy: traces are replayed against the product's cache at each of the eight capacities, and
//! beside it against the prediction from one of them. Counting, not timing: other work on the
//! machine does not matter. Cost: nanoseconds of a lookup whose key is sampled, and of one whose
//! key is not, and of an event in the eight copies. Goals: a mean error of 1.5 points at rates of
//! 0.01 and more, and of 2.5 points at 1/256.

mod accuracy;
mod cost;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use accuracy::Workload;
use hotrow_replay::trace::Trace;

const USAGE: &str = "usage: curve [--traces DIR] [--json FILE] [--large | --cost]
  --traces DIR   folder with *.trace.xz (default: $HOTROW_TRACES)
  --large        a trace of many users, at the rates that the product would use
  --json FILE    also writes the figures to FILE
  --cost         measures the cost instead of the accuracy";

/// Capacities in % of the bytes of all entries.
const PERCENTS: [f64; 4] = [2.0, 5.0, 10.0, 20.0];
/// Capacities of the large workload: enough entries for rates of 0.01 and 1/256.
const PERCENTS_LARGE: [f64; 2] = [30.0, 75.0];
/// Users of the large workload, and requests of each.
const SHIFTED: u32 = 64;
const REQUESTS_OF_USER: usize = 250_000;

struct Options {
    traces: Option<PathBuf>,
    json: Option<String>,
    is_cost: bool,
    is_large: bool,
}

fn options() -> Option<Options> {
    let traces = std::env::var_os("HOTROW_TRACES").map(PathBuf::from);
    let mut options = Options { traces, json: None, is_cost: false, is_large: false };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        match name.as_str() {
            "--traces" => options.traces = Some(arguments.next()?.into()),
            "--json" => options.json = Some(arguments.next()?),
            "--cost" => options.is_cost = true,
            "--large" => options.is_large = true,
            _ => return None,
        }
    }
    Some(options)
}

/// Returns the workloads, and the capacities at which each is measured.
fn workloads(traces: &[Trace], is_large: bool) -> Vec<(Workload, &'static [f64])> {
    if is_large {
        let large = |trace| Workload::of_users(trace, false, SHIFTED, REQUESTS_OF_USER);
        return traces.iter().take(1).map(|trace| (large(trace), &PERCENTS_LARGE[..])).collect();
    }
    let small = |trace| [false, true].map(|sized| (Workload::new(trace, sized), &PERCENTS[..]));
    traces.iter().flat_map(small).collect()
}

fn run(options: &Options) -> Result<bool, String> {
    let report = if options.is_cost {
        report::Report::of_cost(cost::measure())
    } else {
        let folder = options.traces.as_ref();
        let folder =
            folder.ok_or("name the folder of the traces with --traces or HOTROW_TRACES")?;
        let read = |name| Trace::read(&folder.join(format!("{name}.trace.xz")));
        let traces = ["orm-busy", "web12"].into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let mut cells = Vec::new();
        for (workload, percents) in workloads(&traces, options.is_large) {
            for percent in percents {
                eprintln!("{} {percent} %", workload.name);
                cells.push(workload.cell(*percent, options.is_large));
            }
        }
        report::Report::of_accuracy(cells)
    };
    print!("{}", report.markdown());
    if let Some(file) = &options.json {
        std::fs::write(file, report.json()).map_err(|e| format!("cannot write {file}: {e}"))?;
    }
    Ok(report.is_reached())
}

fn main() -> ExitCode {
    let Some(options) = options() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(3),
        Err(message) => {
            eprintln!("curve: {message}");
            ExitCode::FAILURE
        }
    }
}
