//! nginx in front of backends: its configuration for every topology that is measured, in the form of the original
//! experiments and in a tuned one. Pure but [`find`], [`check`], [`write`] and [`self_signed`].
//!
//! Reading order: [`Front`] (what is wanted), `configuration` (its text), `template` (the user's own text), `program` (the real
//! nginx), `certificate`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

mod certificate;
mod configuration;
mod error;
mod program;
mod template;

pub use certificate::self_signed;
pub use configuration::configuration;
pub use error::NginxError;
pub use program::{VERSION_MIN, check, find, write};
pub use template::{PLACEHOLDERS, from_template};

/// Connections to the backends that each worker of the tuned form keeps open.
pub const UPSTREAM_KEEPALIVE: u32 = 64;
/// The largest weight that is accepted.
pub const WEIGHT_MAX: u32 = 1_000;
/// The most backends that are accepted.
pub const BACKENDS_MAX: usize = 256;
/// The longest life in the cache that is accepted: a year.
pub const CACHE_TTL_MAX_S: u32 = 365 * 24 * 3600;

/// An nginx on the loopback interface, in front of one or more backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Front {
    /// The original's settings, or what should be set today.
    pub form: Form,
    /// Its port, on 127.0.0.1.
    pub listen: u16,
    /// What it stands in front of; 1 to [`BACKENDS_MAX`].
    pub backends: Vec<Backend>,
    /// How requests are dealt out.
    pub balance: Balance,
    /// Whether and how answers are kept.
    pub cache: Option<Cache>,
    /// Idle connections to the backends that each worker keeps open; none: a new connection for each request.
    pub upstream_keepalive: Option<u32>,
    /// Whether every request is logged, to [`Front::access_log_file`].
    pub access_log: bool,
    /// HTTPS instead of HTTP.
    pub tls: Option<Tls>,
    /// Absolute. All that nginx writes is in it, and its configuration too.
    pub folder: PathBuf,
    /// Worker processes; none: one per CPU, as nginx counts them.
    pub workers: Option<u32>,
    /// Whether root starts it: its workers must be root then too, for the folder is root's.
    pub as_root: bool,
    /// Whether the configuration explains itself.
    pub comments: bool,
}

/// Which settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// Those of the original experiments: buffers of 32 × 4 MB, HTTP/1.0 to the backends, no connection kept.
    Original,
    /// HTTP/1.1 to the backends, connections kept, buffers of the size of an answer, a lock in the cache.
    Tuned,
}

/// One of the services behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Where it listens.
    pub address: SocketAddr,
    /// Its share of the requests, relative to the others'; 1 to [`WEIGHT_MAX`]. Round robin does not look at it.
    pub weight: u32,
}

/// How requests are dealt out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Balance {
    /// In turn, evenly.
    RoundRobin,
    /// In turn, by weight.
    Weights,
    /// To the backend with the fewest requests under way, for its weight.
    LeastConnections,
    /// By the last segment of the path: the same record is always asked of the same backend, and when a backend goes only its
    /// records move.
    HashOnId,
}

/// Answers kept by nginx. Only those to GET and HEAD with status 200 are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// In s, 1 to [`CACHE_TTL_MAX_S`].
    pub ttl_s: u32,
    /// What the backend's `Cache-Control` has to say about it.
    pub life: Life,
}

/// How long an answer is kept. nginx counts in whole seconds: each life may be up to one second longer than it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Life {
    /// For `ttl_s`. An answer that the backend wants kept for less is not kept at all. Nothing expired is served.
    AtMost,
    /// As long as the backend's `Cache-Control` says, `stale-while-revalidate` and `stale-if-error` included; for `ttl_s` when it
    /// says nothing.
    AsTold,
}

/// Files for HTTPS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The certificate and those that vouch for it, in PEM.
    pub certificate: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
}

impl Tls {
    /// Where [`self_signed`] puts its files.
    #[must_use]
    pub fn within(folder: &Path) -> Self {
        Self { certificate: folder.join("certificate.pem"), key: folder.join("certificate.key") }
    }
}

impl Front {
    /// In turn to all, nothing kept, no log, no TLS; the tuned form keeps [`UPSTREAM_KEEPALIVE`] connections. Change what
    /// should be otherwise, then [`Front::validate`].
    #[must_use]
    pub fn new(form: Form, listen: u16, backends: Vec<Backend>, folder: PathBuf) -> Self {
        Self {
            form,
            listen,
            backends,
            balance: Balance::RoundRobin,
            cache: None,
            upstream_keepalive: (form == Form::Tuned).then_some(UPSTREAM_KEEPALIVE),
            access_log: false,
            tls: None,
            folder,
            workers: None,
            as_root: rustix::process::geteuid().is_root(),
            comments: false,
        }
    }

    /// Refuses what nginx would refuse later, or misunderstand.
    ///
    /// # Errors
    /// The field, the rule and the value.
    pub fn validate(&self) -> Result<(), NginxError> {
        let n = self.backends.len();
        if n == 0 || n > BACKENDS_MAX {
            return Err(NginxError::Backends(n));
        }
        if let Some(backend) = self.backends.iter().find(|b| !(1..=WEIGHT_MAX).contains(&b.weight)) {
            return Err(NginxError::Weight { address: backend.address, weight: backend.weight });
        }
        if let Some(cache) = self.cache.filter(|c| !(1..=CACHE_TTL_MAX_S).contains(&c.ttl_s)) {
            return Err(NginxError::Ttl(cache.ttl_s));
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

    /// Its configuration file.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.folder.join("nginx.conf")
    }

    /// Where requests are logged, when they are.
    #[must_use]
    pub fn access_log_file(&self) -> PathBuf {
        self.folder.join("access.log")
    }

    /// What it is, for a report: "nginx, tuned form, TLS".
    #[must_use]
    pub fn proxy_words(&self) -> String {
        let form = match self.form {
            Form::Original => "original",
            Form::Tuned => "tuned",
        };
        format!("nginx, {form} form{}", if self.tls.is_some() { ", TLS" } else { "" })
    }

    /// What it keeps, for a report: "1 s in nginx".
    #[must_use]
    pub fn caching_words(&self) -> String {
        match self.cache {
            None => "none".to_owned(),
            Some(Cache { ttl_s, life: Life::AtMost }) => format!("{ttl_s} s in nginx"),
            Some(Cache { ttl_s, life: Life::AsTold }) => format!("in nginx as the service says, else {ttl_s} s"),
        }
    }

    /// How it deals out, for a report: "weights 4:1:1".
    #[must_use]
    pub fn balancing_words(&self) -> String {
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
        }
    }
}

/// The command line that serves `front` in the foreground, its configuration being written. Messages go to standard error.
/// SIGTERM stops it at once, SIGQUIT when the requests under way are answered.
#[must_use]
pub fn argv(binary: &Path, front: &Front) -> Vec<String> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut argv = vec![text(binary), "-p".to_owned(), text(&front.folder), "-c".to_owned(), text(&front.file())];
    // What is said before the configuration is read: without this it goes to a file that only root may write.
    argv.extend(["-e", "stderr", "-g", "daemon off;"].map(str::to_owned));
    argv
}

/// nginx reads paths as text in which `$` begins a variable.
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

#[cfg(test)]
mod tests;
