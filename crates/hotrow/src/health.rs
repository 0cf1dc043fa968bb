//! `hotrow health`: one request to a health endpoint, for the probes of containers and supervisors.
//! It needs neither a shell nor curl, so it works in an image that has only this program.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use hotrow_cli::Exit;
use hotrow_cli::output::print_line;
use hotrow_cli::transport_args::TlsArgs;
use hotrow_config::transport::Transport;
use hotrow_transport::target::Url;
use hotrow_transport::tls::HttpVersion;

use crate::config::{self, ConfigError, Overrides};
use crate::exchange::{Exchange, ExchangeError};

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
    #[arg(long, value_name = "TIME", default_value = "2s")]
    #[arg(value_parser = hotrow_cli::positive_duration)]
    timeout: Duration,
    /// Options of HTTPS.
    #[command(flatten)]
    tls: TlsArgs,
}

/// Reason why the service does not count as healthy.
#[derive(Debug, thiserror::Error)]
pub enum HealthError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is no answer.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
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
}

impl HealthError {
    /// Returns the exit status: 2 if the command line or the configuration is wrong.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Config(_) => Exit::Usage,
            Self::Exchange(error) => error.exit(),
            Self::Unhealthy { .. } => Exit::Failed,
        }
    }
}

/// Runs `hotrow health`.
///
/// # Errors
/// Returns why the service does not count as healthy.
pub fn health(args: &HealthArgs) -> Result<(), HealthError> {
    let probe = probe(args)?;
    let target = probe.target();
    let response = probe.run()?;
    if !(200..300).contains(&response.status) {
        let (status, body) = (response.status, shown(&response.text()));
        return Err(HealthError::Unhealthy { target, status, body });
    }
    print_line(std::io::stdout(), &format!("{target} answered {}", response.status));
    Ok(())
}

fn probe(args: &HealthArgs) -> Result<Exchange, HealthError> {
    let (url, unix) = match (&args.url, &args.config) {
        (Some(url), _) => (url.clone(), args.unix.clone()),
        (None, Some(file)) => configured(file)?,
        (None, None) => (DEFAULT_URL.to_owned(), args.unix.clone()),
    };
    let mut url = Url::parse(&url).map_err(ExchangeError::from)?;
    if url.path == "/" {
        url.path = if args.ready { "/readyz" } else { "/healthz" }.to_owned();
    }
    let tls = args.tls.options(HttpVersion::Http1);
    let (headers, timeout) = (Vec::new(), args.timeout);
    Ok(Exchange { url, unix, headers, tls, timeout, body_bytes_max: BODY_BYTES_MAX })
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
        let exit = |url: &str| Url::parse(url).map_err(ExchangeError::from).unwrap_err().exit();
        assert_eq!(exit("ftp://a"), Exit::Usage);
        assert_eq!(ExchangeError::Late(String::new(), Duration::ZERO).exit(), Exit::Failed);
    }
}
