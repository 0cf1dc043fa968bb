//! Conversion of arguments to a run: resolves names, reads files and rejects contradictions before
//! anything is sent.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hotrow_diagnose::doctor::startup::Generator;
use hotrow_load::ids::Ids;
use hotrow_load::plan::{Arrivals, LoadModel, Plan, StopCondition};
use hotrow_load::request::{FORM_MEDIA_TYPE, RequestError, RequestMix, RequestSpec, encode_form};
use hotrow_load::run::{Config, ExpectedStatus, RunqueueWait};
use hotrow_transport::target::{Address, TargetError, Url};
use hotrow_transport::tls::HttpVersion;

use super::args::{ArrivalsArg, LoadArgs, TargetArgs};
use hotrow_cli::output::{OutputError, OutputFile};
use hotrow_cli::transport_args::TransportError;

const DURATION_DEFAULT: Duration = Duration::from_secs(10);
/// Longest wait for a connection: a filtered port is detected within seconds.
const CONNECT_TIMEOUT_MAX: Duration = Duration::from_secs(5);
/// Largest body, and largest file of ids, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Errors in the arguments, found before the run.
#[derive(Debug, thiserror::Error)]
pub enum ArgumentError {
    /// The URL, or its host.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The request.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The plan.
    #[error(transparent)]
    Plan(#[from] hotrow_load::plan::PlanError),
    /// TLS, headers or credentials.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// A weight is no number.
    #[error("the weight in {0:?} must be a whole number, as in '3*http://…'")]
    Weight(String),
    /// The URLs have different servers.
    #[error("{first} and {other} are not the same server; one run loads one")]
    SeveralServers {
        /// The first URL.
        first: String,
        /// Another URL.
        other: String,
    },
    /// A file cannot be used.
    #[error("{path} cannot be read: {why}")]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// A file cannot be written.
    #[error(transparent)]
    OutputError(#[from] OutputError),
    /// Contradictory arguments.
    #[error("{0}")]
    Contradiction(String),
    /// More connections than open files.
    #[error(
        "{connections} connections need more open files than the hard limit of this system allows \
         ({limit}); raise it (ulimit -Hn, or LimitNOFILE= of the service), or use fewer \
         connections"
    )]
    OpenFiles {
        /// Requested connections.
        connections: usize,
        /// The limit.
        limit: u64,
    },
    /// More connections than local ports.
    #[error(
        "{connections} connections to one address need more local ports than there are ({ports}); \
         widen net.ipv4.ip_local_port_range, or use fewer connections"
    )]
    Ports {
        /// Requested connections.
        connections: usize,
        /// Available ports.
        ports: u64,
    },
}

/// Checks and prepares everything except output files; returns the URLs as text, and the run.
pub(super) fn resolve(args: &LoadArgs) -> Result<(String, Config), ArgumentError> {
    let plan = plan(args)?;
    judgeable(args)?;
    target(&args.urls, &args.target, plan)
}

/// Resolves the target of a plan; returns the URLs as text, and the run.
pub(crate) fn target(
    texts: &[String],
    args: &TargetArgs,
    plan: Plan,
) -> Result<(String, Config), ArgumentError> {
    let urls = urls(texts)?;
    let first = &urls[0].1;
    if let Some((_, other)) = urls.iter().find(|(_, url)| !url.same_origin(first)) {
        return Err(ArgumentError::SeveralServers {
            first: first.to_string(),
            other: other.to_string(),
        });
    }
    if args.timeout.is_zero() {
        return Err(contradiction("--timeout must be longer than nothing"));
    }
    let requests = requests(args, &urls)?;
    let connections = args.connections.get();
    let threads = threads(args)?;
    let version = args.transport.version();
    let depth = match version {
        HttpVersion::Http1 => args.pipeline.get(),
        HttpVersion::Http2 => args.streams.get(),
    };
    if (depth > 1 || version == HttpVersion::Http2) && args.no_keepalive {
        return Err(contradiction(
            "--pipeline and --http2 need connections that stay open; leave --no-keepalive out",
        ));
    }
    fit_open_files(connections, threads)?;
    args.transport.check(texts.iter())?;
    let tls = args.transport.tls(first, version)?;
    let connect_timeout = args.timeout.min(CONNECT_TIMEOUT_MAX);
    let config = Config {
        address: address(args, first, connect_timeout)?,
        tls,
        requests,
        plan,
        connections,
        threads,
        keepalive: !args.no_keepalive,
        version,
        depth,
        timeout: args.timeout,
        connect_timeout,
        expect: match args.expect_status.as_slice() {
            [] => ExpectedStatus::Success,
            codes => ExpectedStatus::Status(codes.to_vec()),
        },
        seed: args.seed,
        runqueue_wait: runqueue_wait(),
        burn_per_request: Duration::ZERO,
    };
    Ok((urls.iter().map(|(_, url)| url.to_string()).collect::<Vec<_>>().join(" "), config))
}

