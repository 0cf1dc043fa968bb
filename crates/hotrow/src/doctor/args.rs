//! The command line of `hotrow doctor`, as clap reads it.

use clap::{Args, ValueEnum};
use hotrow_diagnose::doctor::goal::Goal;

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Connections that are to be open at once; this machine holds one end of each
    #[arg(long, value_name = "N", default_value = "10000", value_parser = clap::value_parser!(u64).range(1..=MANY))]
    connections: u64,
    /// Threads that one process is to have
    #[arg(long, value_name = "N", default_value = "1000", value_parser = clap::value_parser!(u64).range(1..=MANY))]
    threads: u64,
    /// Requests per second
    #[arg(long, value_name = "R", default_value = "10000", value_parser = rate)]
    rate: f64,
    /// Each request opens a connection
    #[arg(long)]
    no_keepalive: bool,
    /// This machine opens the connections, as a load generator or a proxy does: its ports count too
    #[arg(long)]
    client: bool,
    /// One JSON object on standard output
    #[arg(long)]
    pub(super) json: bool,
    /// End with status 3 when something gives way below the goal
    #[arg(long)]
    pub(super) fail_below: bool,
    /// Climb, in a process of its own with lowered limits, and show that the predictions hold
    #[arg(long, value_name = "WHAT")]
    pub(super) demonstrate: Option<What>,
    /// What a demonstration starts; not for people
    #[arg(long, hide = true, value_name = "JSON", conflicts_with_all = ["demonstrate", "json"])]
    pub(super) climb: Option<String>,
}

/// The most that can be asked for: far beyond any machine, and small enough to reckon with.
const MANY: u64 = 1_000_000_000;

/// What can be demonstrated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum What {
    /// Threads: their maps, the address space, the cgroup's pids.max
    Threads,
    /// Connections: open files, the accept queue
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
    let rate = text.parse::<f64>().ok().filter(|rate| *rate > 0.0 && *rate <= MANY as f64);
    rate.ok_or_else(|| format!("must be a number of requests per second above 0 and up to {MANY}"))
}
