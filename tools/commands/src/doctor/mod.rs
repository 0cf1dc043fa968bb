//! `hotrow doctor`: compares this machine's limits with a goal.
//!
//! Reading order: [`args`] (the command line), this file, `text` and `json` (the result),
//! `verify_limits` (predictions compared with observations). The formulas are in
//! `hotrow_diagnose::doctor`.

pub mod args;
mod json;
mod text;
mod verify_limits;

use hotrow_diagnose::doctor::limits::Limits;
use hotrow_diagnose::doctor::startup::{self, Generator};
use hotrow_diagnose::doctor::{evaluate, suffices};
use hotrow_diagnose::root::Root;

use self::args::DoctorArgs;
pub use self::verify_limits::LimitCheckError;
use hotrow_cli::output::OutputError;
use hotrow_cli::{Exit, output};

/// Reasons for a missing result.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// The system is not Linux, and the known limits are those of Linux.
    #[error("this is not Linux, and only the limits of Linux are known")]
    NotLinux,
    /// A limit could not be verified.
    #[error(transparent)]
    LimitCheck(#[from] LimitCheckError),
    /// The report could not be written completely.
    #[error(transparent)]
    Output(#[from] OutputError),
}

/// Examines this machine and reports.
/// # Errors
/// Returns the reason for a missing result.
pub fn doctor(args: &DoctorArgs) -> Result<Exit, DoctorError> {
    if !cfg!(target_os = "linux") {
        return Err(DoctorError::NotLinux);
    }
    if let Some(ramp) = &args.child {
        verify_limits::ramp(ramp)?;
        return Ok(Exit::Fine);
    }
    let goal = args.goal();
    let verdicts =
        evaluate(&Limits::read(&Root::machine(), rustix::param::page_size() as u64), &goal);
    let mut checks = Vec::new();
    let limits_checked =
        args.verify_limits.map_or(Ok(()), |what| verify_limits::show(what, &goal, &mut checks));
    let printed = if args.json {
        output::print(std::io::stdout(), &json::line(&goal, &verdicts, &checks))
    } else {
        let report = text::report(&goal, &verdicts, &checks, args.all);
        output::print(std::io::stdout(), report.trim_end())
    };
    // Completed checks are reported before the error.
    limits_checked?;
    printed?;
    if checks.iter().any(|check| !check.holds()) {
        return Ok(Exit::Failed);
    }
    Ok(if args.fail_below && !suffices(&verdicts) { Exit::Missed } else { Exit::Fine })
}

/// Returns the warning of `hotrow load` at its start, if any.
pub(crate) fn generator_warning(wanted: &Generator) -> Option<String> {
    startup::generator(&Root::machine(), wanted)
}
