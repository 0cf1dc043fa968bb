//! nginx in front of backends: its configuration for every measured topology, with the settings of
//! the published experiments and with tuned ones. Pure except for [`find`], [`check`], [`write`]
//! and [`self_signed`].
//!
//! Reading order: [`NginxProxy`] (the topology), `configuration` (its text), `template` (a user's
//! own text), `program` (the nginx binary), `certificate`.

use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

mod configuration;
mod error;
mod program;
mod template;

pub use configuration::configuration;
pub use error::NginxError;
pub use program::{VERSION_MIN, check, find, write};
pub use template::{PLACEHOLDERS, from_template};

/// Idle upstream connections per worker in the tuned profile.
pub const UPSTREAM_KEEPALIVE: u32 = 64;
/// Largest accepted weight.
pub const WEIGHT_MAX: u32 = 1_000;
/// Most accepted backends.
pub const BACKENDS_MAX: usize = 256;
/// Highest gzip level.
pub const GZIP_MAX: u32 = 9;
/// Longest accepted time without a failed backend: an hour.
pub const FAIL_TIMEOUT_MAX_S: u32 = 3600;
/// Longest accepted cache time: a year.
pub const CACHE_TTL_MAX_S: u32 = 365 * 24 * 3600;

/// An nginx on the loopback interface, in front of one or more backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NginxProxy {
    /// Settings: published or tuned.
    pub profile: ProxyProfile,
    /// Its port, on 127.0.0.1.
    pub listen: u16,
    /// Its backends; 1 to [`BACKENDS_MAX`].
    pub backends: Vec<Backend>,
    /// Balancing policy.
    pub balance: Balance,
    /// Detection and handling of failed backends.
    pub failover: Failover,
    /// Level at which responses are compressed, 1 to [`GZIP_MAX`]; `None`: not at all.
    pub gzip: Option<u32>,
    /// Most bytes per second of one response; `None`: without a limit.
    pub response_rate: Option<u32>,
    /// Response cache, if any.
    pub cache: Option<Cache>,
    /// Idle connections to the backends per worker; `None`: a new connection per request.
    pub upstream_keepalive: Option<u32>,
    /// True if every request is logged, to [`NginxProxy::access_log_file`].
    pub access_log: bool,
    /// HTTPS instead of HTTP.
    pub tls: Option<Tls>,
    /// Absolute folder for all files of nginx, its configuration included.
    pub folder: PathBuf,
    /// Worker processes; `None`: one per CPU, as nginx counts them.
    pub workers: Option<u32>,
    /// True if root starts it. The workers must then be root too, because the folder belongs to
    /// root.
    pub as_root: bool,
    /// True if the configuration contains explanatory comments.
    pub comments: bool,
}

/// Settings profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProxyProfile {
    /// Published experiments: buffers of 32 × 4 MB, HTTP/1.0 to the backends, no upstream
    /// keep-alive.
    Published,
    /// HTTP/1.1 to the backends, upstream keep-alive, buffers of the size of a response, cache
    /// lock.
    Tuned,
}

/// A backend service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Its address.
    pub address: SocketAddr,
    /// Its relative share of the requests; 1 to [`WEIGHT_MAX`]. Round robin ignores it.
    pub weight: u32,
}

/// Balancing policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Balance {
    /// Round robin.
    RoundRobin,
    /// Weighted round robin.
    Weights,
    /// The backend with the fewest requests in progress, relative to its weight.
    LeastConnections,
    /// Consistent hash of the last path segment: a record always goes to the same backend, and when
    /// a backend is removed only its records move.
    HashOnId,
    /// Hash of the last path segment, modulo the number of backends: another number of backends
    /// moves nearly every record.
    ModuloOnId,
    /// Hash of the client's address (the first three bytes of IPv4): a client always goes to the
    /// same backend.
    IpHash,
}

impl Balance {
    /// Returns whether nginx accepts backups with it.
    #[must_use]
    pub fn allows_backups(self) -> bool {
        !matches!(self, Self::HashOnId | Self::ModuloOnId | Self::IpHash)
    }
}