/// Resolves the destination and checks that enough ports are available.
fn address(args: &TargetArgs, url: &Url, patience: Duration) -> Result<Address, ArgumentError> {
    let address = match &args.unix_socket {
        Some(path) => Address::Unix(path.clone()),
        None => url.resolve(patience)?,
    };
    let connections = args.connections.get();
    match (&address, local_ports()) {
        (Address::Tcp(_), Some(ports)) if connections as u64 > ports => {
            Err(ArgumentError::Ports { connections, ports })
        }
        _ => Ok(address),
    }
}

/// Returns the run's requirements of this machine, if it uses ports and accept queues.
pub(crate) fn wanted(config: &Config) -> Option<Generator> {
    let Address::Tcp(address) = config.address else { return None };
    let new_per_s = match config.plan.model {
        LoadModel::Open { rate, .. } if !config.keepalive => Some(rate.from().max(rate.to())),
        _ => None,
    };
    Some(Generator {
        connections: config.connections as u64,
        new_per_s,
        local: address.ip().is_loopback(),
    })
}

pub(super) fn threads(args: &TargetArgs) -> Result<usize, ArgumentError> {
    let connections = args.connections.get();
    let threads = args.threads.map_or_else(|| threads_default(connections), NonZeroUsize::get);
    if threads > connections {
        return Err(ArgumentError::Contradiction(format!(
            "{threads} threads need as many connections; there are {connections}"
        )));
    }
    Ok(threads)
}

/// Returns a source of run-queue waits, from `/proc`.
pub(super) fn runqueue_wait() -> Option<RunqueueWait> {
    Some(Arc::new(|tid| {
        hotrow_diagnose::schedstat::of_thread(Path::new("/proc"), tid).ok().map(|stat| stat.waiting)
    }))
}

fn judgeable(args: &LoadArgs) -> Result<(), ArgumentError> {
    let shares =
        args.slo.iter().flat_map(|slo| &slo.0).find(|objective| objective.needs_target_rate());
    match shares {
        Some(objective) if args.rate.is_none() => Err(ArgumentError::Contradiction(format!(
            "{objective} is a share of a target rate; add --rate, or give the objective in \
             requests per second"
        ))),
        _ => Ok(()),
    }
}

/// Creates or truncates the files of `--hdr`, `--csv` and `--html`. Called last: a rejected run
/// must not truncate a file.
pub(super) fn output_files(args: &LoadArgs) -> Result<[Option<OutputFile>; 3], ArgumentError> {
    let create = |path: &Option<PathBuf>| path.as_deref().map(OutputFile::create).transpose();
    let files = [create(&args.hdr)?, create(&args.csv)?, create(&args.html)?];
    let names = ["--hdr", "--csv", "--html"];
    for (i, j) in [(0, 1), (0, 2), (1, 2)] {
        if let (Some(one), Some(other)) = (&files[i], &files[j])
            && one.is_same(other)
        {
            return Err(contradiction(&format!(
                "{} and {} name the same file; give each its own",
                names[i], names[j]
            )));
        }
    }
    Ok(files)
}

/// Parses URLs with their weights; clap requires at least one.
fn urls(texts: &[String]) -> Result<Vec<(u32, Url)>, ArgumentError> {
    let parse = |text: &String| match text.split_once('*') {
        Some((weight, url)) if !weight.contains("://") => {
            let weight = weight.trim().parse().map_err(|_| ArgumentError::Weight(text.clone()))?;
            Ok((weight, Url::parse(url)?))
        }
        _ => Ok((1, Url::parse(text)?)),
    };
    let urls = texts.iter().map(parse).collect::<Result<Vec<_>, ArgumentError>>()?;
    if urls.is_empty() { Err(contradiction("name a URL")) } else { Ok(urls) }
}

fn plan(args: &LoadArgs) -> Result<Plan, ArgumentError> {
    if args.requests == Some(0) {
        return Err(contradiction(
            "--requests 0 sends nothing; give a number above zero, or leave it out",
        ));
    }
    let arrivals = match args.arrivals {
        ArrivalsArg::Uniform => Arrivals::Uniform,
        ArrivalsArg::Poisson => Arrivals::Poisson,
    };
    let duration = args.duration.or(args.requests.is_none().then_some(DURATION_DEFAULT));
    let plan = Plan {
        model: args.rate.map_or(LoadModel::Closed, |rate| LoadModel::Open { rate, arrivals }),
        warmup: args.warmup,
        stop: StopCondition { duration, requests: args.requests },
        seed: args.target.seed,
    };
    plan.check()?;
    Ok(plan)
}

