//! Command line: the arguments of every command, and the commands without a module of their own.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::{Args, CommandFactory as _, Parser, Subcommand};

use hotrow_cli::Exit;
use hotrow_cli::output::print_line;
use hotrow_cli::pages::{self, PagesArgs, PagesError};
use hotrow_cli::signals::OnAbort;
use hotrow_server::config::transport::Transport;

use crate::advise::{AdviseArgs, AdviseError};
use crate::capacity::CapacityError;
use crate::capacity::args::CapacityArgs;
use crate::check::CheckArgs;
use crate::config::{ConfigError, Overrides};
use crate::demo;
use crate::doctor::DoctorError;
use crate::doctor::args::DoctorArgs;
use crate::health::{HealthArgs, HealthError};
use crate::init::auto::{self, AutoError, Loaded};
use crate::init::{InitArgs, InitError};
use crate::key::{KeyArgs, NoRandomness};
use crate::lab::{LabArgs, LabError};
use crate::load::LoadError;
use crate::load::args::LoadArgs;
use crate::logging;
#[cfg(feature = "hub")]
use crate::relay::{RelayArgs, RelayError};
use crate::reload::{self, ConfigFile};
use crate::serve::{self, Host, ServeError};
use crate::top::{TopArgs, TopError};
use crate::uninstall_triggers::{UninstallError, UninstallTriggersArgs};
use crate::verify::VerifyError;
use crate::verify::args::VerifyArgs;

/// Records by id over HTTP, at memory speed, never staler than promised.
#[derive(Debug, Parser)]
#[command(name = "hotrow", version, long_version = LONG_VERSION.as_str())]
#[command(arg_required_else_help = true)]
#[command(after_help = EXIT_STATUS)]
pub struct Cli {
    /// Command to run.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_STATUS: &str = "Exit status: 0 fine, 1 failed, 2 wrong usage or configuration, 3 an \
    objective was missed, 130 interrupted.";

/// Commands of the program.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the collections of a configuration file, or a demonstration that needs none
    #[command(after_help = "Examples:\n  hotrow serve --demo\n  \
        hotrow serve --config hotrow.toml --data 0.0.0.0:8080")]
    Serve(ServeArgs),
    /// Follow the database once, and publish its changes for servers
    #[cfg(feature = "hub")]
    #[command(after_help = "Example:\n  hotrow relay --config hotrow.toml")]
    Relay(RelayArgs),
    /// Check a configuration file and list every problem in it
    #[command(after_help = "Example:\n  hotrow check --config hotrow.toml")]
    Check(CheckArgs),
    /// Write a configuration file from a database's catalogue
    #[command(after_help = INIT_EXAMPLES)]
    Init(Box<InitArgs>),
    /// Probe a running service: exit status 0 if it is alive or, with --ready, ready
    #[command(
        after_help = "Examples:\n  hotrow health\n  hotrow health --config hotrow.toml --ready\n  \
        hotrow health --unix /run/hotrow/data.sock http://localhost/products/1"
    )]
    Health(HealthArgs),
    /// Show running instances in the terminal: requests, latency, hit ratio, staleness, refusals
    #[command(after_help = "Examples:\n  hotrow top\n  \
        hotrow top --token-file token http://10.0.0.1:8081 http://10.0.0.2:8081\n  \
        hotrow top --json http://10.0.0.1:8081")]
    Top(TopArgs),
    /// Ask a running service how much memory is worth it: its hit ratio at other capacities
    #[command(after_help = "Examples:\n  hotrow advise\n  hotrow advise --token-file admin.token \
        http://10.0.0.1:8081\n  hotrow advise --json")]
    Advise(AdviseArgs),
    /// Make API keys
    #[command(after_help = "Example:\n  hotrow key new --name billing --role reader")]
    Key(KeyArgs),
    /// Remove what `watch = "triggers"` added to a database: the change log and its triggers
    #[command(after_help = "Examples:\n  hotrow uninstall-triggers --config hotrow.toml\n  \
        hotrow uninstall-triggers --database shop.db")]
    UninstallTriggers(UninstallTriggersArgs),
    /// Load an HTTP server, measure it, and name its limit
    #[command(after_help = LOAD_EXAMPLES)]
    Load(Box<LoadArgs>),
    /// Find the highest rate that meets an objective, or the best number of connections, and name
    /// the limit
    #[command(after_help = CAPACITY_EXAMPLES)]
    Capacity(Box<CapacityArgs>),
    /// Compare whole deployments: services with proxies, caches and balancers
    #[command(disable_help_flag = true, after_help = LAB_EXAMPLES)]
    Lab(LabArgs),
    /// Check the consistency contract: write to a reserved table, read over HTTP, and check every
    /// response
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(Box<VerifyArgs>),
    /// Compare this machine's limits with a goal, and print how to raise them
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(DoctorArgs),
    /// Write the manual pages and shell completions; for packages
    #[command(hide = true, after_help = "Example:\n  hotrow pages target/pages")]
    Pages(PagesArgs),
}

