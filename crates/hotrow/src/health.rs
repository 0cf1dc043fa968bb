//! `hotrow health`: one request to a health endpoint, for the probes of containers and supervisors.
//! It needs neither a shell nor curl, so it works in an image that has only this program.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use clap::Args;
use hotrow_cli::Exit;
use hotrow_cli::output::print_line;
use hotrow_config::transport::Transport;
use hotrow_transport::fetch::{self, FetchError, FetchedResponse, Request, RequestError};
use hotrow_transport::target::{Address, TargetError, Url};
use hotrow_transport::tls::{HttpVersion, Tls, TlsError, TlsOptions};

use crate::config::{self, ConfigError, Overrides};
use hotrow_cli::transport_args::TlsArgs;

/// The admin address when a configuration names none.
const DEFAULT_URL: &str = "http://127.0.0.1:8081";
/// Longest body that is read; health endpoints answer with less than 1 KiB.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Most characters of a failing answer that are printed.
const SHOWN_CHARS_MAX: usize = 300;

/// Arguments of `health`.
#[derive(Debug, Args)]
pub struct HealthArgs {
    /// URL to probe; without a path, the health endpoint of that address [default:
    /// http://127.0.0.1:8081]
    #[arg(value_name = "URL", conflicts_with = "config")]
    url: Option<String>,
    /// Probe the admin API of this configuration file, by its Unix socket if it has one
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Connect to this Unix socket; the URL then gives only the path
    #[arg(long, value_name = "PATH", conflicts_with = "config")]
    unix: Option<PathBuf>,
    /// Ask whether the service is ready (/readyz) instead of alive (/healthz)
    #[arg(long)]
    ready: bool,
    /// Time for the whole probe
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = timeout)]
    timeout: Duration,
    /// Options of HTTPS.
    #[command(flatten)]
    tls: TlsArgs,
}

fn timeout(text: &str) -> Result<Duration, String> {
    let timeout = hotrow_cli::duration(text)?;
    if timeout.is_zero() { Err("must be longer than zero".to_owned()) } else { Ok(timeout) }
}

/// Reason why the service does not count as healthy.
#[derive(Debug, thiserror::Error)]
pub enum HealthError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The URL is wrong, or its host unknown.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The path is wrong.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// TLS cannot be configured.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// There is no answer.
    #[error("{target}: {error}")]
    NoAnswer {
        /// What was probed.
        target: String,
        /// The cause.
        error: FetchError,
    },
    /// Name resolution or the connection took too long.
    #[error("{target}: no answer within {timeout:?}")]
    Late {
        /// What was probed.
        target: String,
        /// The limit.
        timeout: Duration,
    },
    /// The answer's status is not 2xx.
    #[error("{target} answered {status}: {body}")]
    Unhealthy {
        /// What was probed.
        target: String,
        /// The status.
        status: u16,
        /// The beginning of the body.
        body: String,
    },
    /// The system refuses a thread.
    #[error("no thread for the probe could be started: {0}")]
    Thread(#[from] io::Error),
}

impl HealthError {
    /// Returns the exit status: 2 if the command line or the configuration is wrong.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Config(_) | Self::Request(_) | Self::Target(TargetError::Url { .. }) => {
                Exit::Usage
            }
            Self::Tls(error) if error.is_usage() => Exit::Usage,
            _ => Exit::Failed,
        }
    }
}

/// Runs `hotrow health`.
///
/// # Errors
/// Returns why the service does not count as healthy.
pub fn health(args: &HealthArgs) -> Result<(), HealthError> {
    let probe = Probe::new(args)?;
    let (target, timeout) = (probe.target(), probe.timeout);
    // Name resolution and connecting to a Unix socket have no time limit of their own. The process
    // ends while the thread may still wait.
    let (sender, receiver) = mpsc::channel();
    let run = move || {
        let _ = sender.send(probe.send());
    };
    std::thread::Builder::new().name("probe".to_owned()).spawn(run)?;
    let response = receiver
        .recv_timeout(timeout)
        .map_err(|_| HealthError::Late { target: target.clone(), timeout })??;
    if !(200..300).contains(&response.status) {
        let (status, body) = (response.status, shown(&response.text()));
        return Err(HealthError::Unhealthy { target, status, body });
    }
    print_line(std::io::stdout(), &format!("{target} answered {}", response.status));
    Ok(())
}

