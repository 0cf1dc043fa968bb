//! `hotrow load`: the load generator's command.
//!
//! Reading order: [`args`] (what can be asked for), `resolve` (checked and prepared), this file (the run), `json` and
//! `text` (the result), `verdict` (what limited it).

pub mod args;
mod json;
mod resolve;
mod text;
mod verdict;

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hotrow_load::outcome::{End, Outcome};
use hotrow_load::run::{self, RunError};

use self::args::LoadArgs;
pub use self::resolve::Refused;
use crate::cli::Exit;
use crate::signals::{self, OnAbort, Phase};

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The arguments are wrong.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The run failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Signals cannot be heard.
    #[error("cannot listen for signals: {0}")]
    Signals(std::io::Error),
}

impl LoadError {
    /// How the process must end.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Refused(Refused::Target(
                hotrow_load::target::TargetError::Unreachable { .. }
                | hotrow_load::target::TargetError::UnknownHost { .. }
                | hotrow_load::target::TargetError::NoAddress(_),
            )) => Exit::Failed,
            Self::Refused(_)
            | Self::Run(RunError::Plan(_) | RunError::OutOfRange { .. } | RunError::PipelineWithoutKeepalive) => {
                Exit::Usage
            }
            Self::Run(RunError::InterruptedBefore) => Exit::Interrupted,
            Self::Run(_) | Self::Signals(_) => Exit::Failed,
        }
    }
}

/// Runs `hotrow load` and reports.
///
/// # Errors
/// What kept it from having a result.
pub fn load(args: &LoadArgs) -> Result<Exit, LoadError> {
    // Before anything can take long: an unknown host too can be broken off.
    let stop = stop_on_signal().map_err(LoadError::Signals)?;
    let resolved = resolve::resolve(args)?;
    let progress = !args.quiet && std::io::stderr().is_terminal();
    let outcome = run::run(&resolved.config, &stop, &mut |second, _| {
        if progress {
            tell(std::io::stderr(), &text::progress(second));
        }
    })?;
    if args.json {
        tell(std::io::stdout(), &json::line(&json::Report::new(&resolved.url, &resolved.config, &outcome)));
    } else {
        tell(std::io::stdout(), text::report(&resolved.url, &resolved.config, &outcome).trim_end());
    }
    Ok(exit(&outcome))
}

fn exit(outcome: &Outcome) -> Exit {
    match outcome.end {
        End::Interrupted => Exit::Interrupted,
        // Nothing that was expected came: whatever the figures are, they are no result.
        End::TargetGone => Exit::Failed,
        End::Complete if outcome.total.counts.ok == 0 => Exit::Failed,
        End::Complete => Exit::Fine,
    }
}

/// A flag that the first SIGINT or SIGTERM sets; the second one ends the process.
fn stop_on_signal() -> std::io::Result<Arc<AtomicBool>> {
    let mut phase = signals::listen(OnAbort::default())?;
    let stop = Arc::new(AtomicBool::new(false));
    let set = stop.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    std::thread::Builder::new().name("stop".to_owned()).spawn(move || {
        // An error means that nobody listens to signals any more: the process ends.
        if runtime.block_on(phase.wait_for(|phase| *phase == Phase::Draining)).is_ok() {
            set.store(true, Ordering::Relaxed);
        }
    })?;
    Ok(stop)
}

/// Writes a line. Nobody may be listening: a closed pipe is no reason to fail.
fn tell(mut out: impl Write, line: &str) {
    let _ = writeln!(out, "{line}");
}
