//! The command line: what can be asked for, and what each command does.

use std::io::Write;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::capacity::CapacityError;
use crate::capacity::args::CapacityArgs;
use crate::config::{self, ConfigError, Overrides, Resolved, SourceConfig};
use crate::demo;
use crate::doctor::DoctorError;
use crate::doctor::args::DoctorArgs;
use crate::lab::{LabArgs, LabError};
use crate::load::LoadError;
use crate::load::args::LoadArgs;
use crate::serve::{self, ServeError};
use crate::signals::{self, OnAbort};
use crate::verify::VerifyError;
use crate::verify::args::VerifyArgs;

/// Records by id over HTTP, at memory speed, never staler than promised.
#[derive(Debug, Parser)]
#[command(name = "hotrow", version, arg_required_else_help = true, after_help = EXIT_STATUS)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_STATUS: &str =
    "Exit status: 0 fine, 1 failed, 2 wrong usage or configuration, 3 an objective was missed, 130 interrupted.";

/// Every command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the collections of a configuration file, or a demonstration that needs none
    #[command(after_help = "Examples:\n  hotrow serve --demo\n  hotrow serve --config hotrow.toml --data 0.0.0.0:8080")]
    Serve(ServeArgs),
    /// Check a configuration file and say all that is wrong with it
    #[command(after_help = "Example:\n  hotrow check --config hotrow.toml")]
    Check(CheckArgs),
    /// Remove what `watch = "triggers"` added to a database: the change log and its triggers
    #[command(after_help = "Examples:\n  hotrow unwatch --config hotrow.toml\n  hotrow unwatch --database shop.db")]
    Unwatch(UnwatchArgs),
    /// Load an HTTP server and say what it did, and what limited it
    #[command(after_help = LOAD_EXAMPLES)]
    Load(Box<LoadArgs>),
    /// Find the highest rate that keeps an objective, or the connections that bring the most, and say what limits it
    #[command(after_help = CAPACITY_EXAMPLES)]
    Capacity(Box<CapacityArgs>),
    /// Compare whole set-ups: services, proxies in front of them, caches, balancers
    #[command(after_help = LAB_EXAMPLES)]
    Lab(LabArgs),
    /// Try to break the consistency contract: write to a table set aside for it, read over HTTP, and judge every answer
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(Box<VerifyArgs>),
    /// Say what this machine's limits allow, which gives way first, and how to raise it
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(DoctorArgs),
}

const CAPACITY_EXAMPLES: &str = "Examples:
  hotrow capacity --slo 'p99<10ms,errors<0.1%' http://127.0.0.1:8080/products/1
  hotrow capacity --slo 'p99<10ms' --at-least 5000 --ids 1..100000 'http://127.0.0.1:8080/products/{id}'
  hotrow capacity --slo 'p95<50ms' --start-rate 1000 --time 5m --pid 4711 --html capacity.html http://127.0.0.1:8080/
  hotrow capacity --closed --connections-max 256 --json http://127.0.0.1:8080/products/1";

const DOCTOR_EXAMPLES: &str = "Examples:
  hotrow doctor
  hotrow doctor --connections 50000 --rate 20000 --no-keepalive
  hotrow doctor --threads 20000 --demonstrate threads
  hotrow doctor --connections 100000 --fail-below --json";

const LAB_EXAMPLES: &str = "Examples:
  hotrow lab list
  hotrow lab run w10
  hotrow lab run my-service.toml --rounds 5 --out results/
  hotrow lab compare results/monday results/friday
  hotrow lab nginx --for w10
  hotrow lab models --requests 20000 --scale 0.1";

const VERIFY_EXAMPLES: &str = "Examples:
  hotrow verify --config hotrow.toml --collection verify --create
  hotrow verify --config hotrow.toml --collection verify --url http://127.0.0.1:8080 -d 1m
  hotrow verify --config hotrow.toml --collection verify --url http://10.0.0.1:8080 --url http://10.0.0.2:8080 \\
      --balancer http://10.0.0.9 --admin http://10.0.0.1:8081 --rate 500 --json";

