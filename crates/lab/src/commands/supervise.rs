//! `hotrow-lab supervise`: the supervisor of an experiment's processes, started by the lab.

use clap::Args;
use hotrow_lab::stage;

use super::LabError;
use hotrow_cli::exit::Exit;
use hotrow_cli::signals;

/// Arguments of `lab supervise`.
#[derive(Debug, Args)]
pub(crate) struct SuperviseArgs {
    /// Execute the program given on standard input, inside its limits
    #[arg(long)]
    exec: bool,
    /// Limit by pinning, as where no cgroup is writable
    #[arg(long)]
    no_cgroups: bool,
}

pub(crate) fn run(args: &SuperviseArgs) -> Result<Exit, LabError> {
    if args.exec {
        stage::exec().map_err(LabError::Supervise)?;
        // A successful exec does not return.
        return Ok(Exit::Failed);
    }
    let cgroups = if args.no_cgroups { stage::Cgroups::Avoid } else { stage::Cgroups::Try };
    let stop = signals::stop_flag().map_err(LabError::Supervise)?;
    stage::supervise(&stop, cgroups).map_err(LabError::Supervise)?;
    Ok(Exit::Fine)
}
