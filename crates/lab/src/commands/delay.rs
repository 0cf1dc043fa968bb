//! `hotrow-lab delay`: a TCP relay with a round-trip time, started by experiments.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use clap::Args;
use hotrow_lab::delay::{RTT_MAX, relay};

use super::LabError;
use hotrow_cli::exit::Exit;
use hotrow_cli::units::duration;
use hotrow_cli::{open_files, signals};

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

pub(crate) fn run(args: &DelayArgs) -> Result<Exit, LabError> {
    let stop = signals::stop_flag().map_err(LabError::Signals)?;
    // With fewer file descriptors, fewer connections are accepted at a time and the others wait.
    let _ = open_files::raise_limit();
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
