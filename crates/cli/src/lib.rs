//! What the programs `hotrow` and `hotrow-lab` share.

pub mod described;
pub mod help;
pub mod output;
pub mod pages;
pub mod problem;
pub mod signals;
pub mod transport_args;
pub mod version;

pub use hotrow_types::names;

use std::process::ExitCode;
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};

/// Longest duration of an option: a week.
pub const DURATION_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// Commands of `hotrow` that the program `hotrow-lab` runs, with their purposes.
pub const TOOLS: [(&str, &str); 6] = [
    ("load", "Load an HTTP server, measure it, and name its limit"),
    ("capacity", "Find the highest rate that meets an objective, and name the limit"),
    ("verify", "Check the consistency contract by writes to a table and reads over HTTP"),
    ("lab", "Compare whole deployments: services with proxies, caches and balancers"),
    ("top", "Show running instances in the terminal: requests, latency, staleness, refusals"),
    ("doctor", "Compare this machine's limits with a goal, and print how to raise them"),
];

/// Exit status of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Success.
    Fine = 0,
    /// The command failed.
    Failed = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// An objective that the command line stated was missed.
    Missed = 3,
    /// The user interrupted it.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Raises the soft limit on open files of this process to the hard one, and returns the limit then
/// in force; `None` is unlimited.
///
/// When raising fails, the old limit stays in force and is returned.
pub fn raise_open_files_limit() -> Option<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
        if setrlimit(Resource::Nofile, raised).is_ok() {
            limit = getrlimit(Resource::Nofile);
        }
    }
    limit.current
}

/// Parses a duration on the command line: `500ms`, `10s`, `1.5s`, `5m`, `1h`.
///
/// # Errors
/// Anything else, and more than [`DURATION_MAX`].
pub fn duration(text: &str) -> Result<Duration, String> {
    let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(number_end);
    let unit_s = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err("must be a number with a unit: us, ms, s, m or h".to_owned()),
    };
    let number: f64 =
        number.parse().map_err(|_| "must be a number with a unit, as in 10s".to_owned())?;
    let seconds = number * unit_s;
    if seconds > DURATION_MAX.as_secs_f64() {
        return Err("must not be longer than a week".to_owned());
    }
    Duration::try_from_secs_f64(seconds).map_err(|e| e.to_string())
}

/// Parses a duration that is longer than zero.
///
/// # Errors
/// As [`duration`], and zero.
pub fn positive_duration(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    if time.is_zero() { Err("must be longer than zero".to_owned()) } else { Ok(time) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_reaches_the_hard_one() {
        let raised = raise_open_files_limit();
        assert_eq!(raised, getrlimit(Resource::Nofile).maximum);
    }
}
