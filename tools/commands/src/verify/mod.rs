//! `hotrow verify`: the contract's checker as a command.
//!
//! Reading order: [`args`] (command line), `resolve` and `redis` (command line and configuration to
//! a plan), this file (the run), `text` and `json` (the result).

pub mod args;
mod configuration;
mod json;
mod plan_error;
mod redis;
mod resolve;
mod text;

use std::io::{IsTerminal, Write};

use hotrow_verify::report::RunVerdict;
use hotrow_verify::run;
use hotrow_verify::run_error::RunError;

use self::args::VerifyArgs;
pub use self::plan_error::PlanError;
use hotrow_cli::output::{self, OutputError};
use hotrow_cli::{Exit, signals};

/// Reason for a missing result.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The arguments or the configuration are wrong.
    #[error(transparent)]
    PlanError(#[from] PlanError),
    /// The run could not start.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The result cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// Signal handlers cannot be installed.
    #[error("cannot listen for signals: {0}")]
    Signals(std::io::Error),
}

impl VerifyError {
    /// Returns the exit status.
    pub fn exit(&self) -> Exit {
        match self {
            Self::PlanError(_) | Self::Run(RunError::NoTable { .. } | RunError::Foreign { .. }) => {
                Exit::Usage
            }
            Self::Run(_) | Self::Output(_) | Self::Signals(_) => Exit::Failed,
        }
    }
}

/// Runs `hotrow verify` and reports.
///
/// # Errors
/// Returns the reason for a missing result.
pub fn verify(args: &VerifyArgs) -> Result<Exit, VerifyError> {
    let stop = signals::stop_flag().map_err(VerifyError::Signals)?;
    let plan = resolve::resolve(args)?;
    if plan.instances.is_empty() && plan.balancers.is_empty() {
        run::create_table(&plan)?;
        output::print(
            std::io::stdout(),
            &format!("the table {} exists, with its first rows", plan.tables.records.name),
        )?;
        return Ok(Exit::Fine);
    }
    let progress = !args.quiet && std::io::stderr().is_terminal();
    let report = run::run(&plan, &stop, &mut |state| {
        if progress {
            // Standard error may be closed.
            let _ = writeln!(std::io::stderr(), "{}", text::progress(state));
        }
    })?;
    if args.json {
        output::print(std::io::stdout(), &json::line(&plan, &report))?;
    } else {
        output::print(std::io::stdout(), text::report(&plan, &report).trim_end())?;
    }
    Ok(match report.verdict() {
        RunVerdict::Passed => Exit::Fine,
        RunVerdict::Violated | RunVerdict::Inconclusive => Exit::Failed,
        RunVerdict::Interrupted => Exit::Interrupted,
    })
}
