//! The command line of `hotrow capacity`, as clap reads it.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hotrow_load::plan::{RATE_MAX, RATE_MIN, Rate};

use crate::diagnosis::watched::WatchArgs;
use crate::load::args::{ArrivalsArg, Objectives, TargetArgs, duration, objectives};
use crate::screen::terminal::ProgressArgs;

/// Shortest step: less than that holds too few looks at the machine.
const STEP_MIN: Duration = Duration::from_millis(100);
/// Most rounds of a climb.
const ROUNDS_MAX: u64 = 100;

/// Where nothing else is asked for: no bound.
pub(super) const RATE_MAX_DEFAULT: f64 = 1_000_000.0;
const ROUNDS_DEFAULT: u64 = 3;
const CONNECTIONS_MAX_DEFAULT: usize = 1024;

/// Arguments of `capacity`.
#[derive(Debug, Args)]
pub struct CapacityArgs {
    /// What to load; `{id}` in it is filled by --ids. Several URLs of one server are mixed, by weight: '9*http://…'
    #[arg(value_name = "URL", required = true)]
    pub(super) urls: Vec<String>,
    /// What must hold at the rate that is looked for, as in 'p99<10ms,errors<0.1%'; written as for `load`
    #[arg(long, value_name = "OBJECTIVES", value_parser = objectives, required_unless_present = "closed")]
    pub(super) slo: Option<Objectives>,
    /// Raise connections (1, 2, 4 …) until the throughput no longer rises, instead of looking for a rate
    #[arg(long, conflicts_with_all = ["slo", "connections", "start_rate", "rate_max", "arrivals", "plateau"])]
    pub(super) closed: bool,
    #[command(flatten)]
    pub(super) target: TargetArgs,
    /// The first rate, in requests per second; doubled while the objectives hold
    #[arg(long, value_name = "R", default_value = "100", value_parser = rate)]
    pub(super) start_rate: f64,
    /// No rate above this
    #[arg(long, value_name = "R", default_value_t = RATE_MAX_DEFAULT, value_parser = rate)]
    pub(super) rate_max: f64,
    /// How requests are spaced
    #[arg(long, value_name = "HOW", default_value = "poisson")]
    pub(super) arrivals: ArrivalsArg,
    /// With --closed: no more connections than this [default: 1024]
    #[arg(long, value_name = "N")]
    connections_max: Option<NonZeroUsize>,
    /// With --closed: how often each number of connections is measured [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=ROUNDS_MAX))]
    rounds: Option<u64>,
    /// Shortest step; where percentiles want more requests it takes up to three times as long
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = step)]
    pub(super) step: Duration,
    /// Shortest plateau on which the ends of the interval have to hold
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = step)]
    pub(super) plateau: Duration,
    /// All of it together takes at most this long
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = step)]
    pub(super) time: Duration,
    /// The exit status is 3 when less than this was confirmed, in requests per second
    #[arg(long, value_name = "R", value_parser = rate)]
    pub(super) at_least: Option<f64>,
    /// End the search when more than this share of a step's requests was lost or timed out, in per cent
    #[arg(long, value_name = "PERCENT", default_value = "50", value_parser = percent)]
    pub(super) abort_errors: f64,
    #[command(flatten)]
    pub(super) watch: WatchArgs,
    /// Do not test what limited it; else the load at the limit is repeated at the end, for a second each, with one thing changed
    #[arg(long)]
    pub(super) no_prove: bool,
    /// In these tests the CPU quota of the target's cgroup may be made smaller for a second at a time, and is put back
    #[arg(long, conflicts_with = "no_prove")]
    pub(super) allow_changes: bool,
    /// Write the result as an HTML page that needs nothing else
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// One JSON object on standard output
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) progress: ProgressArgs,
}

impl CapacityArgs {
    /// Most connections of a climb.
    pub(super) fn connections_max(&self) -> NonZeroUsize {
        self.connections_max.unwrap_or(NonZeroUsize::MIN.saturating_add(CONNECTIONS_MAX_DEFAULT - 1))
    }

    /// Rounds of a climb.
    pub(super) fn rounds(&self) -> usize {
        self.rounds.unwrap_or(ROUNDS_DEFAULT) as usize
    }

    /// An option that only a climb has, given without it: a flag is always there for clap, so that it cannot tell.
    pub(super) fn without_closed(&self) -> Option<&'static str> {
        let given = [("--connections-max", self.connections_max.is_some()), ("--rounds", self.rounds.is_some())];
        given.into_iter().find(|(_, given)| *given && !self.closed).map(|(name, _)| name)
    }
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: Option<f64> = text.parse().ok();
    let rate = rate.filter(|rate| Rate::new(*rate, *rate).is_ok());
    rate.ok_or_else(|| format!("must be a number of requests per second between {RATE_MIN} and {RATE_MAX}"))
}

fn step(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    if time < STEP_MIN { Err(format!("must not be shorter than {} ms", STEP_MIN.as_millis())) } else { Ok(time) }
}

/// A share, 0 to 1.
fn percent(text: &str) -> Result<f64, String> {
    let percent: Option<f64> = text.trim_end_matches('%').parse().ok();
    let percent = percent.filter(|percent| *percent > 0.0 && *percent <= 100.0);
    percent.map(|percent| percent / 100.0).ok_or_else(|| "must be above 0 and at most 100, as in 50".to_owned())
}
