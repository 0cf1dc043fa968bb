//! What can be wrong with an nginx.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::{BACKENDS_MAX, CACHE_TTL_MAX_S, WEIGHT_MAX};

/// Why there is no nginx.
#[derive(Debug, thiserror::Error)]
pub enum NginxError {
    /// It is not installed.
    #[error("nginx is missing: it is neither in PATH nor in {0}; install it (Debian, Ubuntu: apt-get install nginx)")]
    Missing(String),
    /// It cannot be started.
    #[error("{binary} cannot be started: {why}")]
    Start {
        /// The program.
        binary: PathBuf,
        /// Why.
        why: std::io::Error,
    },
    /// It does not say which version it is.
    #[error("{binary} -v says {said:?}, which is no version of nginx")]
    Version {
        /// The program.
        binary: PathBuf,
        /// Its answer.
        said: String,
    },
    /// It is too old.
    #[error("{binary} is nginx {version}; {min} is the oldest that will do: install a newer one", min = super::VERSION_MIN)]
    Old {
        /// The program.
        binary: PathBuf,
        /// Its version.
        version: String,
    },
    /// It did not come to an end.
    #[error(
        "{binary} was still checking {file} after {limit_s} s (does the file name hosts that cannot be looked up?)"
    )]
    Slow {
        /// The program.
        binary: PathBuf,
        /// Its configuration.
        file: PathBuf,
        /// How long it was waited for, in s.
        limit_s: u64,
    },
    /// It refuses its configuration.
    #[error("nginx refuses {file}:\n{said}")]
    Refused {
        /// The configuration.
        file: PathBuf,
        /// What it says.
        said: String,
    },
    /// A file of it cannot be written.
    #[error("{path} cannot be written: {why}")]
    Unwritable {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        why: std::io::Error,
    },
    /// A certificate could not be made.
    #[error("no self-signed certificate could be made: {0}")]
    Certificate(String),
    /// None, or too many backends.
    #[error("{0} backends: there must be 1 to {BACKENDS_MAX}")]
    Backends(usize),
    /// A weight that nobody can want.
    #[error("the weight of backend {address} is {weight}: it must be 1 to {WEIGHT_MAX}")]
    Weight {
        /// Which.
        address: SocketAddr,
        /// Its weight.
        weight: u32,
    },
    /// A life in the cache that nobody can want.
    #[error("answers are to be kept for {0} s: it must be 1 to {CACHE_TTL_MAX_S}; leave the cache out for not at all")]
    Ttl(u32),
    /// Keep-alive of nothing.
    #[error("0 connections are to be kept open to the backends: it must be at least 1; leave it out for none")]
    Keepalive,
    /// Nobody to work.
    #[error("0 worker processes: there must be at least 1; leave it out for one per CPU")]
    Workers,
    /// A path that nginx cannot be told.
    #[error("the path {path:?} {rule}: take another for nginx")]
    Path {
        /// The path.
        path: PathBuf,
        /// What is wrong with it.
        rule: &'static str,
    },
    /// A placeholder that does not exist.
    #[error("line {line} of the template: {{{name}}} is no placeholder; there are {known}")]
    Placeholder {
        /// From 1.
        line: usize,
        /// Its name.
        name: String,
        /// Those that exist.
        known: String,
    },
    /// A placeholder for what the set-up does not have.
    #[error("line {line} of the template: {{{name}}} has no value, for the set-up has no {lacks}")]
    Valueless {
        /// From 1.
        line: usize,
        /// Its name.
        name: String,
        /// What is missing.
        lacks: &'static str,
    },
    /// A template that does not use what it must.
    #[error(
        "the template does not use {{{0}}}: without it nginx would not be where, or in front of what, the set-up says"
    )]
    Unused(&'static str),
}
