//! Command-line arguments of `hotrow load`. Values are checked individually here, and together in
//! `resolve`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use hotrow_cli::duration;
use hotrow_load::ids::Distribution;
use hotrow_load::objective::{self, Objective};
use hotrow_load::plan::Rate;

use super::compare::CompareArgs;
use crate::diagnosis::watch_args::WatchArgs;
use crate::tui::terminal::ProgressArgs;
use hotrow_cli::transport_args::TransportArgs;

/// What `--help` says besides the options.
pub const HELP: &str = "Examples:
  hotrow load http://127.0.0.1:8080/products/1
  hotrow load -c 100 -d 30s --rate 20000 --ids 1..100000 --distribution zipf:0.99 \\
      'http://127.0.0.1:8080/products/{id}'
  hotrow load -d 10s --rate 5000 --slo 'p99<5ms,errors<0.1%,rate>=99%' \\
      http://127.0.0.1:8080/products/1
  hotrow load -d 5m --rate 1000..20000 --hdr run.hlog --csv run.csv http://127.0.0.1:8080/products/1
  hotrow load --html run.html http://127.0.0.1:8080/products/1
  hotrow load compare before.json after.json
  hotrow load --calibrate
  hotrow load --json -n 100000 '9*http://127.0.0.1:8080/products/1' \\
      '1*http://127.0.0.1:8080/products/2'

HTTP/2 in hotrow load:
  windows: receive windows are 16 MiB per stream and 1 GiB per connection, given back at once.
    A request body is sent as the server's window allows; that time is service time.
  errors.goaway: the server ended the connection with an error. After an end without one,
    requests that it has not processed are sent again on a new connection (resent), once it has
    answered any.
  errors.refused_stream, errors.stream_reset: the server reset the stream, with REFUSED_STREAM or
    another reason. The connection stays, also after a time-out.
  bytes, headroom: include frames. headroom is null.

Exit status of hotrow load:
  0: success.
  1: failed, no expected response, the target stopped answering, or the result could not be
    written.
  2: wrong usage.
  3: an objective was missed, or is inconclusive: missed while the generator was the limit and
    may have caused it. It cannot have caused errors and refusals of the target, nor service times
    if it only sent late.
  130: interrupted; the result so far is printed.";

/// Arguments of `load`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct LoadArgs {
    /// A subcommand instead of a run.
    #[command(subcommand)]
    pub(super) command: Option<LoadCommand>,
    /// URLs to load; --ids fills {id}
    ///
    /// Several URLs of one server are mixed by weight: '9*http://…'. unix:SOCKET:PATH is a Unix
    /// socket up to the first colon, then the path of the request.
    #[arg(value_name = "URL", required_unless_present = "calibrate")]
    pub(super) urls: Vec<String>,
    #[command(flatten)]
    pub(super) target: TargetArgs,
    /// Length of the measurement, as in 500ms or 5m [default: 10s, or --requests]
    ///
    /// At most a week; --duration or --requests, whichever comes first.
    #[arg(short = 'd', long, value_name = "TIME", value_parser = duration)]
    pub(super) duration: Option<Duration>,
    /// Number of requests
    #[arg(short = 'n', long, value_name = "N")]
    pub(super) requests: Option<u64>,
    /// Requests per second, or FROM..TO; without it, as responses arrive
    ///
    /// FROM..TO is a ramp. 0.00001 to 10,000,000 over all connections, independent of the target
    /// (open loop); without it, as fast as responses arrive (closed loop). Above 10,000/s and
    /// thread, requests due within 100 µs are sent together.
    #[arg(long, value_name = "R", value_parser = rate)]
    pub(super) rate: Option<Rate>,
    /// Spacing of requests with --rate
    #[arg(long, value_name = "HOW", default_value = "uniform", requires = "rate")]
    pub(super) arrivals: ArrivalsArg,
    /// Time before the measurement in which requests are sent but not counted
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration)]
    pub(super) warmup: Duration,
    /// Objectives, as in 'p99<5ms,errors<0.1%'; status 3 if missed
    ///
    /// p50 to p9999, mean and max of the latency (or service.p99, lag.p99) in us, ms or s; errors
    /// (lost, wrong, timed out or never sent) in % or as a number; rate in requests per second or
    /// in % of --rate, as in rate>=10000; compared with <, <=, > or >=.
    #[arg(long, value_name = "OBJECTIVES", value_parser = objectives)]
    pub(super) slo: Option<Objectives>,
    /// Write each second's latencies to an HdrHistogram interval log
    ///
    /// With the service times (Tag=service), in ns.
    #[arg(long, value_name = "FILE")]
    pub(super) hdr: Option<PathBuf>,
    /// Write each second's figures to a CSV file
    #[arg(long, value_name = "FILE")]
    pub(super) csv: Option<PathBuf>,
    /// Write the result as a self-contained HTML page
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    #[command(flatten)]
    pub(super) watch: WatchArgs,
    /// Test what limited it, after the run
    ///
    /// The load is repeated several times, for a second each, with one change. Without --rate, or
    /// where it was missed, these loads are as fast as responses arrive.
    #[arg(long)]
    pub(super) confirm: bool,
    /// With --confirm: maximum time of these tests
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = duration)]
    #[arg(requires = "confirm")]
    pub(super) confirm_time: Duration,
    /// With --confirm: these tests may reduce the CPU quota of the target's cgroup
    ///
    /// For a second at a time; they restore it.
    #[arg(long, requires = "confirm")]
    pub(super) allow_changes: bool,
    /// Print all percentiles of the latency, in ms, in the format of HdrHistogram's plotter
    #[arg(long, conflicts_with = "json")]
    pub(super) percentiles: bool,
    /// Measure the maximum of this generator on this machine
    ///
    /// For some seconds, against a server of its own that does nothing; later results report the
    /// share used. Accepts no URL, only -c, -t, --json, -q and --progress. Kept in
    /// $XDG_CACHE_HOME/hotrow or ~/.cache/hotrow, for the same processor model, kernel and
    /// program. HTTP/1.1 only.
    #[arg(long, conflicts_with_all = NOT_CALIBRATED.split(' '))]
    pub(super) calibrate: bool,
    /// Print one JSON object on standard output
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) progress: ProgressArgs,
}