/// Version with the commit and the features of the build.
static LONG_VERSION: LazyLock<String> = LazyLock::new(|| {
    let features = [
        ("hub", cfg!(feature = "hub")),
        ("mongodb", cfg!(feature = "mongodb")),
        ("mysql", cfg!(feature = "mysql")),
        ("otel", cfg!(feature = "otel")),
        ("postgres", cfg!(feature = "postgres")),
        ("failpoints", cfg!(feature = "failpoints")),
    ];
    let enabled: Vec<_> = features.iter().filter(|(_, on)| *on).map(|(name, _)| *name).collect();
    hotrow_cli::version::long(env!("CARGO_PKG_VERSION"), &enabled)
});

const CAPACITY_EXAMPLES: &str = "Examples:
  hotrow capacity --slo 'p99<10ms,errors<0.1%' http://127.0.0.1:8080/products/1
  hotrow capacity --slo 'p99<10ms' --at-least 5000 --ids 1..100000 \\
      'http://127.0.0.1:8080/products/{id}'
  hotrow capacity --slo 'p95<50ms' --start-rate 1000 --time 5m --pid 4711 --html capacity.html \\
      http://127.0.0.1:8080/
  hotrow capacity --closed --connections-max 256 --json http://127.0.0.1:8080/products/1";

const DOCTOR_EXAMPLES: &str = "Examples:
  hotrow doctor
  hotrow doctor --connections 50000 --rate 20000 --no-keepalive
  hotrow doctor --threads 20000 --verify-limits threads
  hotrow doctor --connections 100000 --fail-below --json";

const INIT_EXAMPLES: &str = "Examples:
  hotrow init --from sqlite:shop.db
  DATABASE_URL=postgres://hotrow:secret@db/shop hotrow init --from env:DATABASE_URL \\
      --output hotrow.toml
  hotrow init --from mysql://hotrow@db/shop --tables products,prices --output hotrow.toml --force";

const LAB_EXAMPLES: &str = "Examples:
  hotrow lab list
  hotrow lab run backends-limited-cpu";

const VERIFY_EXAMPLES: &str = "Examples:
  hotrow verify --config hotrow.toml --collection verify --create
  hotrow verify --config hotrow.toml --collection verify --url http://127.0.0.1:8080 -d 1m
  hotrow verify --config hotrow.toml --collection verify --url http://10.0.0.1:8080 \\
      --url http://10.0.0.2:8080 --balancer http://10.0.0.9 --admin http://10.0.0.1:8081 \\
      --rate 500 --json";

const LOAD_EXAMPLES: &str = "Examples:
  hotrow load http://127.0.0.1:8080/products/1
  hotrow load -c 100 -d 30s --rate 20000 --ids 1..100000 --distribution zipf:0.99 \\
      'http://127.0.0.1:8080/products/{id}'
  hotrow load -d 10s --rate 5000 --slo 'p99<5ms,errors<0.1%,rate>=99%' \\
      http://127.0.0.1:8080/products/1
  hotrow load -d 5m --rate 1000..20000 --hdr run.hlog --csv run.csv http://127.0.0.1:8080/products/1
  hotrow load --html run.html http://127.0.0.1:8080/products/1
  hotrow load compare before.json after.json
  hotrow load --calibrate
  hotrow load --json -n 100000 '9*http://127.0.0.1:8080/products/1' \\
      '1*http://127.0.0.1:8080/products/2'";

/// Arguments of `serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    #[command(flatten)]
    what: What,
    /// With --demo: change N random records a second from another connection
    #[arg(long, value_name = "N", requires = "demo", conflicts_with = "config")]
    #[arg(value_parser = demo_writes)]
    demo_writes: Option<NonZeroU32>,
    /// Address of the data API; overrides listen.data
    #[arg(long, value_name = "ADDR")]
    data: Option<SocketAddr>,
    /// Address of the admin API; overrides listen.admin
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

fn demo_writes(text: &str) -> Result<NonZeroU32, String> {
    let most = demo::writer::WRITES_PER_SECOND_MAX;
    let number: Option<NonZeroU32> = text.parse().ok();
    number
        .filter(|n| n.get() <= most)
        .ok_or_else(|| format!("must be a whole number between 1 and {most}"))
}