/// A request that is ready to be sent.
struct Probe {
    url: Url,
    unix: Option<PathBuf>,
    request: Vec<u8>,
    tls: TlsOptions,
    timeout: Duration,
}

impl Probe {
    fn new(args: &HealthArgs) -> Result<Self, HealthError> {
        let (url, unix) = match (&args.url, &args.config) {
            (Some(url), _) => (url.clone(), args.unix.clone()),
            (None, Some(file)) => configured(file)?,
            (None, None) => (DEFAULT_URL.to_owned(), args.unix.clone()),
        };
        let mut url = Url::parse(&url)?;
        if url.path == "/" {
            url.path = if args.ready { "/readyz" } else { "/healthz" }.to_owned();
        }
        let request = fetch::get(&url.path, &url.host_header(), &[])?;
        let tls = args.tls.options(HttpVersion::Http1);
        Ok(Self { url, unix, request, tls, timeout: args.timeout })
    }

    /// Returns what is probed, for messages.
    fn target(&self) -> String {
        match &self.unix {
            Some(path) => format!("{} {}", path.display(), self.url.path),
            None => self.url.to_string(),
        }
    }

    fn send(&self) -> Result<FetchedResponse, HealthError> {
        let address = match &self.unix {
            Some(path) => Address::Unix(path.clone()),
            None => self.url.resolve(self.timeout)?,
        };
        let tls = match self.url.secure {
            true => Some(Tls::new(&self.url.host, &self.tls)?),
            false => None,
        };
        let request = Request { bytes: &self.request, answer_has_body: true };
        fetch::fetch(&address, tls.as_ref(), request, self.timeout, BODY_BYTES_MAX)
            .map_err(|error| HealthError::NoAnswer { target: self.target(), error })
    }
}

/// Returns the URL of a configuration's admin API, and its Unix socket. That is preferred: it needs
/// no certificate.
fn configured(file: &Path) -> Result<(String, Option<PathBuf>), ConfigError> {
    let server = config::load_offline(file, &Overrides::default())?.server;
    let Transport { unix, tls, .. } = server.admin_transport;
    let scheme = if tls.is_some() && unix.is_none() { "https" } else { "http" };
    let url = format!("{scheme}://{}", reachable(server.admin));
    Ok((url, unix.map(|unix| unix.path)))
}

/// Returns the address to connect to for an address that is listened on: loopback for "all
/// addresses".
fn reachable(mut listened: SocketAddr) -> SocketAddr {
    if listened.ip().is_unspecified() {
        listened.set_ip(match listened.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    listened
}

/// Returns the beginning of a body, on one line and without control characters.
fn shown(body: &str) -> String {
    let line = body.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
    line.take(SHOWN_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_addresses_are_probed_on_loopback() {
        for (listened, probed) in [
            ("0.0.0.0:8081", "127.0.0.1:8081"),
            ("[::]:8081", "[::1]:8081"),
            ("10.0.0.7:81", "10.0.0.7:81"),
        ] {
            assert_eq!(reachable(listened.parse().unwrap()), probed.parse().unwrap());
        }
    }

    #[test]
    fn an_answer_is_shown_on_one_line() {
        assert_eq!(shown("a\nb\x1b[1m\n"), "a b [1m");
        assert_eq!(shown(&"x".repeat(1000)).len(), SHOWN_CHARS_MAX);
    }

    #[test]
    fn wrong_usage_and_an_unhealthy_service_have_different_statuses() {
        let exit = |url: &str| Url::parse(url).map_err(HealthError::from).unwrap_err().exit();
        assert_eq!(exit("ftp://a"), Exit::Usage);
        let late = HealthError::Late { target: String::new(), timeout: Duration::ZERO };
        assert_eq!(late.exit(), Exit::Failed);
    }
}
