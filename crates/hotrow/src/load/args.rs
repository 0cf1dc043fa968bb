//! The command line of `hotrow load`, as clap reads it. Values are checked one by one here, together in `resolve`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use hotrow_load::ids::Pick;
use hotrow_load::objective::{self, Objective};
use hotrow_load::plan::{self, Rate};

use super::compare::CompareArgs;
use crate::diagnosis::watched::WatchArgs;
use crate::screen::terminal::ProgressArgs;

/// Arguments of `load`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct LoadArgs {
    /// Something else than a run.
    #[command(subcommand)]
    pub(super) other: Option<Other>,
    /// What to load; `{id}` in it is filled by --ids. Several URLs of one server are mixed, by weight: '9*http://…'
    #[arg(value_name = "URL", required_unless_present = "calibrate")]
    pub(super) urls: Vec<String>,
    #[command(flatten)]
    pub(super) target: TargetArgs,
    /// How long to measure, as in 500ms, 10s or 5m [default: 10s, without --requests]
    #[arg(short = 'd', long, value_name = "TIME", value_parser = duration)]
    pub(super) duration: Option<Duration>,
    /// How many requests to send
    #[arg(short = 'n', long, value_name = "N")]
    pub(super) requests: Option<u64>,
    /// Requests per second, whatever the target does (open loop), or FROM..TO for a ramp; as fast as answers come without it
    #[arg(long, value_name = "R", value_parser = rate)]
    pub(super) rate: Option<Rate>,
    /// How requests are spaced with --rate
    #[arg(long, value_name = "HOW", default_value = "uniform", requires = "rate")]
    pub(super) arrivals: ArrivalsArg,
    /// Time before the measurement in which requests are sent but not counted
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration)]
    pub(super) warmup: Duration,
    /// What must hold, or the exit status is 3, as in 'p99<5ms,errors<0.1%,rate>=10000': p50 to p9999, mean and max of the
    /// latency (or service.p99, lag.p99) in us, ms or s; errors (lost, wrong, timed out or never sent) in % or as a number; rate
    /// in requests per second or in % of --rate; compared with <, <=, > or >=
    #[arg(long, value_name = "OBJECTIVES", value_parser = objectives)]
    pub(super) slo: Option<Objectives>,
    /// Write each second's latencies and service times (Tag=service), in ns, to an interval log of HdrHistogram
    #[arg(long, value_name = "FILE")]
    pub(super) hdr: Option<PathBuf>,
    /// Write each second's figures to a CSV file
    #[arg(long, value_name = "FILE")]
    pub(super) csv: Option<PathBuf>,
    /// Write the result as an HTML page that needs nothing else
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    #[command(flatten)]
    pub(super) watch: WatchArgs,
    /// Test what limited it: after the run the target is loaded again and again, for a second each, with one thing changed.
    /// Without --rate, or where it was missed, these loads are as fast as answers come
    #[arg(long)]
    pub(super) prove: bool,
    /// With --prove: these tests take at most this long
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = duration, requires = "prove")]
    pub(super) prove_time: Duration,
    /// With --prove: the CPU quota of the target's cgroup may be made smaller for a second at a time, and is put back
    #[arg(long, requires = "prove")]
    pub(super) allow_changes: bool,
    /// Print all percentiles of the latency, in ms, in the form that HdrHistogram's plotter reads
    #[arg(long, conflicts_with = "json")]
    pub(super) percentiles: bool,
    /// Measure what this generator can do on this machine, for some seconds, against a server of its own that does nothing;
    /// later results tell how much of it they used. Takes no URL, but -c, -t, --json, -q and --progress
    #[arg(long, conflicts_with_all = NOT_CALIBRATED)]
    pub(super) calibrate: bool,
    /// One JSON object on standard output
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) progress: ProgressArgs,
}

/// How requests are sent, and where to: what every command that loads has in common.
#[derive(Clone, Debug, Args)]
pub(crate) struct TargetArgs {
    /// Connections
    #[arg(short = 'c', long, value_name = "N", default_value = "50")]
    pub(crate) connections: NonZeroUsize,
    /// Threads [default: half of the processors]
    #[arg(short = 't', long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,
    /// A new connection for each request
    #[arg(long)]
    pub(crate) no_keepalive: bool,
    /// Requests in flight on one connection
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) pipeline: NonZeroUsize,
    /// Method [default: GET, or POST with a body]
    #[arg(short = 'm', long, value_name = "METHOD")]
    pub(crate) method: Option<String>,
    /// A header, as in 'Accept: text/html'; may be repeated
    #[arg(short = 'H', long, value_name = "HEADER", value_parser = header)]
    pub(crate) header: Vec<(String, String)>,
    /// The body, or @FILE for the contents of a file
    #[arg(long, value_name = "TEXT", conflicts_with = "form")]
    pub(crate) body: Option<String>,
    /// A field of a form (sent urlencoded); may be repeated
    #[arg(long, value_name = "K=V", value_parser = field)]
    pub(crate) form: Vec<(String, String)>,
    /// Whole numbers to fill {id} with
    #[arg(long, value_name = "FROM..TO", value_parser = range, conflicts_with = "ids_file")]
    pub(crate) ids: Option<(u64, u64)>,
    /// A file of ids to fill {id} with, one per line
    #[arg(long, value_name = "FILE")]
    pub(crate) ids_file: Option<PathBuf>,
    /// Which id is next: uniform, zipf:S or sequential
    #[arg(long, value_name = "HOW", default_value = "uniform", value_parser = pick)]
    pub(crate) pick: Pick,
    /// A request without an answer after this time is given up, and stays in the percentiles
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// Status codes that are right, as in 200,404 [default: 2xx and 3xx]
    #[arg(long, value_name = "CODES", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(200..=999))]
    pub(crate) expect_status: Vec<u16>,
    /// Repeats the run: the same ids, the same arrival times
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,
    /// Connect to this Unix socket; the URL still says host and path
    #[arg(long, value_name = "PATH")]
    pub(crate) unix_socket: Option<PathBuf>,
    /// HTTPS: trust the certificates of this PEM file
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub(crate) cacert: Option<PathBuf>,
    /// HTTPS: verify nothing
    #[arg(long)]
    pub(crate) insecure: bool,
}