/// Failure of a command, by subsystem.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The database's catalogue gives no collections.
    #[error(transparent)]
    Catalogue(AutoError),
    /// Serving could not start or could not continue.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The relay could not start or could not continue.
    #[cfg(feature = "hub")]
    #[error(transparent)]
    Relay(RelayError),
    /// The demonstration could not be set up.
    #[error(transparent)]
    Demo(#[from] demo::DemoError),
    /// The triggers could not be removed.
    #[error(transparent)]
    UninstallTriggers(UninstallError),
    /// No configuration file could be written.
    #[error(transparent)]
    Init(#[from] InitError),
    /// The probed service is not healthy.
    #[error(transparent)]
    Health(#[from] HealthError),
    /// Nothing can be shown of the instances.
    #[error(transparent)]
    Top(#[from] TopError),
    /// There is no advice.
    #[error(transparent)]
    Advise(#[from] AdviseError),
    /// The pages could not be written.
    #[error(transparent)]
    Pages(#[from] PagesError),
    /// No key could be made.
    #[error(transparent)]
    Key(#[from] NoRandomness),
    /// The load run has no result.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The search for a capacity has no result.
    #[error(transparent)]
    Capacity(#[from] CapacityError),
    /// The experiment has no result.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The verification has no result.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// The machine could not be examined.
    #[error(transparent)]
    Doctor(#[from] DoctorError),
}

impl From<AutoError> for Failure {
    fn from(error: AutoError) -> Self {
        match error {
            AutoError::Config(error) => Self::Config(error),
            error @ AutoError::Catalogue { .. } => Self::Catalogue(error),
        }
    }
}

impl From<UninstallError> for Failure {
    fn from(error: UninstallError) -> Self {
        match error {
            UninstallError::Config(error) => Self::Config(error),
            error @ UninstallError::Database(_) => Self::UninstallTriggers(error),
        }
    }
}

impl Failure {
    /// Reports the failure on standard error and returns the exit status.
    #[must_use]
    pub fn report(self) -> Exit {
        match self {
            Self::Config(e) => {
                print_line(std::io::stderr(), &e.to_string());
                Exit::Usage
            }
            Self::Demo(demo::DemoError::Interrupted) => Exit::Interrupted,
            Self::Init(e) => {
                print_line(std::io::stderr(), &format!("hotrow init: {e}"));
                e.exit()
            }
            Self::Health(e) => {
                print_line(std::io::stderr(), &format!("hotrow health: {e}"));
                e.exit()
            }
            Self::Top(e) => {
                print_line(std::io::stderr(), &format!("hotrow top: {e}"));
                e.exit()
            }
            Self::Advise(e) => {
                print_line(std::io::stderr(), &format!("hotrow advise: {e}"));
                e.exit()
            }
            Self::Load(e) => {
                print_line(std::io::stderr(), &format!("hotrow load: {e}"));
                e.exit()
            }
            Self::Capacity(e) => {
                print_line(std::io::stderr(), &format!("hotrow capacity: {e}"));
                e.exit()
            }
            Self::Lab(e) => {
                print_line(std::io::stderr(), &format!("hotrow lab: {e}"));
                Exit::Failed
            }
            Self::Verify(e) => {
                print_line(std::io::stderr(), &format!("hotrow verify: {e}"));
                e.exit()
            }
            other => {
                logging::last_line(&format!("hotrow: {other}"));
                Exit::Failed
            }
        }
    }
}

/// Runs `hotrow serve`.
///
/// # Errors
/// Returns the cause if serving could not start or could not continue.
pub fn serve(args: &ServeArgs) -> Result<(), Failure> {
    let overrides = Overrides { data: args.data, admin: args.admin };
    // The last lines of the log are not lost.
    let on_abort = OnAbort::act(logging::flush);
    let host = Host::start(on_abort.clone())?;
    let Some(file) = &args.what.config else {
        return Ok(demo::run(&overrides, args.demo_writes, host, &on_abort)?);
    };
    let Loaded { resolved, text, file_text, collections } = auto::load(file, &overrides, None)?;
    let scheme_of = |of: &Transport| if of.tls.is_some() { "https" } else { "http" };
    let scheme = scheme_of(&resolved.server.transport);
    let admin_scheme = scheme_of(&resolved.server.admin_transport);
    let ready = |at: serve::Addresses| {
        let redis_scheme = if scheme == "https" { "rediss" } else { "redis" };
        let redis =
            at.redis.map_or_else(String::new, |at| format!(", redis on {redis_scheme}://{at}"));
        print_line(
            std::io::stdout(),
            &format!(
                "records on {scheme}://{}, admin on {admin_scheme}://{}{redis}",
                at.data, at.admin
            ),
        );
    };
    let hash = reload::hash(&file_text);
    let file = ConfigFile { path: file.clone(), overrides, text, hash, collections };
    Ok(serve::run(resolved, Some(file), host, ready)?)
}

/// Runs `hotrow pages`.
///
/// # Errors
/// Returns the file that could not be written.
pub fn write_pages(args: &PagesArgs) -> Result<(), Failure> {
    Ok(pages::write(&Cli::command(), args)?)
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
        let kind =
            |args: &str| Cli::try_parse_from(args.split(' ')).map(|_| ()).map_err(|e| e.kind());
        for good in [
            "hotrow serve --demo",
            "hotrow serve --demo --demo-writes 5 --data 127.0.0.1:0",
            "hotrow serve --config f --admin [::1]:1",
            "hotrow check --config f",
            "hotrow init --from sqlite:f",
            "hotrow init --from env:A --output f --force --schema a,b --tables c --url-env B --json",
            "hotrow health",
            "hotrow health --config f --ready --timeout 500ms",
            "hotrow health --unix /s https://a/x --cacert f",
            "hotrow advise",
            "hotrow advise --json --token-file t --cacert f https://a",
            "hotrow advise unix:/s",
            "hotrow key new --name billing --role reader --role audit --json",
            "hotrow uninstall-triggers --database f",
            "hotrow verify --config f --url http://a --url http://b --balancer http://c -d 5m \
             --json --keep-going",
            "hotrow load -c 10 -d 5s --rate 100..200 --arrivals poisson http://a/{id} --ids 1..9 \
             --distribution zipf:1",
            "hotrow load --slo p99<5ms,errors<0.1%,rate>=10000 --hdr f --csv g --percentiles \
             http://a",
            "hotrow load --calibrate -c 10 -t 1 --json -q",
            "hotrow load --html f http://a",
            "hotrow load compare a.json b.json --html f",
            "hotrow load compare --a 1.json 2.json --b 3.json",
            "hotrow capacity --slo p99<10ms,errors<0.1% --start-rate 5 --time 1m --at-least 9 \
             --pid 1 --pid 2 http://a",
            "hotrow capacity --closed --connections-max 64 --rounds 5 --port 80 --html f --json -q \
             http://a",
            "hotrow doctor --connections 5 --threads 5 --rate 0.5 --no-keepalive --fail-below \
             --verify-limits threads --json",
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
            ("hotrow health --config f http://a", ErrorKind::ArgumentConflict),
            ("hotrow health --config f --unix /s", ErrorKind::ArgumentConflict),
            ("hotrow advise --timeout 0s", ErrorKind::ValueValidation),
            ("hotrow health --timeout 0s", ErrorKind::ValueValidation),
            ("hotrow key", ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand),
            ("hotrow key new --name Billing", ErrorKind::ValueValidation),
            ("hotrow init", ErrorKind::MissingRequiredArgument),
            ("hotrow init --from sqlite:f --force", ErrorKind::MissingRequiredArgument),
            ("hotrow init --from sqlite:f --timeout 0s", ErrorKind::ValueValidation),
            ("hotrow check", ErrorKind::MissingRequiredArgument),
            ("hotrow uninstall-triggers", ErrorKind::MissingRequiredArgument),
            ("hotrow load", ErrorKind::MissingRequiredArgument),
            ("hotrow load --arrivals poisson http://a", ErrorKind::MissingRequiredArgument),
            ("hotrow load --rate 0 http://a", ErrorKind::ValueValidation),
            ("hotrow load --slo p99=5ms http://a", ErrorKind::ValueValidation),
            ("hotrow load compare", ErrorKind::MissingRequiredArgument),
            ("hotrow load compare a.json", ErrorKind::MissingRequiredArgument),
            ("hotrow load compare --a 1.json", ErrorKind::MissingRequiredArgument),
            (
                "hotrow load compare a.json b.json --a 1.json --b 2.json",
                ErrorKind::ArgumentConflict,
            ),
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
            (
                "hotrow capacity --slo p99<1ms --pid 1 --port 80 http://a",
                ErrorKind::ArgumentConflict,
            ),
            ("hotrow doctor --connections 0", ErrorKind::ValueValidation),
            ("hotrow doctor --rate 0", ErrorKind::ValueValidation),
            ("hotrow doctor --verify-limits files", ErrorKind::InvalidValue),
            ("hotrow doctor --child x --json", ErrorKind::ArgumentConflict),
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
            assert!(
                help.contains(&format!("hotrow {}", command.get_name())),
                "{}",
                command.get_name()
            );
        }
    }
}
