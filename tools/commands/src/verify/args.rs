//! Command line of `hotrow verify`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use hotrow_verify::plan::{KEYS_MAX, RATE_MAX, READ_RATE_MAX, READERS_MAX, WRITERS_MAX};
use hotrow_verify::rules::Rule;

use hotrow_cli::duration;
use hotrow_cli::transport_args::TransportArgs;

/// Arguments of `verify`.
#[derive(Debug, Args)]
#[group(skip)]
pub struct VerifyArgs {
    /// Configuration served by the instances; it names the database, the collection and the
    /// staleness bound
    #[arg(long, value_name = "FILE")]
    pub(super) config: PathBuf,
    /// Data API of an instance, as in http://127.0.0.1:8080, https://… or unix:/run/hotrow.sock;
    /// repeatable
    #[arg(long = "url", value_name = "URL", required_unless_present_any = ["balancers", "create"])]
    pub(super) urls: Vec<String>,
    /// Balancer in front of several instances; the contract is checked except for point 1
    #[arg(long = "balancer", value_name = "URL")]
    pub(super) balancers: Vec<String>,
    /// Admin APIs of the instances, in the order of --url; adds purges and reports feed losses
    #[arg(long = "admin", value_name = "URL")]
    pub(super) admins: Vec<String>,
    /// Redis protocol of the instances (redis://HOST:PORT or rediss://HOST:PORT), in the order of
    /// --url; adds readers with near caches, which CLIENT TRACKING keeps fresh
    #[arg(long = "redis", value_name = "URL")]
    pub(super) redis: Vec<String>,
    /// Collection whose table is reserved for the check [default: the only one of the
    /// configuration]
    #[arg(long, value_name = "NAME")]
    pub(super) collection: Option<String>,
    /// Database URL for writes, if the role in source.url is read-only
    #[arg(long, value_name = "URL")]
    pub(super) database: Option<String>,
    /// Create the table if it is missing; without --url and --balancer, exit afterwards
    #[arg(long)]
    pub(super) create: bool,
    /// Use the table although it has foreign rows; rows with the keys 1 to --keys are overwritten
    /// and deleted
    #[arg(long)]
    pub(super) reuse_table: bool,
    /// Keys that are written and read
    #[arg(long, value_name = "N", default_value = "1000")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(KEYS_MAX)))]
    pub(super) keys: u32,
    /// Transactions per second, all writers together
    #[arg(long, value_name = "R", default_value = "200", value_parser = rate)]
    pub(super) rate: f64,
    /// Writers, each on a connection of its own
    #[arg(long, value_name = "N", default_value = "2")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=i64::from(WRITERS_MAX)))]
    pub(super) writers: u16,
    /// Readers, each with a connection to every target
    #[arg(long, value_name = "N", default_value = "8")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=i64::from(READERS_MAX)))]
    pub(super) readers: u16,
    /// Requests per second, all readers over HTTP together; without it each sends its next request
    /// at once
    #[arg(long, value_name = "R", value_parser = read_rate)]
    pub(super) read_rate: Option<f64>,
    /// Duration of the writes, as in 500ms, 10s or 5m
    #[arg(short = 'd', long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(super) duration: Duration,
    /// Time limit of a response
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(super) timeout: Duration,
    /// Seed of the random choices
    #[arg(long, value_name = "N", default_value = "1")]
    pub(super) seed: u64,
    #[command(flatten)]
    pub(super) transport: TransportArgs,
    /// Rule that is not checked; without it, a target that refuses strict reads or snapshots makes
    /// the run inconclusive; repeatable
    #[arg(long, value_name = "RULE", value_enum)]
    pub(super) skip: Vec<SkippedRule>,
    /// Continue after a violation, and count violations
    #[arg(long)]
    pub(super) keep_going: bool,
    /// Print one JSON object to standard output
    #[arg(long)]
    pub(super) json: bool,
    /// Show no progress on standard error
    #[arg(short = 'q', long)]
    pub(super) quiet: bool,
}

/// A rule that `--skip` can name.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum SkippedRule {
    Strict,
    Snapshot,
}

impl SkippedRule {
    pub(super) fn rule(self) -> Rule {
        match self {
            Self::Strict => Rule::Strict,
            Self::Snapshot => Rule::Snapshot,
        }
    }
}

fn rate(text: &str) -> Result<f64, String> {
    rate_up_to(RATE_MAX, "transactions", text)
}

fn read_rate(text: &str) -> Result<f64, String> {
    rate_up_to(READ_RATE_MAX, "requests", text)
}

fn rate_up_to(max: f64, of: &str, text: &str) -> Result<f64, String> {
    /// Slowest rate: one per hour.
    const RATE_MIN: f64 = 1.0 / 3600.0;
    let rate = text.parse::<f64>().ok().filter(|rate| (RATE_MIN..=max).contains(rate));
    rate.ok_or_else(|| format!("must be a number of {of} per second above 0 and up to {max}"))
}
