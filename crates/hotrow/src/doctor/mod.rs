//! `hotrow doctor`: does this machine allow what is wanted of it?
//!
//! Reading order: [`args`] (what can be asked for), this file, `text` and `json` (the result), `demonstrate`
//! (predictions beside what happens). The formulas are in `hotrow_diagnose::doctor`.

pub mod args;
mod demonstrate;
mod json;
mod text;

use hotrow_diagnose::doctor::limits::Limits;
use hotrow_diagnose::doctor::startup::{self, Generator, Server};
use hotrow_diagnose::doctor::{examine, suffices};
use hotrow_diagnose::root::Root;

use self::args::DoctorArgs;
pub use self::demonstrate::DemonstrationError;
use crate::cli::Exit;
use crate::load::Unwritable;
use crate::load::files;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// A limit is a file of Linux; other systems have others.
    #[error("this is not Linux, and the limits that are known here are Linux's")]
    NotLinux,
    /// A demonstration could not be carried out.
    #[error(transparent)]
    Demonstration(#[from] DemonstrationError),
    /// The report could not be written to its end.
    #[error(transparent)]
    Output(#[from] Unwritable),
}

/// Examines this machine and reports.
///
/// # Errors
/// What kept it from having a result.
pub fn doctor(args: &DoctorArgs) -> Result<Exit, DoctorError> {
    if !cfg!(target_os = "linux") {
        return Err(DoctorError::NotLinux);
    }
    if let Some(climb) = &args.climb {
        demonstrate::climb(climb)?;
        return Ok(Exit::Fine);
    }
    let goal = args.goal();
    let verdicts = examine(&Limits::read(&Root::machine(), rustix::param::page_size() as u64), &goal);
    let mut shown = Vec::new();
    let demonstrated = args.demonstrate.map_or(Ok(()), |what| demonstrate::show(what, &goal, &mut shown));
    let printed = if args.json {
        files::print(std::io::stdout(), &json::line(&goal, &verdicts, &shown))
    } else {
        files::print(std::io::stdout(), text::report(&goal, &verdicts, &shown).trim_end())
    };
    // What was shown before it is told first.
    demonstrated?;
    printed?;
    if shown.iter().any(|shown| !shown.holds()) {
        return Ok(Exit::Failed);
    }
    Ok(if args.fail_below && !suffices(&verdicts) { Exit::Missed } else { Exit::Fine })
}

/// What `hotrow serve` should say at its start, if anything.
pub(crate) fn of_server(backlog: u64) -> Option<String> {
    startup::server(&Root::machine(), &Server { backlog })
}

/// What `hotrow load` should say at its start, if anything.
pub(crate) fn of_generator(wanted: &Generator) -> Option<String> {
    startup::generator(&Root::machine(), wanted)
}