const LOAD_EXAMPLES: &str = "Examples:
  hotrow load http://127.0.0.1:8080/products/1
  hotrow load -c 100 -d 30s --rate 20000 --ids 1..100000 --pick zipf:0.99 'http://127.0.0.1:8080/products/{id}'
  hotrow load -d 10s --rate 5000 --slo 'p99<5ms,errors<0.1%,rate>=99%' http://127.0.0.1:8080/products/1
  hotrow load -d 5m --rate 1000..20000 --hdr run.hlog --csv run.csv http://127.0.0.1:8080/products/1
  hotrow load --html run.html http://127.0.0.1:8080/products/1
  hotrow load compare before.json after.json
  hotrow load --calibrate
  hotrow load --json -n 100000 '9*http://127.0.0.1:8080/products/1' '1*http://127.0.0.1:8080/products/2'";

/// Arguments of `serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    #[command(flatten)]
    what: What,
    /// With --demo: change N random records a second from another connection
    #[arg(long, value_name = "N", requires = "demo", conflicts_with = "config", value_parser = demo_writes)]
    demo_writes: Option<NonZeroU32>,
    /// Address of the data API; wins over listen.data
    #[arg(long, value_name = "ADDR")]
    data: Option<SocketAddr>,
    /// Address of the admin API; wins over listen.admin
    #[arg(long, value_name = "ADDR")]
    admin: Option<SocketAddr>,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct What {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Serve 100,000 generated products from a temporary SQLite database
    #[arg(long)]
    demo: bool,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

/// Arguments of `unwatch`.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct UnwatchArgs {
    /// Configuration file (TOML) whose source.url names the database
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The SQLite file itself
    #[arg(long, value_name = "FILE")]
    database: Option<PathBuf>,
}

