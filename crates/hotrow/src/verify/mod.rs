//! `hotrow verify`: the contract's checker as a command.
//!
//! Reading order: [`args`] (what can be asked for), `resolve` (with the configuration, a plan), this file (the run), `text`
//! and `json` (the result).

pub mod args;
mod json;
mod resolve;
mod text;

use std::io::{IsTerminal, Write};

use hotrow_verify::report::Verdict;
use hotrow_verify::run::{self, RunError};

use self::args::VerifyArgs;
pub use self::resolve::Refused;
use crate::cli::Exit;
use crate::load::{Unwritable, files};
use crate::signals;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The arguments or the configuration are wrong.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The run could not begin.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The result could not be told.
    #[error(transparent)]
    Output(#[from] Unwritable),
    /// Signals cannot be heard.
    #[error("cannot listen for signals: {0}")]
    Signals(std::io::Error),
}

impl VerifyError {
    /// How the process must end.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Refused(_) | Self::Run(RunError::NoTable { .. } | RunError::Foreign { .. }) => Exit::Usage,
            Self::Run(_) | Self::Output(_) | Self::Signals(_) => Exit::Failed,
        }
    }
}

/// Runs `hotrow verify` and reports.
///
/// # Errors
/// What kept it from having a result.
pub fn verify(args: &VerifyArgs) -> Result<Exit, VerifyError> {
    let stop = signals::stop_flag().map_err(VerifyError::Signals)?;
    let plan = resolve::resolve(args)?;
    if plan.instances.is_empty() && plan.balancers.is_empty() {
        run::create_table(&plan)?;
        files::print(std::io::stdout(), &format!("the table {} is there, with its first rows", plan.table.name))?;
        return Ok(Exit::Fine);
    }
    let progress = !args.quiet && std::io::stderr().is_terminal();
    let report = run::run(&plan, &stop, &mut |state| {
        if progress {
            // Nobody may be looking.
            let _ = writeln!(std::io::stderr(), "{}", text::progress(state));
        }
    })?;
    if args.json {
        files::print(std::io::stdout(), &json::line(&plan, &report))?;
    } else {
        files::print(std::io::stdout(), text::report(&plan, &report).trim_end())?;
    }
    Ok(match report.verdict() {
        Verdict::Kept => Exit::Fine,
        Verdict::Broken | Verdict::Unproven => Exit::Failed,
        Verdict::Interrupted => Exit::Interrupted,
    })
}
