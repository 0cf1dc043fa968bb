//! Commands that experiments start themselves: `hotrow-lab delay`, a TCP relay with a round-trip
//! time, and `hotrow-lab supervise`, the supervisor of an experiment's processes.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use clap::Args;
use hotrow_cli::{Exit, duration, raise_open_files_limit, signals};
use hotrow_lab::stage;
use hotrow_proxies::delay::{RTT_MAX, relay};

use super::LabError;

/// Arguments of `lab delay`.
#[derive(Debug, Args)]
pub(crate) struct DelayArgs {
    /// Address to listen on; port 0 selects a free one, which is printed
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
    /// Address that connections are relayed to
    #[arg(long, value_name = "ADDR")]
    to: SocketAddr,
    /// Round-trip time, as in 500us or 20ms
    #[arg(long, value_name = "TIME", value_parser = rtt)]
    rtt: Duration,
}

pub(crate) fn delay(args: &DelayArgs) -> Result<Exit, LabError> {
    let stop = signals::stop_flag().map_err(LabError::Signals)?;
    // With fewer file descriptors, fewer connections are accepted at a time and the others wait.
    let _ = raise_open_files_limit();
    let busy = |why| LabError::Listen { address: args.listen, why };
    let listener = TcpListener::bind(args.listen).map_err(busy)?;
    let at = listener.local_addr().map_err(busy)?;
    // Standard output may be closed.
    let _ = writeln!(std::io::stdout(), "relaying {at} to {}, {:?} round trip", args.to, args.rtt);
    relay(&listener, args.to, args.rtt, &stop)?;
    Ok(Exit::Fine)
}

fn rtt(text: &str) -> Result<Duration, String> {
    let rtt = duration(text)?;
    if rtt > RTT_MAX { Err(format!("must be {RTT_MAX:?} at most")) } else { Ok(rtt) }
}

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

pub(crate) fn supervise(args: &SuperviseArgs) -> Result<Exit, LabError> {
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