fn requests(args: &TargetArgs, urls: &[(u32, Url)]) -> Result<RequestMix, ArgumentError> {
    let mut headers = args.transport.headers()?;
    let body = body(args, &mut headers)?;
    let method = args
        .method
        .clone()
        .unwrap_or_else(|| if body.is_some() { "POST" } else { "GET" }.to_owned());
    let host = urls[0].1.host_header();
    let describe = |(weight, url): &'_ (u32, Url)| (*weight, url.path.clone());
    let paths: Vec<(u32, String)> = urls.iter().map(describe).collect();
    let descriptions: Vec<RequestSpec<'_>> = paths
        .iter()
        .map(|(weight, path)| RequestSpec {
            method: &method,
            path,
            host: &host,
            headers: &headers,
            body: body.as_deref(),
            weight: *weight,
            keepalive: !args.no_keepalive,
        })
        .collect();
    let ids = match (&args.ids, &args.ids_file) {
        (Some((from, to)), _) => Some(Ids::range(*from, *to)?),
        (None, Some(path)) => Some(Ids::list(lines(path)?)?),
        (None, None) => None,
    };
    Ok(RequestMix::new(&descriptions, ids.map(|ids| (ids, args.distribution)))?)
}

fn body(
    args: &TargetArgs,
    headers: &mut Vec<(String, String)>,
) -> Result<Option<Vec<u8>>, ArgumentError> {
    if !args.form.is_empty() {
        let has_content_type =
            headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        if !has_content_type {
            headers.push(("Content-Type".to_owned(), FORM_MEDIA_TYPE.to_owned()));
        }
        let fields = args.form.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        return Ok(Some(encode_form(fields).into_bytes()));
    }
    match args.body.as_deref() {
        None => Ok(None),
        Some(text) => match text.strip_prefix('@') {
            Some(path) => read(Path::new(path)).map(Some),
            None => Ok(Some(text.as_bytes().to_vec())),
        },
    }
}

fn lines(path: &Path) -> Result<Vec<String>, ArgumentError> {
    let bytes = read(path)?;
    let text = String::from_utf8(bytes).map_err(|_| ArgumentError::File {
        path: path.to_owned(),
        why: "it is not UTF-8 text".to_owned(),
    })?;
    Ok(text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

fn read(path: &Path) -> Result<Vec<u8>, ArgumentError> {
    let refuse = |why: String| ArgumentError::File { path: path.to_owned(), why };
    let bytes = fs::metadata(path).map_err(|e| refuse(e.to_string()))?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(refuse(format!("it is larger than {FILE_BYTES_MAX} bytes")));
    }
    fs::read(path).map_err(|e| refuse(e.to_string()))
}

/// One thread saturates a server of several cores; more would take CPUs from a target on the same
/// machine.
fn threads_default(connections: usize) -> usize {
    let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    (processors / 2).clamp(1, connections)
}

/// Open files that are not connections: standard streams, results, samples of the machine.
const FILES_BASE: usize = 64;
/// Open files of a thread of the generator, beside its connections.
const FILES_PER_THREAD: usize = 4;

pub(super) fn fit_open_files(connections: usize, threads: usize) -> Result<(), ArgumentError> {
    let Some(limit) = hotrow_cli::raise_open_files_limit() else { return Ok(()) };
    let needed = connections + FILES_BASE + threads * FILES_PER_THREAD;
    if needed as u64 > limit {
        return Err(ArgumentError::OpenFiles { connections, limit });
    }
    Ok(())
}

/// Returns the number of local ports for outgoing connections; `None` when unknown.
fn local_ports() -> Option<u64> {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    let mut ends = text.split_ascii_whitespace().map(|word| word.parse::<u64>().ok());
    let first = ends.next()??;
    let last = ends.next()??;
    last.checked_sub(first).map(|ports| ports + 1)
}

fn contradiction(words: &str) -> ArgumentError {
    ArgumentError::Contradiction(words.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_come_before_urls() {
        let texts =
            |texts: &[&str]| urls(&texts.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>());
        let found = texts(&["9*http://a/x", "http://a/y?q=2*3"]).unwrap();
        assert_eq!((found[0].0, found[0].1.path.as_str()), (9, "/x"));
        assert_eq!((found[1].0, found[1].1.path.as_str()), (1, "/y?q=2*3"));
        assert!(matches!(texts(&["x*http://a/"]), Err(ArgumentError::Weight(_))));
    }
}