/// Detection and handling of failed backends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failover {
    /// Failed attempts within `fail_timeout_s` that take a backend out for as long; 0 for never.
    /// `None`: nginx's default, 1.
    pub max_fails: Option<u32>,
    /// See `max_fails`, in s, at most [`FAIL_TIMEOUT_MAX_S`]. `None`: nginx's default, 10.
    pub fail_timeout_s: Option<u32>,
    /// Number of backends, the last ones, that serve only while no other does.
    pub backups: usize,
    /// True if a failed attempt is repeated at another backend.
    pub retry: bool,
}

impl Default for Failover {
    fn default() -> Self {
        Self { max_fails: None, fail_timeout_s: None, backups: 0, retry: true }
    }
}

/// Response cache in nginx. It stores only responses to GET and HEAD with status 200.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Time to live in s, 1 to [`CACHE_TTL_MAX_S`].
    pub ttl_s: u32,
    /// Effect of the backend's `Cache-Control`.
    pub lifetime: CacheLifetime,
}

/// Lifetime of cached responses. nginx counts whole seconds: each may last up to one second longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheLifetime {
    /// Fixed `ttl_s`. A response with a shorter lifetime of its own is not stored. Nothing expired
    /// is served.
    Fixed,
    /// Lifetime from the backend's `Cache-Control`, with `stale-while-revalidate` and
    /// `stale-if-error`; `ttl_s` if it has none.
    FromBackend,
}

/// Files for HTTPS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The certificate chain, in PEM.
    pub certificate: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
}

impl Tls {
    /// Returns the paths that [`self_signed`] writes.
    #[must_use]
    pub fn within(folder: &Path) -> Self {
        Self { certificate: folder.join("certificate.pem"), key: folder.join("certificate.key") }
    }
}

impl NginxProxy {
    /// Creates a proxy with round robin, without cache, log and TLS; the tuned profile keeps
    /// [`UPSTREAM_KEEPALIVE`] connections. Change fields as needed, then call
    /// [`NginxProxy::validate`].
    #[must_use]
    pub fn new(
        profile: ProxyProfile,
        listen: u16,
        backends: Vec<Backend>,
        folder: PathBuf,
    ) -> Self {
        Self {
            profile,
            listen,
            backends,
            balance: Balance::RoundRobin,
            failover: Failover::default(),
            gzip: None,
            response_rate: None,
            cache: None,
            upstream_keepalive: (profile == ProxyProfile::Tuned).then_some(UPSTREAM_KEEPALIVE),
            access_log: false,
            tls: None,
            folder,
            workers: None,
            as_root: rustix::process::geteuid().is_root(),
            comments: false,
        }
    }

    /// Refuses values that nginx would refuse later or misinterpret.
    ///
    /// # Errors
    /// The field, the rule and the value.
    pub fn validate(&self) -> Result<(), NginxError> {
        let n = self.backends.len();
        if n == 0 || n > BACKENDS_MAX {
            return Err(NginxError::Backends(n));
        }
        if let Some(backend) = self.backends.iter().find(|b| !(1..=WEIGHT_MAX).contains(&b.weight))
        {
            return Err(NginxError::Weight { address: backend.address, weight: backend.weight });
        }
        if let Some(cache) = self.cache.filter(|c| !(1..=CACHE_TTL_MAX_S).contains(&c.ttl_s)) {
            return Err(NginxError::Ttl(cache.ttl_s));
        }
        let Failover { backups, .. } = self.failover;
        if backups >= n || (backups > 0 && !self.balance.allows_backups()) {
            return Err(NginxError::Backups { backups, backends: n });
        }
        if let Some(level) = self.gzip.filter(|level| !(1..=GZIP_MAX).contains(level)) {
            return Err(NginxError::Gzip(level));
        }
        if self.response_rate == Some(0) {
            return Err(NginxError::ResponseRate);
        }
        if self.upstream_keepalive == Some(0) {
            return Err(NginxError::Keepalive);
        }
        if self.workers == Some(0) {
            return Err(NginxError::Workers);
        }
        let files = self.tls.iter().flat_map(|tls| [&tls.certificate, &tls.key]);
        files.chain([&self.folder]).try_for_each(|path| validate_path(path))
    }

