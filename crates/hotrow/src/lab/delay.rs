//! `hotrow lab delay`: a TCP relay with a round-trip time, started by experiments.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use clap::Args;
use hotrow_lab::delay::{RTT_MAX, relay};

use super::LabError;
use crate::cli::Exit;
use crate::load::args::duration;
use crate::{open_files, signals};

/// Arguments of `lab delay`.
#[derive(Debug, Args)]
pub(super) struct DelayArgs {
    /// Where to listen; port 0 takes any, which is printed
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
    /// Where connections go
    #[arg(long, value_name = "ADDR")]
    to: SocketAddr,
    /// Round-trip time, as in 500us or 20ms
    #[arg(long, value_name = "TIME", value_parser = rtt)]
    rtt: Duration,
}

pub(super) fn run(args: &DelayArgs) -> Result<Exit, LabError> {
    let stop = signals::stop_flag().map_err(LabError::Signals)?;
    // With fewer files fewer connections are taken at a time, and the others wait: no reason to refuse.
    let _ = open_files::raise_limit();
    let busy = |why| LabError::Listen { address: args.listen, why };
    let listener = TcpListener::bind(args.listen).map_err(busy)?;
    let at = listener.local_addr().map_err(busy)?;
    // Nobody may be listening.
    let _ = writeln!(std::io::stdout(), "relaying {at} to {}, {:?} round trip", args.to, args.rtt);
    relay(&listener, args.to, args.rtt, &stop)?;
    Ok(Exit::Fine)
}

fn rtt(text: &str) -> Result<Duration, String> {
    let rtt = duration(text)?;
    if rtt > RTT_MAX { Err(format!("must be {RTT_MAX:?} at most")) } else { Ok(rtt) }
}
