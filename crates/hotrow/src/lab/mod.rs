//! `hotrow lab`: experiments on whole set-ups.
//!
//! One file per command: `run`, `list`, `report`, `compare`, `nginx`, `reference`.

mod compare;
mod list;
mod nginx;
#[cfg(feature = "reference")]
mod reference;
mod report;
mod run;

use clap::{Args, Subcommand};

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
    Nginx(nginx::NginxArgs),
    /// Serve the reference service that the shipped experiments measure
    #[cfg(feature = "reference")]
    Reference(reference::ReferenceArgs),
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Not built yet.
    #[error("lab {0} is not built yet")]
    Unfinished(&'static str),
    /// The signal handlers could not be installed.
    #[error("cannot listen for signals: {0}")]
    Signals(std::io::Error),
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
}

impl LabError {
    /// How the process must end.
    #[must_use]
    pub fn exit(&self) -> Exit {
        Exit::Failed
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
        #[cfg(feature = "reference")]
        LabCommand::Reference(args) => reference::run(args),
    }
}
