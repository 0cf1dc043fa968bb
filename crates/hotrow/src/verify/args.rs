//! The command line of `hotrow verify`, as clap reads it.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hotrow_verify::plan::{KEYS_MAX, RATE_MAX, READERS_MAX, WRITERS_MAX};

use crate::load::args::duration;

/// Arguments of `verify`.
#[derive(Debug, Args)]
#[group(skip)]
pub struct VerifyArgs {
    /// The configuration that the instances serve: it names the database, the collection and the bound
    #[arg(long, value_name = "FILE")]
    pub(super) config: PathBuf,
    /// An instance's data API, as in http://127.0.0.1:8080; may be repeated
    #[arg(long = "url", value_name = "URL", required_unless_present_any = ["balancers", "create"])]
    pub(super) urls: Vec<String>,
    /// A way to several instances, behind which nobody knows who answers: held to the contract but for point 1
    #[arg(long = "balancer", value_name = "URL")]
    pub(super) balancers: Vec<String>,
    /// The admin APIs of the instances, in the order of --url: purges are mixed in, and losses of the feed are told
    #[arg(long = "admin", value_name = "URL")]
    pub(super) admins: Vec<String>,
    /// The collection whose table is set aside for this [default: the only one of the configuration]
    #[arg(long, value_name = "NAME")]
    pub(super) collection: Option<String>,
    /// Where to write, if source.url names a role that may only read
    #[arg(long, value_name = "URL")]
    pub(super) database: Option<String>,
    /// Create the table if there is none; without --url and --balancer, that is all
    #[arg(long)]
    pub(super) create: bool,
    /// Use the table although there are other rows in it; the keys 1 to --keys are overwritten and deleted
    #[arg(long)]
    pub(super) adopt: bool,
    /// Keys that are written and read
    #[arg(long, value_name = "N", default_value = "1000", value_parser = clap::value_parser!(u32).range(1..=i64::from(KEYS_MAX)))]
    pub(super) keys: u32,
    /// Transactions per second, all writers together
    #[arg(long, value_name = "R", default_value = "200", value_parser = rate)]
    pub(super) rate: f64,
    /// Writers, each on a connection of its own
    #[arg(long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(u16).range(1..=i64::from(WRITERS_MAX)))]
    pub(super) writers: u16,
    /// Readers, each with a connection to every target
    #[arg(long, value_name = "N", default_value = "8", value_parser = clap::value_parser!(u16).range(1..=i64::from(READERS_MAX)))]
    pub(super) readers: u16,
    /// How long to write, as in 500ms, 10s or 5m
    #[arg(short = 'd', long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(super) duration: Duration,
    /// How long to wait for an answer
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(super) timeout: Duration,
    /// Repeats the random choices
    #[arg(long, value_name = "N", default_value = "1")]
    pub(super) seed: u64,
    /// Go on after a violation, and count them
    #[arg(long)]
    pub(super) keep_going: bool,
    /// One JSON object on standard output
    #[arg(long)]
    pub(super) json: bool,
    /// No progress on standard error
    #[arg(short = 'q', long)]
    pub(super) quiet: bool,
}

fn rate(text: &str) -> Result<f64, String> {
    /// Slower than once in an hour makes no sense.
    const RATE_MIN: f64 = 1.0 / 3600.0;
    let rate = text.parse::<f64>().ok().filter(|rate| (RATE_MIN..=RATE_MAX).contains(rate));
    rate.ok_or_else(|| format!("must be a number of transactions per second above 0 and up to {RATE_MAX}"))
}
