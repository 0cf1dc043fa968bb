//! `hotrow lab`: experiments on whole set-ups.
//!
//! One file per command: `run`, `list`, `report`, `compare`, `nginx`, `delay`, `reference`.

mod compare;
mod delay;
mod list;
mod nginx;
#[cfg(feature = "reference")]
mod reference;
mod report;
mod run;

use std::net::SocketAddr;

use clap::{Args, Subcommand};
use hotrow_lab::delay::DelayError;
use hotrow_lab::nginx::NginxError;

use crate::cli::Exit;

/// Arguments of `lab`.
#[derive(Debug, Args)]
pub struct LabArgs {
    /// What to do.
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Run an experiment, and write its report
    Run(run::RunArgs),
    /// List the shipped experiments
    List(list::ListArgs),
    /// Write the report of a finished run again
    Report(report::ReportArgs),
    /// Compare two runs of an experiment
    Compare(compare::CompareArgs),
    /// Print the nginx configuration of a set-up, with a comment on each line that matters
    #[command(after_help = NGINX_EXAMPLES)]
    Nginx(Box<nginx::NginxArgs>),
    /// Relay TCP connections with a round-trip time
    #[command(hide = true)]
    Delay(delay::DelayArgs),
    /// Serve the reference service that the shipped experiments measure
    #[cfg(feature = "reference")]
    Reference(reference::ReferenceArgs),
}

const NGINX_EXAMPLES: &str = "Examples:
  hotrow lab nginx --list
  hotrow lab nginx --for w12 --form original --backend 127.0.0.1:9001 --backend 127.0.0.1:9002 > nginx.conf";

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Not built yet.
    #[error("lab {0} is not built yet")]
    Unfinished(&'static str),
    /// There is no such nginx.
    #[error(transparent)]
    Nginx(#[from] NginxError),
    /// A life in the cache for a set-up that has none.
    #[error("--cache-s needs a set-up with a cache (w12, cache), and {0} has none")]
    Uncached(&'static str),
    /// The relay does not run.
    #[error(transparent)]
    Delay(#[from] DelayError),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {why}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        why: std::io::Error,
    },
    /// The signal handlers could not be installed.
    #[error("cannot listen for signals: {0}")]
    Signals(std::io::Error),
    /// The reference service's clock.
    #[cfg(feature = "reference")]
    #[error(transparent)]
    Clock(#[from] hotrow_reference::ClockError),
    /// The reference service itself.
    #[cfg(feature = "reference")]
    #[error(transparent)]
    Reference(#[from] hotrow_reference::ServeError),
}

impl LabError {
    /// How the process must end.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Uncached(_)
            | Self::Nginx(
                NginxError::Backends(_)
                | NginxError::Weight { .. }
                | NginxError::Ttl(_)
                | NginxError::Keepalive
                | NginxError::Workers
                | NginxError::Path { .. },
            ) => Exit::Usage,
            _ => Exit::Failed,
        }
    }
}

/// Runs `hotrow lab`.
///
/// # Errors
/// What kept it from a result.
pub fn lab(args: &LabArgs) -> Result<Exit, LabError> {
    match &args.command {
        LabCommand::Run(args) => run::run(args),
        LabCommand::List(args) => list::run(args),
        LabCommand::Report(args) => report::run(args),
        LabCommand::Compare(args) => compare::run(args),
        LabCommand::Nginx(args) => nginx::run(args),
        LabCommand::Delay(args) => delay::run(args),
        #[cfg(feature = "reference")]
        LabCommand::Reference(args) => reference::run(args),
    }
}