/// The target and its requests: options of every command that applies load.
#[derive(Clone, Debug, Args)]
pub(crate) struct TargetArgs {
    /// Connections
    ///
    /// At most 1,000,000.
    #[arg(short = 'c', long, value_name = "N", default_value = "50")]
    pub(crate) connections: NonZeroUsize,
    /// Threads [default: half of the processors]
    ///
    /// At most one per connection.
    #[arg(short = 't', long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Open a new connection for each request
    #[arg(long)]
    pub(crate) no_keepalive: bool,
    /// Requests in flight on one connection of HTTP/1.1
    ///
    /// At most 1,000; each response is a sample.
    #[arg(long, value_name = "N", default_value = "1", conflicts_with = "http2")]
    pub(crate) pipeline: NonZeroUsize,
    /// With --http2: requests in flight on one connection, each on a stream of its own
    ///
    /// At most 1,000. Beyond the server's own limit a request stays unsent until a stream is free,
    /// and a message says so.
    #[arg(long, value_name = "N", default_value = "1", requires = "http2")]
    pub(crate) streams: NonZeroUsize,
    /// Method [default: GET, or POST with a body]
    #[arg(short = 'm', long, value_name = "METHOD")]
    pub(crate) method: Option<String>,
    /// The body, or @FILE for the contents of a file
    ///
    /// At most 1 GiB.
    #[arg(long, value_name = "TEXT", conflicts_with = "form")]
    pub(crate) body: Option<String>,
    /// A form field (sent urlencoded); may be repeated
    #[arg(long, value_name = "K=V", value_parser = field)]
    pub(crate) form: Vec<(String, String)>,
    /// Range of whole numbers that fill {id}
    #[arg(long, value_name = "FROM..TO", value_parser = range, conflicts_with = "ids_file")]
    pub(crate) ids: Option<(u64, u64)>,
    /// File of ids that fill {id}, one per line
    ///
    /// At most 1 GiB; ids percent-encoded where needed.
    #[arg(long, value_name = "FILE")]
    pub(crate) ids_file: Option<PathBuf>,
    /// Distribution of ids: uniform, zipf:S or sequential
    ///
    /// zipf:S: the k-th id in proportion to k^−S, S from 0 to 10.
    #[arg(long, value_name = "HOW", default_value = "uniform")]
    pub(crate) distribution: Distribution,
    /// Time-out of a request; timed-out requests stay in the percentiles
    ///
    /// From the send; the connection is then closed. Opening one may take as long, at most 5 s.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// Expected status codes, as in 200,404 [default: 2xx and 3xx]
    #[arg(long, value_name = "CODES", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u16).range(200..=999))]
    pub(crate) expect_status: Vec<u16>,
    /// Seed of ids and arrival times; equal seeds repeat a run
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,
    /// Connect to this Unix socket; the URL still provides host and path
    ///
    /// For other hosts, and for TLS on a socket.
    #[arg(long, value_name = "PATH")]
    pub(crate) unix_socket: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) transport: TransportArgs,
}

/// Subcommands of `load`.
#[derive(Debug, Subcommand)]
pub(super) enum LoadCommand {
    /// Compare results printed by --json, and report whether they differ
    #[command(after_help = COMPARE_EXAMPLES)]
    Compare(CompareArgs),
}

const COMPARE_EXAMPLES: &str = "Examples:
  hotrow load compare before.json after.json
  hotrow load compare --a before-*.json --b after-*.json --html compare.html";

/// Options about a target, which a calibration refuses.
const NOT_CALIBRATED: &str = "urls duration requests rate arrivals no_keepalive pipeline \
    streams http2 method header body form ids ids_file distribution warmup timeout expect_status \
    seed unix_socket token_file cacert insecure cert key slo hdr csv html percentiles confirm";

/// The objectives of one `--slo`, as one value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objectives(pub(crate) Vec<Objective>);

/// `--arrivals`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ArrivalsArg {
    /// Even
    Uniform,
    /// A Poisson process, as from many independent users
    Poisson,
}

fn rate(text: &str) -> Result<Rate, String> {
    let (from, to) = text.split_once("..").unwrap_or((text, text));
    let number = |text: &str| {
        text.parse::<f64>().map_err(|_| format!("{text:?} is not a number of requests per second"))
    };
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

fn field(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("must be K=V")?;
    Ok((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_parsed_with_their_units() {
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
        assert!(field("a").is_err());
    }
}
