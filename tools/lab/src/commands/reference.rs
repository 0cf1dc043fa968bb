//! `hotrow-lab reference`: the reference service that the built-in experiments measure.

use std::io::Write as _;
use std::net::SocketAddr;
use std::num::NonZeroUsize;

use clap::Args;
use hotrow_reference::{
    CONNECTIONS_MAX, Clock, Config, DatabaseConfig, DatabaseUrl, Model, OFFSET_S_MAX, ROWS, Shift,
    WORKERS_MAX, make_database,
};
use hotrow_supervisor::Supervisor;

use super::LabError;
use hotrow_cli::Exit;
use hotrow_cli::signals::{self, Hangup, OnAbort, Phase};

/// Arguments of `lab reference`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct ReferenceArgs {
    /// Address to listen on; port 0 selects a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8090")]
    listen: SocketAddr,
    /// Threads that handle requests [default: one per core]
    #[arg(long, value_name = "N", value_parser = workers)]
    workers: Option<NonZeroUsize>,
    /// Let each worker handle one request at a time and block while that one waits
    #[arg(long)]
    blocking: bool,
    /// Database of /db: sqlite:PATH or postgres://user@host/database
    #[arg(long, value_name = "URL")]
    database: Option<DatabaseUrl>,
    /// Connections to the database [default: two per worker]
    #[arg(long, value_name = "N", requires = "database", value_parser = connections)]
    connections: Option<NonZeroUsize>,
    /// Connect to the database for each request
    #[arg(long, requires = "database")]
    no_database_keepalive: bool,
    /// Create the table of /db with its 100,000 rows, replacing an existing one, and exit
    #[arg(long, requires = "database")]
    make_database: bool,
    /// Seconds by which its clock is ahead of the machine's; negative for behind
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        allow_negative_numbers = true,
        env = "HOTROW_REFERENCE_CLOCK_OFFSET_S",
        value_parser = clap::value_parser!(i64).range(-OFFSET_S_MAX..=OFFSET_S_MAX)
    )]
    clock_offset_s: i64,
    /// Local time today at which its clock starts; overrides the offset
    #[arg(long, value_name = "HH:MM:SS", value_parser = hotrow_reference::time_of_day)]
    clock_at: Option<hotrow_reference::Time>,
}

const HELP: &str = r#"Examples:
  hotrow-lab reference --listen 127.0.0.1:8090
  hotrow-lab reference --database sqlite:rows.db --make-database
  hotrow-lab reference --database sqlite:rows.db
  hotrow-lab reference --blocking --workers 16
  hotrow-lab reference --clock-at 23:59:50

Endpoints of hotrow-lab reference:
Errors are problem documents (RFC 9457): 400 for invalid parameters, or a name longer than 256
bytes; 413 for a form above 4,096 bytes; 503 when /db has no connection within 5 s or no response
within 10 s.
  GET /hello, /plaintext: hello world, Hello World!
  GET /json: {"message":"Hello, World!"}
  GET /what-date-is-it: [{"year":Y,"month":M,"day":D},…], today's date in the server's time zone
    10,000 times, 320,001 to 340,001 bytes; cacheable until the date changes
  POST /what-is-my-name: [{"name":"…"},…], the form field name 10,000 times; Cache-Control: no-store
  GET /db?via=raw, builder, orm: {"id":N,"random_number":N}, a random row of 100,000, by a prepared
    query, sea-query or SeaORM
  GET /spin?us=N: done, after N µs of CPU time (at most 1,000,000)
  GET /sleep?ms=N: done, after a wait of N ms (at most 10,000)
  GET /served: number of requests answered, without /served and /healthz
  GET /healthz: ok"#;

fn workers(text: &str) -> Result<NonZeroUsize, String> {
    up_to(WORKERS_MAX, text)
}

fn connections(text: &str) -> Result<NonZeroUsize, String> {
    up_to(CONNECTIONS_MAX, text)
}

fn up_to(most: usize, text: &str) -> Result<NonZeroUsize, String> {
    let number: Option<NonZeroUsize> = text.parse().ok();
    number
        .filter(|n| n.get() <= most)
        .ok_or_else(|| format!("must be a whole number between 1 and {most}"))
}

pub(crate) fn run(args: &ReferenceArgs) -> Result<Exit, LabError> {
    if let (Some(url), true) = (&args.database, args.make_database) {
        make_database(url)?;
        print_line(&format!("{ROWS} rows created"));
        return Ok(Exit::Fine);
    }
    let workers = args.workers.unwrap_or_else(cores);
    let database = args.database.clone().map(|url| DatabaseConfig {
        url,
        connections: args.connections.unwrap_or(workers.saturating_add(workers.get())),
        keepalive: !args.no_database_keepalive,
    });
    let shift = args.clock_at.map_or(Shift::Offset(args.clock_offset_s), Shift::At);
    let config = Config {
        listen: args.listen,
        workers,
        model: if args.blocking { Model::Blocking } else { Model::Async },
        clock: Clock::new(shift)?,
        database,
    };
    let mut phase = signals::listen(Hangup::Default, OnAbort::default(), &Supervisor::default())
        .map_err(LabError::Signals)?;
    let stop = async move {
        // On an error no more signals arrive; the process ends.
        let _ = phase.wait_for(|phase| *phase == Phase::Draining).await;
    };
    hotrow_reference::serve(&config, stop, |address| {
        print_line(&format!("reference service on http://{address}"))
    })?;
    Ok(Exit::Fine)
}

/// Writes a line. Standard output may be closed, which must not stop the service.
fn print_line(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn cores() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}
