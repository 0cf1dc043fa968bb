//! `hotrow lab supervise`: the process that holds what an experiment starts. Started by the lab, not by people.

use clap::Args;
use hotrow_lab::stage;

use super::LabError;
use crate::cli::Exit;
use crate::signals;

/// Arguments of `lab supervise`.
#[derive(Debug, Args)]
pub(super) struct SuperviseArgs {
    /// Become the program that standard input names, inside its limits
    #[arg(long)]
    exec: bool,
    /// Limit by pinning, as where no cgroup may be written
    #[arg(long)]
    no_cgroups: bool,
}

pub(super) fn run(args: &SuperviseArgs) -> Result<Exit, LabError> {
    if args.exec {
        stage::exec().map_err(LabError::Supervise)?;
        // Had it become the other program, it would not be here.
        return Ok(Exit::Failed);
    }
    let cgroups = if args.no_cgroups { stage::Cgroups::Avoid } else { stage::Cgroups::Try };
    let stop = signals::stop_flag().map_err(LabError::Supervise)?;
    stage::supervise(&stop, cgroups).map_err(LabError::Supervise)?;
    Ok(Exit::Fine)
}
