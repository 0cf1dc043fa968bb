//! `hotrow lab reference`: the service that the shipped experiments measure.

use std::io::Write as _;
use std::net::SocketAddr;
use std::num::NonZeroUsize;

use clap::Args;
use hotrow_reference::{Clock, Config, Model, OFFSET_S_MAX, Shift, WORKERS_MAX};

use super::LabError;
use crate::cli::Exit;
use crate::signals::{self, OnAbort, Phase};

/// Arguments of `lab reference`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ReferenceArgs {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8090")]
    listen: SocketAddr,
    /// Threads that handle requests; as many as cores if not given
    #[arg(long, value_name = "N", value_parser = workers)]
    workers: Option<NonZeroUsize>,
    /// Let each worker handle one request at a time, and stand still while that one waits
    #[arg(long)]
    blocking: bool,
    /// Seconds that its clock is ahead of the machine's; negative for behind
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        allow_negative_numbers = true,
        env = "HOTROW_REFERENCE_CLOCK_OFFSET_S",
        value_parser = clap::value_parser!(i64).range(-OFFSET_S_MAX..=OFFSET_S_MAX)
    )]
    clock_offset_s: i64,
    /// Local time that its clock starts at, today; wins over the offset
    #[arg(long, value_name = "HH:MM:SS", value_parser = hotrow_reference::time_of_day)]
    clock_at: Option<hotrow_reference::Time>,
}

const EXAMPLES: &str = "Examples:
  hotrow lab reference --listen 127.0.0.1:8090
  hotrow lab reference --blocking --workers 16
  hotrow lab reference --clock-at 23:59:50";

fn workers(text: &str) -> Result<NonZeroUsize, String> {
    let number: Option<NonZeroUsize> = text.parse().ok();
    number
        .filter(|n| n.get() <= WORKERS_MAX)
        .ok_or_else(|| format!("must be a whole number between 1 and {WORKERS_MAX}"))
}

pub(super) fn run(args: &ReferenceArgs) -> Result<Exit, LabError> {
    let shift = args.clock_at.map_or(Shift::Offset(args.clock_offset_s), Shift::At);
    let config = Config {
        listen: args.listen,
        workers: args.workers.unwrap_or_else(cores),
        model: if args.blocking { Model::Blocking } else { Model::Async },
        clock: Clock::new(shift)?,
    };
    let mut phase = signals::listen(OnAbort::default()).map_err(LabError::Signals)?;
    let stop = async move {
        // An error means that nobody listens to signals any more: the process ends.
        let _ = phase.wait_for(|phase| *phase == Phase::Draining).await;
    };
    hotrow_reference::serve(&config, stop, |address| {
        // Nobody may be reading: a closed standard output must not stop the service.
        let _ = writeln!(std::io::stdout(), "reference service on http://{address}");
    })?;
    Ok(Exit::Fine)
}

fn cores() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}
