//! `hotrow-lab`: experiments on whole deployments.
//!
//! Reading order: `run`, `results` (`list`, `report`, `compare`), `nginx`, `models`, `limiter`,
//! `policies`, `reference`, `internal` (commands that experiments start).

mod internal;
mod limiter;
mod models;
mod nginx;
mod policies;
mod progress;
mod reference;
mod results;
mod run;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use hotrow_commands::cli::{MeasureCommand, MeasureError};
use hotrow_lab::experiment::ConfigError;
use hotrow_lab::run::RunError;
use hotrow_lab::run::store::StoreError;
use hotrow_lab::workloads::Elsewhere;
use hotrow_measure::calendar::{iso_date, iso_time};
use hotrow_proxies::delay::DelayError;
use hotrow_proxies::nginx::NginxError;

use hotrow_cli::Exit;
use hotrow_cli::help::Program;
use hotrow_cli::output::{self, OutputError};
use hotrow_cli::pages::{self, PagesArgs, PagesError};

/// Arguments of `lab`.
#[derive(Debug, Args)]
pub(crate) struct LabArgs {
    /// Lab command
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    #[command(flatten)]
    Measure(MeasureCommand),
    /// Run an experiment and write its report
    #[command(after_help = "Examples:\n  hotrow-lab run backends-limited-cpu\n  \
        hotrow-lab run my-service.toml --rounds 5 --out results/")]
    Run(Box<run::RunArgs>),
    /// List the shipped experiments
    #[command(after_help = "Examples:\n  hotrow-lab list")]
    List(results::ListArgs),
    /// Write the report of a finished run again
    #[command(after_help = "Examples:\n  hotrow-lab report results/monday")]
    Report(results::ReportArgs),
    /// Compare two runs of an experiment
    #[command(after_help = "Examples:\n  hotrow-lab compare results/monday results/friday")]
    Compare(results::CompareArgs),
    /// Print the nginx configuration of a deployment, with explanatory comments
    #[command(after_help = NGINX_EXAMPLES)]
    Nginx(Box<nginx::NginxArgs>),
    /// Measure costs and limits of one thread, many threads, pools and async
    Models(Box<models::ModelsArgs>),
    /// Compare the rate limiter with its published vectors
    #[command(after_help = "Examples:\n  hotrow-lab limiter --markdown")]
    Limiter(limiter::LimiterArgs),
    /// Replay access traces against cache policies: LRU, LFU, S3-FIFO and Hotrow
    Policies(policies::PoliciesArgs),
    /// Run one model in this process; `lab models` starts it
    #[command(hide = true)]
    Model(models::ModelArgs),
    /// Relay TCP connections with a round-trip time
    #[command(hide = true)]
    Delay(internal::DelayArgs),
    /// Serve the reference service that the shipped experiments measure
    Reference(reference::ReferenceArgs),
    /// Manage and limit the processes of an experiment; started by the lab
    #[command(hide = true)]
    Supervise(internal::SuperviseArgs),
    /// Write the manual pages and shell completions; for packages
    #[command(hide = true)]
    Pages(PagesArgs),
}

const NGINX_EXAMPLES: &str = "Examples:
  hotrow-lab nginx --list
  hotrow-lab nginx --for round-robin-cache --profile published --backend 127.0.0.1:9001 \\
      --backend 127.0.0.1:9002 > nginx.conf";

