//! Command-line arguments of `hotrow capacity`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hotrow_load::plan::{RATE_MAX, RATE_MIN, Rate};

use crate::diagnosis::watch_args::WatchArgs;
use crate::load::args::{ArrivalsArg, Objectives, TargetArgs, objectives};
use crate::tui::terminal::ProgressArgs;
use hotrow_cli::duration;

/// Shortest step: a shorter one holds too few samples of the machine.
const STEP_MIN: Duration = Duration::from_millis(100);
/// Most rounds per number of connections.
const ROUNDS_MAX: u64 = 100;

/// Default maximum rate: effectively no bound.
pub(super) const RATE_MAX_DEFAULT: f64 = 1_000_000.0;
const ROUNDS_DEFAULT: u64 = 3;
const CONNECTIONS_MAX_DEFAULT: usize = 1024;

/// What `--help` says besides the options.
pub const HELP: &str = "Examples:
  hotrow capacity --slo 'p99<10ms,errors<0.1%' http://127.0.0.1:8080/products/1
  hotrow capacity --slo 'p99<10ms' --at-least 5000 --ids 1..100000 \\
      'http://127.0.0.1:8080/products/{id}'
  hotrow capacity --slo 'p95<50ms' --start-rate 1000 --time 5m --pid 4711 --html capacity.html \\
      http://127.0.0.1:8080/
  hotrow capacity --closed --connections-max 256 --json http://127.0.0.1:8080/products/1

Exit status of hotrow capacity:
  0: an interval: lower end kept and upper end missed, each on a plateau.
  0, or 1 if nothing was confirmed: bound not found (--rate-max was kept or unsure, or the
    generator was the limit above), or time up.
  1: harm: a step lost more than --abort-errors of its requests (rejections are no harm), had no
    expected response, or no connection opens any more. Also a result that cannot be written.
  2: wrong usage.
  3: nothing kept. With --at-least R also instead of 0 or 1 when less was confirmed, except after
    harm.
  130: interrupted; what was measured until then is reported.";

/// Arguments of `capacity`.
#[derive(Debug, Args)]
pub struct CapacityArgs {
    /// URLs to load; --ids fills {id}
    ///
    /// Several URLs of one server are mixed by weight: '9*http://…'.
    #[arg(value_name = "URL", required = true)]
    pub(super) urls: Vec<String>,
    /// Objectives that the rate must meet, as in 'p99<10ms,errors<0.1%'; same syntax as in `load`
    #[arg(long, value_name = "OBJECTIVES", value_parser = objectives)]
    #[arg(required_unless_present = "closed")]
    pub(super) slo: Option<Objectives>,
    /// Raise connections (1, 2, 4 …) until the throughput no longer rises, without a rate
    #[arg(long, conflicts_with_all = ["slo", "connections", "start_rate"])]
    #[arg(conflicts_with_all = ["rate_max", "arrivals", "plateau"])]
    pub(super) closed: bool,
    #[command(flatten)]
    pub(super) target: TargetArgs,
    /// First rate, in requests per second; doubled while the objectives hold
    #[arg(long, value_name = "R", default_value = "100", value_parser = rate)]
    pub(super) start_rate: f64,
    /// Maximum rate
    #[arg(long, value_name = "R", default_value_t = RATE_MAX_DEFAULT, value_parser = rate)]
    pub(super) rate_max: f64,
    /// Spacing of requests
    #[arg(long, value_name = "HOW", default_value = "poisson")]
    pub(super) arrivals: ArrivalsArg,
    /// With --closed: maximum number of connections [default: 1024]
    #[arg(long, value_name = "N")]
    connections_max: Option<NonZeroUsize>,
    /// With --closed: measurements per number of connections [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=ROUNDS_MAX))]
    rounds: Option<u64>,
    /// Shortest step; it takes up to three times as long where percentiles need more requests
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = step)]
    pub(super) step: Duration,
    /// Shortest plateau on which the ends of the interval must hold
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = step)]
    pub(super) plateau: Duration,
    /// Maximum total time
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = step)]
    pub(super) time: Duration,
    /// Exit with status 3 when less than this rate was confirmed, in requests per second
    #[arg(long, value_name = "R", value_parser = rate)]
    pub(super) at_least: Option<f64>,
    /// End the search when a step lost or timed out more than this share of its requests, in per
    /// cent
    #[arg(long, value_name = "PERCENT", default_value = "50", value_parser = percent)]
    pub(super) abort_errors: f64,
    #[command(flatten)]
    pub(super) watch: WatchArgs,
    /// Do not test what limited it
    ///
    /// Otherwise the load at the limit is repeated at the end, for a second each, with one change.
    #[arg(long)]
    pub(super) no_confirm: bool,
    /// These tests may reduce the CPU quota of the target's cgroup
    ///
    /// For a second at a time; they restore it.
    #[arg(long, conflicts_with = "no_confirm")]
    pub(super) allow_changes: bool,
    /// Write the result as a self-contained HTML page
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Print one JSON object on standard output
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) progress: ProgressArgs,
}

impl CapacityArgs {
    /// Returns the maximum number of connections of a closed-loop search.
    pub(super) fn connections_max(&self) -> NonZeroUsize {
        self.connections_max
            .unwrap_or(NonZeroUsize::MIN.saturating_add(CONNECTIONS_MAX_DEFAULT - 1))
    }

    /// Returns the rounds of a closed-loop search.
    pub(super) fn rounds(&self) -> usize {
        self.rounds.unwrap_or(ROUNDS_DEFAULT) as usize
    }

    /// Returns an option that requires --closed, given without it; clap cannot check this because a
    /// flag is always present.
    pub(super) fn without_closed(&self) -> Option<&'static str> {
        let options = [
            ("--connections-max", self.connections_max.is_some()),
            ("--rounds", self.rounds.is_some()),
        ];
        options.into_iter().find(|(_, is_set)| *is_set && !self.closed).map(|(name, _)| name)
    }
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: Option<f64> = text.parse().ok();
    let rate = rate.filter(|rate| Rate::new(*rate, *rate).is_ok());
    rate.ok_or_else(|| {
        format!("must be a number of requests per second between {RATE_MIN} and {RATE_MAX}")
    })
}

fn step(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    if time < STEP_MIN {
        Err(format!("must not be shorter than {} ms", STEP_MIN.as_millis()))
    } else {
        Ok(time)
    }
}

/// Parses a percentage into a share, 0 to 1.
fn percent(text: &str) -> Result<f64, String> {
    let percent: Option<f64> = text.trim_end_matches('%').parse().ok();
    let percent = percent.filter(|percent| *percent > 0.0 && *percent <= 100.0);
    percent
        .map(|percent| percent / 100.0)
        .ok_or_else(|| "must be above 0 and at most 100, as in 50".to_owned())
}