fn demo_writes(text: &str) -> Result<NonZeroU32, String> {
    let most = demo::writer::WRITES_PER_SECOND_MAX;
    let number: Option<NonZeroU32> = text.parse().ok();
    number.filter(|n| n.get() <= most).ok_or_else(|| format!("must be a whole number between 1 and {most}"))
}

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All went well.
    Fine = 0,
    /// It did not.
    Failed = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// An objective that the command line stated was missed.
    Missed = 3,
    /// The user broke it off.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Serving could not begin or broke.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The demonstration could not be set up.
    #[error(transparent)]
    Demo(#[from] demo::DemoError),
    /// The database could not be cleaned.
    #[error("{0}")]
    Unwatch(String),
    /// Loading came to no result.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A search for a capacity came to no result.
    #[error(transparent)]
    Capacity(#[from] CapacityError),
    /// An experiment came to no result.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// Verifying came to no result.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// The machine could not be examined.
    #[error(transparent)]
    Doctor(#[from] DoctorError),
    /// The signal handlers could not be installed.
    #[error("cannot listen for signals: {0}")]
    Signals(std::io::Error),
}

impl Failure {
    /// Tells the user on standard error, and how the process must end.
    #[must_use]
    pub fn report(self) -> Exit {
        match self {
            Self::Config(e) => {
                tell(std::io::stderr(), &e.to_string());
                Exit::Usage
            }
            Self::Demo(demo::DemoError::Interrupted) => Exit::Interrupted,
            Self::Load(e) => {
                tell(std::io::stderr(), &format!("hotrow load: {e}"));
                e.exit()
            }
            Self::Capacity(e) => {
                tell(std::io::stderr(), &format!("hotrow capacity: {e}"));
                e.exit()
            }
            Self::Lab(e) => {
                tell(std::io::stderr(), &format!("hotrow lab: {e}"));
                e.exit()
            }
            Self::Verify(e) => {
                tell(std::io::stderr(), &format!("hotrow verify: {e}"));
                e.exit()
            }
            other => {
                tell(std::io::stderr(), &format!("hotrow: {other}"));
                Exit::Failed
            }
        }
    }
}

/// `hotrow serve`.
///
/// # Errors
/// What kept it from serving.
pub fn serve(args: &ServeArgs) -> Result<(), Failure> {
    let overrides = Overrides { data: args.data, admin: args.admin };
    let on_abort = OnAbort::default();
    let phase = signals::listen(on_abort.clone()).map_err(Failure::Signals)?;
    let Some(file) = &args.what.config else {
        return Ok(demo::run(&overrides, args.demo_writes, phase, &on_abort)?);
    };
    let resolved = config::load(file, &overrides)?;
    let ready = |at: serve::Addresses| {
        tell(std::io::stdout(), &format!("records on http://{}, admin on http://{}", at.data, at.admin));
    };
    Ok(serve::run(resolved, phase, ready)?)
}

/// `hotrow check`.
///
/// # Errors
/// All that is wrong with the file.
pub fn check(args: &CheckArgs) -> Result<(), Failure> {
    let resolved = config::load(&args.config, &Overrides::default())?;
    for warning in &resolved.warnings {
        tell(std::io::stderr(), &format!("{}: warning: {warning}", args.config.display()));
    }
    tell(std::io::stdout(), &format!("{}: fine; {}", args.config.display(), summary(&resolved)));
    Ok(())
}

/// Writes a line. Nobody may be listening: a closed pipe is no reason to fail.
pub(crate) fn tell(mut out: impl Write, line: &str) {
    let _ = writeln!(out, "{line}");
}

fn summary(resolved: &Resolved) -> String {
    let (collections, database) = match &resolved.source {
        SourceConfig::Sqlite(source) => (&source.collections, source.path.display().to_string()),
        SourceConfig::Postgres(source) => (&source.collections, "PostgreSQL".to_owned()),
        SourceConfig::Mysql(source) => (&source.collections, "MySQL or MariaDB".to_owned()),
        SourceConfig::Mongodb(source) => (&source.collections, "MongoDB".to_owned()),
    };
    let names: Vec<&str> = collections.iter().map(|c| c.name.as_str()).collect();
    let noun = if names.len() == 1 { "collection" } else { "collections" };
    format!("{} {noun} ({}) from {}", names.len(), names.join(", "), database)
}

/// `hotrow unwatch`.
///
/// # Errors
/// What kept it from removing the log and its triggers.
pub fn unwatch(args: &UnwatchArgs) -> Result<(), Failure> {
    let database = match (&args.database, &args.config) {
        (Some(database), _) => database.clone(),
        (None, Some(file)) => match config::load(file, &Overrides::default())?.source {
            SourceConfig::Sqlite(source) => source.path,
            SourceConfig::Postgres(source) => {
                return Err(Failure::Unwatch(format!(
                    "on PostgreSQL only the publication stays when Hotrow stops; remove it with DROP PUBLICATION {}",
                    source.publication
                )));
            }
            SourceConfig::Mysql(_) | SourceConfig::Mongodb(_) => {
                return Err(Failure::Unwatch(
                    "nothing was added to this database, so nothing has to be removed".to_owned(),
                ));
            }
        },
        // clap demands one of the two.
        (None, None) => return Err(Failure::Unwatch("name a database with --config or --database".to_owned())),
    };
    let removed = serve::unwatch(&database).map_err(Failure::Unwatch)?;
    tell(std::io::stdout(), &format!("{}: {removed}", database.display()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn wrong_usage_is_refused() {
        let kind = |args: &str| Cli::try_parse_from(args.split(' ')).map(|_| ()).map_err(|e| e.kind());
        for good in [
            "hotrow serve --demo",
            "hotrow serve --demo --demo-writes 5 --data 127.0.0.1:0",
            "hotrow serve --config f --admin [::1]:1",
            "hotrow check --config f",
            "hotrow unwatch --database f",
            "hotrow verify --config f --url http://a --url http://b --balancer http://c -d 5m --json --keep-going",
            "hotrow load -c 10 -d 5s --rate 100..200 --arrivals poisson http://a/{id} --ids 1..9 --pick zipf:1",
            "hotrow load --slo p99<5ms,errors<0.1%,rate>=10000 --hdr f --csv g --percentiles http://a",
            "hotrow load --calibrate -c 10 -t 1 --json -q",
            "hotrow load --html f http://a",
            "hotrow load compare a.json b.json --html f",
            "hotrow load compare --a 1.json 2.json --b 3.json",
            "hotrow capacity --slo p99<10ms,errors<0.1% --start-rate 5 --time 1m --at-least 9 --pid 1 --pid 2 http://a",
            "hotrow capacity --closed --connections-max 64 --rounds 5 --port 80 --html f --json -q http://a",
            "hotrow doctor --connections 5 --threads 5 --rate 0.5 --no-keepalive --fail-below --demonstrate threads --json",
            "hotrow lab report d",
            "hotrow lab compare a b --html f",
            "hotrow lab models --list",
            "hotrow lab models pool async -n 100 --scale 0.001 --no-safe --safe --raise-limits --no-count --json",
        ] {
            assert_eq!(kind(good), Ok(()), "{good}");
        }
        for (bad, why) in [
            ("hotrow serve", ErrorKind::MissingRequiredArgument),
            ("hotrow serve --demo --config f", ErrorKind::ArgumentConflict),
            ("hotrow serve --config f --demo-writes 5", ErrorKind::ArgumentConflict),
            ("hotrow serve --demo --demo-writes 0", ErrorKind::ValueValidation),
            ("hotrow serve --demo --demo-writes 1000000", ErrorKind::ValueValidation),
            ("hotrow serve --demo --data localhost", ErrorKind::ValueValidation),
            ("hotrow check", ErrorKind::MissingRequiredArgument),
            ("hotrow unwatch", ErrorKind::MissingRequiredArgument),
            ("hotrow load", ErrorKind::MissingRequiredArgument),
            ("hotrow load --arrivals poisson http://a", ErrorKind::MissingRequiredArgument),
            ("hotrow load --rate 0 http://a", ErrorKind::ValueValidation),
            ("hotrow load --slo p99=5ms http://a", ErrorKind::ValueValidation),
            ("hotrow load compare", ErrorKind::MissingRequiredArgument),
            ("hotrow load compare a.json", ErrorKind::MissingRequiredArgument),
            ("hotrow load compare --a 1.json", ErrorKind::MissingRequiredArgument),
            ("hotrow load compare a.json b.json --a 1.json --b 2.json", ErrorKind::ArgumentConflict),
            ("hotrow lab report", ErrorKind::MissingRequiredArgument),
            ("hotrow lab compare a", ErrorKind::MissingRequiredArgument),
            ("hotrow lab models --requests 0", ErrorKind::ValueValidation),
            ("hotrow lab models --requests 10000001", ErrorKind::ValueValidation),
            ("hotrow lab models --scale 0", ErrorKind::ValueValidation),
            ("hotrow lab models --scale 2", ErrorKind::ValueValidation),
            ("hotrow load --calibrate http://a", ErrorKind::ArgumentConflict),
            ("hotrow load --calibrate --rate 5", ErrorKind::ArgumentConflict),
            ("hotrow load --json --percentiles http://a", ErrorKind::ArgumentConflict),
            ("hotrow load --connections 0 http://a", ErrorKind::ValueValidation),
            ("hotrow load --body x --form a=b http://a", ErrorKind::ArgumentConflict),
            ("hotrow verify --url http://a", ErrorKind::MissingRequiredArgument),
            ("hotrow verify --config f", ErrorKind::MissingRequiredArgument),
            ("hotrow verify --config f --url http://a --keys 0", ErrorKind::ValueValidation),
            ("hotrow verify --config f --url http://a --rate 0", ErrorKind::ValueValidation),
            ("hotrow capacity http://a", ErrorKind::MissingRequiredArgument),
            ("hotrow capacity --slo p99<1ms", ErrorKind::MissingRequiredArgument),
            ("hotrow capacity --slo p99=1ms http://a", ErrorKind::ValueValidation),
            ("hotrow capacity --closed --slo p99<1ms http://a", ErrorKind::ArgumentConflict),
            ("hotrow capacity --closed -c 5 http://a", ErrorKind::ArgumentConflict),
            ("hotrow capacity --slo p99<1ms --step 1ms http://a", ErrorKind::ValueValidation),
            ("hotrow capacity --slo p99<1ms --abort-errors 0 http://a", ErrorKind::ValueValidation),
            ("hotrow capacity --slo p99<1ms --pid 1 --port 80 http://a", ErrorKind::ArgumentConflict),
            ("hotrow doctor --connections 0", ErrorKind::ValueValidation),
            ("hotrow doctor --rate 0", ErrorKind::ValueValidation),
            ("hotrow doctor --demonstrate files", ErrorKind::InvalidValue),
            ("hotrow doctor --climb x --json", ErrorKind::ArgumentConflict),
            ("hotrow unknown", ErrorKind::InvalidSubcommand),
            ("hotrow", ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand),
        ] {
            assert_eq!(kind(bad), Err(why), "{bad}");
        }
    }

    #[test]
    fn every_command_has_an_example() {
        for command in Cli::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains(&format!("hotrow {}", command.get_name())), "{}", command.get_name());
        }
    }
}