/// Reason for a missing result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LabError {
    /// A command that measures or checks a service has no result.
    #[error(transparent)]
    Measure(#[from] MeasureError),
    /// The experiment file is invalid.
    #[error("{0}")]
    Experiment(#[from] ConfigError),
    /// No built-in experiment has this name.
    #[error(
        "there is no experiment {name:?}; there are {known}; a file of your own needs a .toml \
         extension or a slash in its name"
    )]
    UnknownName {
        /// The given name.
        name: String,
        /// The known names.
        known: String,
    },
    /// The workload is not an experiment.
    #[error("{} is not an experiment; for {}, run: {}", .0.name, .0.what, .0.command)]
    Elsewhere(&'static Elsewhere),
    /// The run's folder cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The experiment file has changed since the run began.
    #[error(
        "{file} has changed since {folder} was started; resume without naming it, or start a new \
         run with --out"
    )]
    Changed {
        /// The file.
        file: String,
        /// The run's folder.
        folder: PathBuf,
    },
    /// The vectors of this program cannot be read.
    #[error("the limiter's vectors: {0}")]
    Vectors(#[from] serde_json::Error),
    /// The result cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The run is complete.
    #[error("{0} is complete; there is nothing left to measure")]
    Complete(PathBuf),
    /// The run failed.
    #[error("{error}; earlier measurements are in {folder}")]
    Run {
        /// The reason.
        error: RunError,
        /// The run's folder.
        folder: PathBuf,
    },
    /// The program's own path or the current folder is unknown.
    #[error("cannot get the path of this program or of the current folder: {0}")]
    OwnPath(std::io::Error),
    /// Signal handlers cannot be installed.
    #[error("cannot listen for signals: {0}")]
    Signals(std::io::Error),
    /// The report cannot be written.
    #[error(transparent)]
    Report(#[from] hotrow_results::report_files::ReportError),
    /// Two runs cannot be compared.
    #[error(transparent)]
    Compare(#[from] hotrow_lab::report::compare::CompareError),
    /// nginx is missing or unusable.
    #[error(transparent)]
    Nginx(#[from] NginxError),
    /// A cache time for a deployment without a cache.
    #[error("--cache-s needs a deployment with a cache, such as round-robin-cache; {0} has none")]
    Uncached(&'static str),
    /// No model has this name.
    #[error(
        "there is no model {name:?}; there are {known}; a prefix such as pool selects \
         all its models"
    )]
    UnknownModel {
        /// The given name.
        name: String,
        /// The known names.
        known: String,
    },
    /// A trace cannot be read.
    #[error("{0}")]
    Trace(String),
    /// A rate that no limit can have.
    #[error(transparent)]
    Rate(#[from] hotrow_admission::rate::value::RateError),
    /// The folder contains results of models already.
    #[error("{0} contains results already; use another folder with --out")]
    HasModels(PathBuf),
    /// A model's process cannot run.
    #[error("model: {0}")]
    Model(std::io::Error),
    /// The relay cannot run.
    #[error(transparent)]
    Delay(#[from] DelayError),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {why}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The reason.
        why: std::io::Error,
    },
    /// The reference service's clock is invalid.
    #[error(transparent)]
    Clock(#[from] hotrow_reference::ClockError),
    /// The reference service's database failed.
    #[error(transparent)]
    Database(#[from] hotrow_reference::DatabaseError),
    /// The reference service failed.
    #[error(transparent)]
    Reference(#[from] hotrow_reference::ServeError),
    /// The pages cannot be written.
    #[error(transparent)]
    Pages(#[from] PagesError),
    /// The supervisor failed.
    #[error("supervise: {0}")]
    Supervise(std::io::Error),
}

impl LabError {
    /// Returns the exit status.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Experiment(_)
            | Self::UnknownName { .. }
            | Self::Elsewhere(_)
            | Self::Trace(_)
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
            Self::Measure(error) => error.exit(),
            _ => Exit::Failed,
        }
    }
}

/// Runs `hotrow-lab`, whose command line is `program`.
///
/// # Errors
/// Returns the reason for a missing result.
pub(crate) fn lab(args: &LabArgs, program: &Program) -> Result<Exit, LabError> {
    match &args.command {
        LabCommand::Measure(command) => Ok(command.run()?),
        LabCommand::Run(args) => run::run(args),
        LabCommand::List(args) => results::list(args),
        LabCommand::Report(args) => results::report(args),
        LabCommand::Compare(args) => results::compare(args),
        LabCommand::Nginx(args) => nginx::run(args),
        LabCommand::Models(args) => models::run(args),
        LabCommand::Policies(args) => policies::compare(args),
        LabCommand::Limiter(args) => limiter::check(args),
        LabCommand::Model(args) => models::child(args),
        LabCommand::Delay(args) => internal::delay(args),
        LabCommand::Reference(args) => reference::run(args),
        LabCommand::Supervise(args) => internal::supervise(args),
        LabCommand::Pages(args) => Ok(pages::write(program, args).map(|()| Exit::Fine)?),
    }
}

/// Writes a result to standard output.
fn print(text: &str) -> Result<(), LabError> {
    Ok(output::print(std::io::stdout(), text)?)
}

/// Formats a time for names of folders: `20260131-235959`, in UTC.
fn time_in_names(unix_s: u64) -> String {
    let date = iso_date(unix_s).replace('-', "");
    let time = iso_time(unix_s).replace(':', "");
    format!("{date}-{time}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_names_are_formatted() {
        assert_eq!(time_in_names(0), "19700101-000000");
        assert_eq!(time_in_names(951_782_399), "20000228-235959");
        assert_eq!(time_in_names(4_107_542_400), "21000301-000000");
    }
}
