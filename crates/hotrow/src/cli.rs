//! Command line: the arguments of every command, and the commands without a module of their own.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::{Args, CommandFactory as _, Parser, Subcommand};

use hotrow_cli::Exit;
use hotrow_cli::output::print_line;
use hotrow_cli::pages::{self, PagesArgs, PagesError};
use hotrow_cli::signals::OnAbort;
use hotrow_config::transport::Transport;

use crate::advise::{AdviseArgs, AdviseError};
use crate::check::CheckArgs;
use crate::config::address::ListenAddress;
use crate::config::{ConfigError, Overrides};
use crate::demo;
use crate::describe::DescribeArgs;
use crate::health::{HealthArgs, HealthError};
use crate::init::auto::{self, AutoError, Loaded};
use crate::init::origin::ConnectionString;
use crate::init::{InitArgs, InitError};
use crate::key::{KeyArgs, NoRandomness};
use crate::logging;
#[cfg(feature = "hub")]
use crate::relay::{RelayArgs, RelayError};
use crate::reload::{self, ConfigFile};
use crate::serve::{self, Host, ServeError};
use crate::serve_url::{self, UrlArgs, UrlError};
use crate::tool::{ToolArgs, ToolError};
use crate::uninstall_triggers::{UninstallError, UninstallTriggersArgs};

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
    /// Serve the tables of a database, the collections of a configuration file, or a demonstration
    #[command(after_help = "Examples:\n  hotrow serve sqlite:shop.db\n  \
        hotrow serve env:DATABASE_URL --ttl 5s\n  hotrow serve --demo\n  \
        hotrow serve --config hotrow.toml --data :8080")]
    Serve(ServeArgs),
    /// Follow the database once, and publish its changes for servers
    #[cfg(feature = "hub")]
    #[command(after_help = "Example:\n  hotrow relay --config hotrow.toml")]
    Relay(RelayArgs),
    /// Check a configuration file, and the database as at a start; list every problem
    #[command(after_help = "Example:\n  hotrow check --config hotrow.toml\n\n\
        Exit status 3: the file is fine, and the database was not reached.")]
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
    #[command(disable_help_flag = true, after_help = "Example:\n  hotrow load --help")]
    Load(ToolArgs),
    /// Find the highest rate that meets an objective, or the best number of connections, and name
    /// the limit
    #[command(disable_help_flag = true, after_help = "Example:\n  hotrow capacity --help")]
    Capacity(ToolArgs),
    /// Check the consistency contract: write to a reserved table, read over HTTP, and check every
    /// response
    #[command(disable_help_flag = true, after_help = "Example:\n  hotrow verify --help")]
    Verify(ToolArgs),
    /// Show running instances in the terminal: requests, latency, hit ratio, staleness, refusals
    #[command(disable_help_flag = true, after_help = "Example:\n  hotrow top --help")]
    Top(ToolArgs),
    /// Compare this machine's limits with a goal, and print how to raise them
    #[command(disable_help_flag = true, after_help = "Example:\n  hotrow doctor --help")]
    Doctor(ToolArgs),
    /// Compare whole deployments: services with proxies, caches and balancers
    #[command(disable_help_flag = true, after_help = "Example:\n  hotrow lab list")]
    Lab(ToolArgs),
    /// Write the resolved configuration for hotrow-lab, with its secrets
    #[command(hide = true, after_help = "Example:\n  hotrow describe --config hotrow.toml")]
    Describe(DescribeArgs),
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
        ("postgres", cfg!(feature = "postgres")),
        ("failpoints", cfg!(feature = "failpoints")),
    ];
    let enabled: Vec<_> = features.iter().filter(|(_, on)| *on).map(|(name, _)| *name).collect();
    hotrow_cli::version::long(env!("CARGO_PKG_VERSION"), &enabled)
});

const INIT_EXAMPLES: &str = "Examples:
  hotrow init --from sqlite:shop.db
  DATABASE_URL=postgres://hotrow:secret@db/shop hotrow init --from env:DATABASE_URL \\
      --output hotrow.toml
  hotrow init --from mysql://hotrow@db/shop --tables products,prices --output hotrow.toml --force";

