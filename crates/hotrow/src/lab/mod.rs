//! `hotrow lab`: experiments on whole set-ups.
//!
//! One file per command: `run`, `list`, `report`, `compare`, `nginx`, `delay`, `reference`, `models`.

mod compare;
mod delay;
mod list;
mod models;
mod nginx;
mod progress;
#[cfg(feature = "reference")]
mod reference;
mod report;
mod run;
mod supervise;
mod utc;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use hotrow_lab::delay::DelayError;
use hotrow_lab::experiment::ExperimentError;
use hotrow_lab::nginx::NginxError;
use hotrow_lab::run::RunError;
use hotrow_lab::run::store::StoreError;

use crate::cli::Exit;
use crate::load::{Unwritable, files};

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
    Run(Box<run::RunArgs>),
    /// List the shipped experiments
    List(list::ListArgs),
    /// Write the report of a finished run again
    Report(report::ReportArgs),
    /// Compare two runs of an experiment
    Compare(compare::CompareArgs),
    /// Print the nginx configuration of a set-up, with a comment on each line that matters
    #[command(after_help = NGINX_EXAMPLES)]
    Nginx(Box<nginx::NginxArgs>),
    /// Send the same requests through one thread, many threads, pools, async: what each costs, and which limit kills which
    Models(Box<models::ModelsArgs>),
    /// Run one model in this process; `lab models` starts it
    #[command(hide = true)]
    Model(models::ModelArgs),
    /// Relay TCP connections with a round-trip time
    #[command(hide = true)]
    Delay(delay::DelayArgs),
    /// Serve the reference service that the shipped experiments measure
    #[cfg(feature = "reference")]
    Reference(reference::ReferenceArgs),
    /// Hold and limit the processes of an experiment; the lab starts it
    #[command(hide = true)]
    Supervise(supervise::SuperviseArgs),
}

const NGINX_EXAMPLES: &str = "Examples:
  hotrow lab nginx --list
  hotrow lab nginx --for w12 --form original --backend 127.0.0.1:9001 --backend 127.0.0.1:9002 > nginx.conf";

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The experiment's file is wrong.
    #[error("{0}")]
    Experiment(#[from] ExperimentError),
    /// No experiment of this name is shipped.
    #[error(
        "there is no experiment {name:?}; there are {known}; a file of your own is told by its .toml, or by a slash in it"
    )]
    UnknownName {
        /// The name.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// The run's folder cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The experiment's file is another than the one that was begun.
    #[error("{file} is not as it was when {folder} was begun; go on without naming it, or begin anew with --out")]
    Changed {
        /// The file.
        file: String,
        /// The run's folder.
        folder: PathBuf,
    },
    /// The result could not be told.
    #[error(transparent)]
    Output(#[from] Unwritable),
    /// There is nothing to go on with.
    #[error("{0} is complete; there is nothing left to measure")]
    Complete(PathBuf),
    /// The run broke.
    #[error("{error}; what was measured is in {folder}")]
    Run {
        /// Why.
        error: RunError,
        /// Where it is kept.
        folder: PathBuf,
    },
    /// The program's own path, or the current folder, is unknown.
    #[error("the path of this program or of the current folder cannot be told: {0}")]
    OwnPath(std::io::Error),
    /// Signals cannot be heard.
    #[error("cannot listen for signals: {0}")]
    Signals(std::io::Error),
    /// There is no report.
    #[error(transparent)]
    Report(#[from] hotrow_lab::report::ReportError),
    /// Two runs cannot be compared.
    #[error(transparent)]
    Compare(#[from] hotrow_lab::report::compare::CompareError),
    /// There is no such nginx.
    #[error(transparent)]
    Nginx(#[from] NginxError),
    /// A life in the cache for a set-up that has none.
    #[error("--cache-s needs a set-up with a cache (w12, cache), and {0} has none")]
    Uncached(&'static str),
    /// No model has this name.
    #[error("there is no model {name:?}; there are {known}; the beginning of several, as in pool, means all of them")]
    UnknownModel {
        /// The name.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// The folder of a run of the models holds one already.
    #[error("{0} holds results already; name another folder with --out")]
    HasModels(PathBuf),
    /// A model's process cannot do what it was told.
    #[error("model: {0}")]
    Model(std::io::Error),
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
    /// The reference service's clock.
    #[cfg(feature = "reference")]
    #[error(transparent)]
    Clock(#[from] hotrow_reference::ClockError),
    /// The reference service's database.
    #[cfg(feature = "reference")]
    #[error(transparent)]
    Database(#[from] hotrow_reference::DatabaseError),
    /// The reference service itself.
    #[cfg(feature = "reference")]
    #[error(transparent)]
    Reference(#[from] hotrow_reference::ServeError),
    /// The supervisor failed.
    #[error("supervise: {0}")]
    Supervise(std::io::Error),
}

impl LabError {
    /// How the process must end.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Experiment(_)
            | Self::UnknownName { .. }
            | Self::UnknownModel { .. }
            | Self::HasModels(_)
            | Self::Store(StoreError::Taken(_) | StoreError::NoRun(..)) => Exit::Usage,
            Self::Changed { .. } | Self::Complete(_) => Exit::Usage,
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
        LabCommand::Models(args) => models::run(args),
        LabCommand::Model(args) => models::child(args),
        LabCommand::Delay(args) => delay::run(args),
        #[cfg(feature = "reference")]
        LabCommand::Reference(args) => reference::run(args),
        LabCommand::Supervise(args) => supervise::run(args),
    }
}

/// Writes a result on standard output.
fn tell(text: &str) -> Result<(), LabError> {
    Ok(files::print(std::io::stdout(), text)?)
}
