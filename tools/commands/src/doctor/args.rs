//! Command-line arguments of `hotrow doctor`.

use clap::{Args, ValueEnum};
use hotrow_diagnose::doctor::goal::Goal;

/// What `--help` says besides the options.
pub const HELP: &str = "Examples:
  hotrow doctor
  hotrow doctor --connections 50000 --rate 20000 --no-keepalive
  hotrow doctor --threads 20000 --verify-limits threads
  hotrow doctor --connections 100000 --fail-below --json

Exit status of hotrow doctor:
  0: examined.
  1: a prediction failed, or a limit could not be verified or the report written.
  2: wrong usage.
  3: with --fail-below, when a limit is below the goal.";

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Concurrently open connections; this machine holds one end of each
    #[arg(long, value_name = "N", default_value = "10000")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=GOAL_MAX))]
    connections: u64,
    /// Threads of one process
    #[arg(long, value_name = "N", default_value = "1000")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=GOAL_MAX))]
    threads: u64,
    /// Requests per second
    #[arg(long, value_name = "R", default_value = "10000", value_parser = rate)]
    rate: f64,
    /// Each request opens a connection
    #[arg(long)]
    no_keepalive: bool,
    /// This machine opens the connections, as a load generator or a proxy does: its ports count
    #[arg(long)]
    client: bool,
    /// Show every limit with its formula, also those that suffice
    #[arg(long)]
    pub(super) all: bool,
    /// Print one JSON object on standard output
    #[arg(long)]
    pub(super) json: bool,
    /// Exit with status 3 when a limit is below the goal
    #[arg(long)]
    pub(super) fail_below: bool,
    /// Verify the predictions in a child process with lowered limits
    #[arg(long, value_name = "WHAT")]
    pub(super) verify_limits: Option<LimitKind>,
    /// Internal: instructions of the child process
    #[arg(long, hide = true, value_name = "JSON", conflicts_with_all = ["verify_limits", "json"])]
    pub(super) child: Option<String>,
}

/// Largest accepted goal: far beyond any machine, and safe in computations.
const GOAL_MAX: u64 = 1_000_000_000;

/// The limits that can be verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LimitKind {
    /// Threads: memory maps, address space, the cgroup's pids.max
    Threads,
    /// Connections: open files, accept queue
    Connections,
}

impl DoctorArgs {
    pub(super) fn goal(&self) -> Goal {
        Goal {
            connections: self.connections,
            threads: self.threads,
            rate: self.rate,
            keepalive: !self.no_keepalive,
            client: self.client,
        }
    }
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| *rate > 0.0 && *rate <= GOAL_MAX as f64);
    rate.ok_or_else(|| {
        format!("must be a number of requests per second above 0 and up to {GOAL_MAX}")
    })
}
