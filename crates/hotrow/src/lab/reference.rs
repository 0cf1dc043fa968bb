//! `hotrow lab reference`: the service that the shipped experiments measure.

use std::io::Write as _;
use std::net::SocketAddr;
use std::num::NonZeroUsize;

use clap::Args;
use hotrow_reference::{
    CONNECTIONS_MAX, Clock, Config, DatabaseConfig, DatabaseUrl, Model, OFFSET_S_MAX, ROWS, Shift, WORKERS_MAX,
    make_database,
};

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
    /// Database of /db: sqlite:PATH or postgres://user@host/database
    #[arg(long, value_name = "URL")]
    database: Option<DatabaseUrl>,
    /// Connections to the database; two per worker if not given
    #[arg(long, value_name = "N", requires = "database", value_parser = connections)]
    connections: Option<NonZeroUsize>,
    /// Make the table of /db with its 100,000 rows, in the place of one that is there, and end
    #[arg(long, requires = "database")]
    make_database: bool,
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
  hotrow lab reference --database sqlite:rows.db --make-database
  hotrow lab reference --database sqlite:rows.db
  hotrow lab reference --blocking --workers 16
  hotrow lab reference --clock-at 23:59:50";

fn workers(text: &str) -> Result<NonZeroUsize, String> {
    up_to(WORKERS_MAX, text)
}

fn connections(text: &str) -> Result<NonZeroUsize, String> {
    up_to(CONNECTIONS_MAX, text)
}

fn up_to(most: usize, text: &str) -> Result<NonZeroUsize, String> {
    let number: Option<NonZeroUsize> = text.parse().ok();
    number.filter(|n| n.get() <= most).ok_or_else(|| format!("must be a whole number between 1 and {most}"))
}

pub(super) fn run(args: &ReferenceArgs) -> Result<Exit, LabError> {
    if let (Some(url), true) = (&args.database, args.make_database) {
        make_database(url)?;
        tell(&format!("{ROWS} rows made"));
        return Ok(Exit::Fine);
    }
    let workers = args.workers.unwrap_or_else(cores);
    let database = args.database.clone().map(|url| DatabaseConfig {
        url,
        connections: args.connections.unwrap_or(workers.saturating_add(workers.get())),
    });
    let shift = args.clock_at.map_or(Shift::Offset(args.clock_offset_s), Shift::At);
    let config = Config {
        listen: args.listen,
        workers,
        model: if args.blocking { Model::Blocking } else { Model::Async },
        clock: Clock::new(shift)?,
        database,
    };
    let mut phase = signals::listen(OnAbort::default()).map_err(LabError::Signals)?;
    let stop = async move {
        // An error means that nobody listens to signals any more: the process ends.
        let _ = phase.wait_for(|phase| *phase == Phase::Draining).await;
    };
    hotrow_reference::serve(&config, stop, |address| tell(&format!("reference service on http://{address}")))?;
    Ok(Exit::Fine)
}

/// Writes a line. Nobody may be reading: a closed standard output must not stop the service.
fn tell(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn cores() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}
