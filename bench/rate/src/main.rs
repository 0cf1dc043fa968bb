//! Cost of a rate-limit decision: alone, under contention, and with ten million keys.
//!
//! Times are medians over short rounds, so that a disturbed round does not count. The server reads
//! the clock once per request anyway, so the clock is not part of a decision; one row shows it.
//! Goals: 60 ns for a decision by key, with the key's hash (an earlier implementation needed 175 ns
//! for a wait call); eight threads on one key together at least a fifth as fast as one; memory
//! within its stated bound.

mod cases;
mod report;

use std::process::ExitCode;
use std::time::Duration;

use report::{Goal, Report, Row};

const USAGE: &str = "usage: rate [--seconds S] [--keys N] [--json FILE]
  --seconds S   time per row, 0.1 to 60 (default 1)
  --keys N      keys of the memory test, 8 to 100000000 (default 10000000)
  --json FILE   also writes the figures to FILE";

/// Most time of a decision by key.
const DECISION_NS_MAX: f64 = 60.0;
/// Least rate of eight threads together on one key, as a share of one thread's rate.
const CONTENDED_SHARE_MIN: f64 = 0.2;

/// Memory growth of the process itself during the measurement.
const PROCESS_BYTES: usize = 1 << 20;

struct Options {
    time: Duration,
    keys: usize,
    json: Option<String>,
}

fn options() -> Option<Options> {
    let mut options = Options { time: Duration::from_secs(1), keys: 10_000_000, json: None };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next()?;
        match name.as_str() {
            "--seconds" => {
                let seconds = value.parse().ok().filter(|s| (0.1..=60.0).contains(s))?;
                options.time = Duration::from_secs_f64(seconds);
            }
            "--keys" => {
                options.keys = value.parse().ok().filter(|keys| (8..=100_000_000).contains(keys))?
            }
            "--json" => options.json = Some(value),
            _ => return None,
        }
    }
    Some(options)
}

fn measure(options: &Options) -> Report {
    let alone = cases::alone(options.time);
    let contended = cases::contended(options.time);
    let memory = cases::memory(options.keys);
    let decision =
        alone.iter().find(|row| row.name == cases::BY_KEY).map_or(f64::NAN, |row| row.ns);
    let per_s = |threads: usize| {
        contended
            .iter()
            .find(|row| row.threads == threads && row.name == cases::ONE_KEY)
            .map_or(f64::NAN, Row::per_s)
    };
    let goals = vec![
        Goal::at_most("a decision by key, ns", decision, DECISION_NS_MAX),
        Goal::at_least(
            "8 threads on one key, to 1 thread",
            per_s(8) / per_s(1),
            CONTENDED_SHARE_MIN,
        ),
        Goal::at_most(
            "memory of the keys, bytes",
            memory.grown_bytes as f64,
            (memory.bound_bytes + PROCESS_BYTES) as f64,
        ),
    ];
    Report { alone, contended, memory, goals }
}

fn main() -> ExitCode {
    let Some(options) = options() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let report = measure(&options);
    print!("{}", report.markdown());
    if let Some(file) = &options.json
        && let Err(error) = std::fs::write(file, report.json())
    {
        eprintln!("rate: cannot write {file}: {error}");
        return ExitCode::FAILURE;
    }
    if report.goals.iter().all(|goal| goal.reached) { ExitCode::SUCCESS } else { ExitCode::from(3) }
}