/// Arguments of `serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    #[command(flatten)]
    what: What,
    #[command(flatten)]
    of_url: UrlArgs,
    /// With --demo: change N random records a second from another connection
    #[arg(long, value_name = "N", requires = "demo", conflicts_with = "config")]
    #[arg(value_parser = demo_writes)]
    demo_writes: Option<NonZeroU32>,
    /// Address of the data API; overrides listen.data
    #[arg(long, value_name = "ADDR")]
    data: Option<ListenAddress>,
    /// Address of the admin API; overrides listen.admin
    #[arg(long, value_name = "ADDR")]
    admin: Option<ListenAddress>,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct What {
    /// Database: sqlite:FILE, a connection string as in source.url, or env:NAME for one in an
    /// environment variable; every table that the account may read is served
    #[arg(value_name = "URL")]
    url: Option<ConnectionString>,
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
    /// The database of `serve URL` is not served.
    #[error(transparent)]
    Url(UrlError),
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
    /// There is no advice.
    #[error(transparent)]
    Advise(#[from] AdviseError),
    /// The pages could not be written.
    #[error(transparent)]
    Pages(#[from] PagesError),
    /// No key could be made.
    #[error(transparent)]
    Key(#[from] NoRandomness),
    /// The workshop could not be started.
    #[error(transparent)]
    Tool(#[from] ToolError),
}

impl From<UrlError> for Failure {
    fn from(error: UrlError) -> Self {
        match error {
            UrlError::Config(error) => Self::Config(error),
            UrlError::Serve(error) => Self::Serve(error),
            error => Self::Url(error),
        }
    }
}

impl From<AutoError> for Failure {
    fn from(error: AutoError) -> Self {
        match error {
            AutoError::Config(error) => Self::Config(error),
            error @ AutoError::Catalogue { .. } => Self::Catalogue(error),
        }
    }
}

#[cfg(feature = "hub")]
impl From<RelayError> for Failure {
    fn from(error: RelayError) -> Self {
        match error {
            RelayError::Config(error) => error.into(),
            error => Self::Relay(error),
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
            Self::Config(_) => {
                print_line(std::io::stderr(), &self.to_string());
                Exit::Usage
            }
            Self::Url(ref url) => {
                print_line(std::io::stderr(), &self.to_string());
                match url {
                    UrlError::Database(e) => e.exit(),
                    _ => Exit::Usage,
                }
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
            Self::Advise(e) => {
                print_line(std::io::stderr(), &format!("hotrow advise: {e}"));
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
    let address = |of: Option<ListenAddress>| of.map(|ListenAddress(address)| address);
    let overrides = Overrides { data: address(args.data), admin: address(args.admin), keys: None };
    // The last lines of the log are not lost.
    let on_abort = OnAbort::act(logging::flush);
    let host = Host::start(on_abort.clone())?;
    if let Some(url) = &args.what.url {
        return Ok(serve_url::run(url, &args.of_url, &overrides, host)?);
    }
    let Some(file) = &args.what.config else {
        return Ok(demo::run(&overrides, args.demo_writes, host, &on_abort)?);
    };
    let Loaded { resolved, text, file_text, collections, overrides, .. } =
        auto::load(file, &overrides, None)?;
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
            "hotrow serve sqlite:shop.db --triggers",
            "hotrow serve env:DATABASE_URL --ttl 5s --data 8080",
            "hotrow serve --demo --demo-writes 5 --data 127.0.0.1:0",
            "hotrow serve --config f --admin [::1]:1 --data localhost:8080",
            "hotrow check --config f",
            "hotrow check --config f --offline",
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
            "hotrow load",
            "hotrow verify --anything x --help",
            "hotrow describe --config f",
        ] {
            assert_eq!(kind(good), Ok(()), "{good}");
        }
        for (bad, why) in [
            ("hotrow serve", ErrorKind::MissingRequiredArgument),
            ("hotrow serve --demo --config f", ErrorKind::ArgumentConflict),
            ("hotrow serve sqlite:a --config f", ErrorKind::ArgumentConflict),
            ("hotrow serve --demo --ttl 5s", ErrorKind::ArgumentConflict),
            ("hotrow serve sqlite:a --ttl 5s --triggers", ErrorKind::ArgumentConflict),
            ("hotrow serve sqlite:a --ttl 5", ErrorKind::ValueValidation),
            ("hotrow serve --config f --demo-writes 5", ErrorKind::ArgumentConflict),
            ("hotrow serve --demo --demo-writes 0", ErrorKind::ValueValidation),
            ("hotrow serve --demo --demo-writes 1000000", ErrorKind::ValueValidation),
            ("hotrow serve --demo --data shop:80", ErrorKind::ValueValidation),
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