    /// Returns the path of its configuration file.
    pub fn file(&self) -> PathBuf {
        self.folder.join("nginx.conf")
    }

    /// Returns the path of the access log.
    pub fn access_log_file(&self) -> PathBuf {
        self.folder.join("access.log")
    }

    /// Describes the proxy for a report: "nginx, tuned profile, TLS".
    pub fn describe_proxy(&self) -> String {
        let profile = match self.profile {
            ProxyProfile::Published => "published",
            ProxyProfile::Tuned => "tuned",
        };
        format!("nginx, {profile} profile{}", if self.tls.is_some() { ", TLS" } else { "" })
    }

    /// Describes the cache for a report: "1 s in nginx".
    pub fn describe_caching(&self) -> String {
        match self.cache {
            None => "none".to_owned(),
            Some(Cache { ttl_s, lifetime: CacheLifetime::Fixed }) => format!("{ttl_s} s in nginx"),
            Some(Cache { ttl_s, lifetime: CacheLifetime::FromBackend }) => {
                format!("in nginx by Cache-Control, else {ttl_s} s")
            }
        }
    }

    /// Describes the balancing for a report: "weights 4:1:1".
    pub fn describe_balancing(&self) -> String {
        let n = self.backends.len();
        match self.balance {
            _ if n == 1 => "none".to_owned(),
            Balance::RoundRobin => format!("round robin over {n}"),
            Balance::Weights => {
                let weights: Vec<_> = self.backends.iter().map(|b| b.weight.to_string()).collect();
                format!("weights {}", weights.join(":"))
            }
            Balance::LeastConnections => format!("least connections over {n}"),
            Balance::HashOnId => format!("hash on the id over {n}"),
            Balance::ModuloOnId => format!("hash on the id, modulo {n}"),
            Balance::IpHash => format!("hash on the client's address over {n}"),
        }
    }
}

/// Returns the command line that serves `proxy` in the foreground; its configuration must be
/// written. Messages go to standard error. SIGTERM stops it at once, SIGQUIT after the requests in
/// progress.
pub fn argv(binary: &Path, proxy: &NginxProxy) -> Vec<String> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut argv = vec![
        text(binary),
        "-p".to_owned(),
        text(&proxy.folder),
        "-c".to_owned(),
        text(&proxy.file()),
    ];
    // Messages before the configuration is read; by default they go to a file that only root may
    // write.
    argv.extend(["-e", "stderr", "-g", "daemon off;"].map(str::to_owned));
    argv
}

/// Checks a path; nginx treats `$` as the start of a variable.
fn validate_path(path: &Path) -> Result<(), NginxError> {
    let wrong = |rule| Err(NginxError::Path { path: path.to_owned(), rule });
    match path.to_str() {
        None => wrong("is not UTF-8"),
        Some(text) if text.contains('$') => wrong("contains a $, which nginx takes for a variable"),
        Some(text) if text.chars().any(char::is_control) => wrong("contains a control character"),
        Some(_) if !path.is_absolute() => wrong("is not absolute"),
        Some(_) => Ok(()),
    }
}

/// Creates a self-signed certificate for `localhost` and 127.0.0.1 with an ECDSA P-256 key, and
/// writes both into `folder`, which must exist; existing files are replaced. Only the owner can
/// read the key.
///
/// # Errors
/// Failure to create or write them.
pub fn self_signed(folder: &Path) -> Result<Tls, NginxError> {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let pair = rcgen::generate_simple_self_signed(names)
        .map_err(|e| NginxError::Certificate(e.to_string()))?;
    let tls = Tls::within(folder);
    write_new(&tls.certificate, &pair.cert.pem(), 0o644)?;
    write_new(&tls.key, &pair.signing_key.serialize_pem(), 0o600)?;
    Ok(tls)
}

/// Writes a new file; an existing one might be readable by others.
fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), NginxError> {
    let unwritable = |why| NginxError::Unwritable { path: path.to_owned(), why };
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(unwritable(e)),
        _ => {}
    }
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
        .map_err(unwritable)?;
    file.write_all(text.as_bytes()).map_err(unwritable)
}

#[cfg(test)]
mod tests;
