//! Errors of nginx and its configuration.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::{BACKENDS_MAX, CACHE_TTL_MAX_S, WEIGHT_MAX};

/// Error of nginx or its configuration.
#[derive(Debug, thiserror::Error)]
pub enum NginxError {
    /// It is not installed.
    #[error(
        "nginx is missing: it is neither in PATH nor in {0}; install it (Debian, Ubuntu: apt-get \
         install nginx)"
    )]
    Missing(String),
    /// It cannot be started.
    #[error("{binary} cannot be started: {why}")]
    Start {
        /// The program.
        binary: PathBuf,
        /// The system's error.
        why: std::io::Error,
    },
    /// Its version output is not understood.
    #[error("{binary} -v says {output:?}, which is not a version of nginx")]
    Version {
        /// The program.
        binary: PathBuf,
        /// Its output.
        output: String,
    },
    /// It is too old.
    #[error("{binary} is nginx {version}; {min} is the oldest supported version; install a newer \
             one", min = super::VERSION_MIN)]
    Old {
        /// The program.
        binary: PathBuf,
        /// Its version.
        version: String,
    },
    /// The gzip level is out of range.
    #[error("gzip level {0}: must be 1 to {max}", max = super::GZIP_MAX)]
    Gzip(u32),
    /// Responses could not be sent.
    #[error("a response rate of 0 bytes/s: must be above zero")]
    ResponseRate,
    /// Backups that nginx does not accept.
    #[error(
        "{backups} of {backends} backends are backups: at least one must not be, and hash_on_id, \
         modulo_on_id and ip_hash have none"
    )]
    Backups {
        /// Their number.
        backups: usize,
        /// Number of all backends.
        backends: usize,
    },
    /// It did not end in time.
    #[error(
        "{binary} still checked {file} after {limit_s} s (does the file name hosts that cannot be \
         looked up?)"
    )]
    Slow {
        /// The program.
        binary: PathBuf,
        /// Its configuration.
        file: PathBuf,
        /// Time limit, in s.
        limit_s: u64,
    },
    /// It rejects its configuration.
    #[error("nginx rejects {file}:\n{output}")]
    Refused {
        /// The configuration.
        file: PathBuf,
        /// Its messages.
        output: String,
    },
    /// A file cannot be written.
    #[error("{path} cannot be written: {why}")]
    Unwritable {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        why: std::io::Error,
    },
    /// The certificate could not be created.
    #[error("cannot create a self-signed certificate: {0}")]
    Certificate(String),
    /// Too few or too many backends.
    #[error("{0} backends: must be 1 to {BACKENDS_MAX}")]
    Backends(usize),
    /// A weight out of range.
    #[error("the weight of backend {address} is {weight}: it must be 1 to {WEIGHT_MAX}")]
    Weight {
        /// The backend.
        address: SocketAddr,
        /// Its weight.
        weight: u32,
    },
    /// A cache time out of range.
    #[error("cache time of {0} s: must be 1 to {CACHE_TTL_MAX_S}; omit the cache to disable it")]
    Ttl(u32),
    /// Zero upstream connections.
    #[error("upstream keep-alive of 0 connections: must be at least 1; omit it for none")]
    Keepalive,
    /// Zero workers.
    #[error("0 worker processes: must be at least 1; omit it for one per CPU")]
    Workers,
    /// A path that nginx cannot represent.
    #[error("the path {path:?} {rule}; use another path for nginx")]
    Path {
        /// The path.
        path: PathBuf,
        /// The violated rule.
        rule: &'static str,
    },
    /// An unknown placeholder.
    #[error("line {line} of the template: {{{name}}} is not a placeholder; known ones are {known}")]
    Placeholder {
        /// Line of the template, from 1.
        line: usize,
        /// Its name.
        name: String,
        /// Known placeholders.
        known: String,
    },
    /// A placeholder without a value in this deployment.
    #[error(
        "line {line} of the template: {{{name}}} has no value, because the deployment has no \
         {missing}"
    )]
    Valueless {
        /// Line of the template, from 1.
        line: usize,
        /// Its name.
        name: String,
        /// The missing part of the deployment.
        missing: &'static str,
    },
    /// A required placeholder is missing.
    #[error("the template does not use {{{0}}}, which places nginx in the deployment")]
    Unused(&'static str),
}
