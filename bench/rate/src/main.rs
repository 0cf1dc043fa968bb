//! What a decision of a rate limit costs: alone, under contention, and with ten million keys.
//!
//! Times are medians over short rounds, so that a disturbed round does not count. The clock is read once per request by the server
//! anyway and is not part of a decision; one row shows it. Aims: 60 ns for a decision by key, the key's hash included (the original
//! needed 175 ns for a wait call); eight threads on one key together at least a fifth as fast as one; memory within its named bound.

mod cases;
mod report;

use std::process::ExitCode;
use std::time::Duration;

use report::{Aim, Report, Row};

const USAGE: &str = "usage: rate [--seconds S] [--keys N] [--json FILE]
  --seconds S   time per row, 0.1 to 60 (default 1)
  --keys N      keys of the memory test, 8 to 100000000 (default 10000000)
  --json FILE   also writes the figures to FILE";

/// What a decision by key may cost.
const DECISION_NS_MAX: f64 = 60.0;
/// What eight threads on one key must reach together, as a part of what one thread reaches.
const CONTENDED_SHARE_MIN: f64 = 0.2;

/// What the process itself may grow by while it is measured.
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
            "--keys" => options.keys = value.parse().ok().filter(|keys| (8..=100_000_000).contains(keys))?,
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
    let decision = alone.iter().find(|row| row.name == cases::BY_KEY).map_or(f64::NAN, |row| row.ns);
    let per_s = |threads: usize| {
        contended.iter().find(|row| row.threads == threads && row.name == cases::ONE_KEY).map_or(f64::NAN, Row::per_s)
    };
    let aims = vec![
        Aim::at_most("a decision by key, ns", decision, DECISION_NS_MAX),
        Aim::at_least("8 threads on one key, to 1 thread", per_s(8) / per_s(1), CONTENDED_SHARE_MIN),
        Aim::at_most(
            "memory of the keys, bytes",
            memory.grown_bytes as f64,
            (memory.bound_bytes + PROCESS_BYTES) as f64,
        ),
    ];
    Report { alone, contended, memory, aims }
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
    if report.aims.iter().all(|aim| aim.reached) { ExitCode::SUCCESS } else { ExitCode::from(3) }
}