/// What `load` does besides loading.
#[derive(Debug, Subcommand)]
pub(super) enum Other {
    /// Compare results that --json printed, and say whether they differ
    #[command(after_help = COMPARE_EXAMPLES)]
    Compare(CompareArgs),
}

const COMPARE_EXAMPLES: &str = "Examples:
  hotrow load compare before.json after.json
  hotrow load compare --a before-*.json --b after-*.json --html compare.html";

/// What says something about a target that a calibration does not have.
const NOT_CALIBRATED: [&str; 27] = [
    "urls",
    "duration",
    "requests",
    "rate",
    "arrivals",
    "no_keepalive",
    "pipeline",
    "method",
    "header",
    "body",
    "form",
    "ids",
    "ids_file",
    "pick",
    "warmup",
    "timeout",
    "expect_status",
    "seed",
    "unix_socket",
    "cacert",
    "insecure",
    "slo",
    "hdr",
    "csv",
    "html",
    "percentiles",
    "prove",
];

/// The objectives of one `--slo`, as one value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objectives(pub(crate) Vec<Objective>);

/// `--arrivals`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ArrivalsArg {
    /// Evenly
    Uniform,
    /// As a Poisson process: as many independent users would
    Poisson,
}

/// `500ms`, `10s`, `1.5s`, `5m`, `1h`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
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
    let number: f64 = number.parse().map_err(|_| "must be a number with a unit, as in 10s".to_owned())?;
    let seconds = number * unit_s;
    if seconds > plan::DURATION_MAX.as_secs_f64() {
        return Err("must not be longer than a week".to_owned());
    }
    Duration::try_from_secs_f64(seconds).map_err(|e| e.to_string())
}

fn rate(text: &str) -> Result<Rate, String> {
    let (from, to) = text.split_once("..").unwrap_or((text, text));
    let number =
        |text: &str| text.parse::<f64>().map_err(|_| format!("{text:?} is not a number of requests per second"));
    Rate::new(number(from)?, number(to)?).map_err(|e| e.to_string())
}

fn range(text: &str) -> Result<(u64, u64), String> {
    let wrong = || "must be two whole numbers, as in 1..100000".to_owned();
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    Ok((from.parse().map_err(|_| wrong())?, to.parse().map_err(|_| wrong())?))
}

pub(crate) fn objectives(text: &str) -> Result<Objectives, String> {
    objective::parse(text).map(Objectives).map_err(|e| e.to_string())
}

fn pick(text: &str) -> Result<Pick, String> {
    /// Beyond this nearly every pick is the first id.
    const EXPONENT_MAX: f64 = 10.0;
    match text {
        "uniform" => Ok(Pick::Uniform),
        "sequential" => Ok(Pick::Sequential),
        _ => {
            let exponent = text.strip_prefix("zipf:").and_then(|s| s.parse::<f64>().ok());
            let exponent = exponent.filter(|s| (0.0..=EXPONENT_MAX).contains(s));
            exponent.map(Pick::Zipf).ok_or_else(|| {
                format!("must be uniform, sequential, or zipf:S with S between 0 and {EXPONENT_MAX}, as in zipf:0.99")
            })
        }
    }
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("must have a colon, as in 'Accept: text/html'")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

fn field(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("must be K=V")?;
    Ok((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_people_write_them() {
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("250us"), Ok(Duration::from_micros(250)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for bad in ["", "5", "s", "1..5s", "-1s", "1d", "9999999h"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
        assert_eq!(rate("1000..20000").map(|r| (r.from(), r.to())), Ok((1000.0, 20000.0)));
        assert_eq!(rate("0.5").map(|r| (r.from(), r.to())), Ok((0.5, 0.5)));
        for bad in ["0", "-1", "x", "1..", "nan", "inf", "1e9"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
        assert_eq!(range("1..9"), Ok((1, 9)));
        assert!(range("1-9").is_err() && range("a..b").is_err());
        assert_eq!(pick("zipf:0.99"), Ok(Pick::Zipf(0.99)));
        assert!(pick("zipf").is_err() && pick("zipf:-1").is_err() && pick("zipf:nan").is_err());
        assert_eq!(header("A:  b: c"), Ok(("A".to_owned(), "b: c".to_owned())));
        assert!(header("A").is_err() && field("a").is_err());
    }
}
