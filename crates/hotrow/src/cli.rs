//! Command line: the arguments of every command, and the commands without a module of their own.

use std::fmt::Display;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::{Args, CommandFactory as _, Parser, Subcommand};

use hotrow_cli::help::{Group, Program};
use hotrow_cli::output::print_line;
use hotrow_cli::pages::{self, PagesArgs, PagesError};
use hotrow_cli::signals::OnAbort;
use hotrow_cli::{Exit, TOOLS};
use hotrow_config::transport::Transport;

use crate::advise::{AdviseArgs, AdviseError, advise};
use crate::check::{CheckArgs, check};
use crate::config::address::ListenAddress;
use crate::config::{ConfigError, Overrides};
use crate::demo::{self, DemoError};
use crate::describe::{DescribeArgs, describe};
use crate::health::{HealthArgs, HealthError, health};
use crate::init::auto::{self, AutoError, Loaded};
use crate::init::origin::ConnectionString;
use crate::init::{InitArgs, InitError, init};
use crate::key::{KeyArgs, NoRandomness, key};
use crate::logging;
#[cfg(feature = "hub")]
use crate::relay::{RelayArgs, RelayError, relay};
use crate::reload::{self, ConfigFile};
use crate::serve::{self, Host, ServeError};
use crate::serve_url::{self, UrlArgs, UrlError};
use crate::tool::ToolError;
use crate::uninstall_triggers::{UninstallError, UninstallTriggersArgs, uninstall_triggers};

/// Records by id over HTTP, at memory speed, never staler than promised
#[derive(Debug, Parser)]
#[command(name = "hotrow", version, long_version = LONG_VERSION.as_str())]
#[command(arg_required_else_help = true, after_help = HELP)]
pub struct Cli {
    /// Command to run.
    #[command(subcommand)]
    pub command: Command,
}

const HELP: &str = "Examples:
  hotrow serve --demo
  hotrow serve postgres://hotrow@db/shop
  hotrow init --from postgres://hotrow@db/shop --output hotrow.toml
  hotrow serve --config hotrow.toml

Exit status of hotrow:
  0: fine
  1: failed
  2: wrong usage or configuration
  3: an objective was missed
  130: interrupted";

/// Commands by what they are for.
const GROUPS: [Group; 4] = [
    ("Serve", &["serve", "relay"]),
    ("Prepare", &["init", "check", "key", "uninstall-triggers"]),
    ("Operate", &["health", "top", "advise", "doctor"]),
    ("Tools", &["load", "capacity", "verify", "lab"]),
];

/// Returns the command line, with the commands that `hotrow-lab` runs.
pub fn program() -> Program {
    let tools =
        TOOLS.map(|(name, about)| clap::Command::new(name).about(about).disable_help_flag(true));
    Program::new(Cli::command().subcommands(tools), &GROUPS)
}

/// Commands of the program.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a database, the collections of a file, or a demonstration
    #[command(after_help = "Examples:\n  hotrow serve sqlite:shop.db\n  \
        hotrow serve env:DATABASE_URL --ttl 5s\n  hotrow serve --demo\n  \
        hotrow serve --config hotrow.toml --data :8080")]
    Serve(ServeArgs),
    /// Follow the database once, and publish its changes for servers
    #[cfg(feature = "hub")]
    #[command(after_help = "Examples:\n  hotrow relay --config hotrow.toml")]
    Relay(RelayArgs),
    /// Check a configuration file, and the database as at a start; list every problem
    #[command(after_help = "Examples:\n  hotrow check --config hotrow.toml\n  \
        hotrow check --config hotrow.toml --offline\n\nExit status of hotrow check:\n  \
        3: the file is fine, and the database was not reached")]
    Check(CheckArgs),
    /// Write a configuration file from a database's catalogue
    #[command(after_help = INIT_EXAMPLES)]
    Init(Box<InitArgs>),
    /// Probe a running service: status 0 if it is alive or, with --ready, ready
    #[command(
        after_help = "Examples:\n  hotrow health\n  hotrow health --config hotrow.toml --ready\n  \
        hotrow health --unix /run/hotrow/data.sock http://localhost/products/1"
    )]
    Health(HealthArgs),
    /// Ask a running service how much memory is worth it: hit ratios at other capacities
    #[command(after_help = "Examples:\n  hotrow advise\n  hotrow advise --token-file admin.token \
        http://10.0.0.1:8081\n  hotrow advise --json")]
    Advise(AdviseArgs),
    /// Make API keys
    #[command(after_help = "Examples:\n  hotrow key new --name billing --role reader")]
    Key(KeyArgs),
    /// Remove the change log and triggers of `watch = "triggers"` from a database
    #[command(after_help = "Examples:\n  hotrow uninstall-triggers --config hotrow.toml\n  \
        hotrow uninstall-triggers --database shop.db")]
    UninstallTriggers(UninstallTriggersArgs),
    /// Write the resolved configuration for hotrow-lab, with its secrets
    #[command(hide = true)]
    Describe(DescribeArgs),
    /// Write the manual pages and shell completions; for packages
    #[command(hide = true)]
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

/// Failure of a command: its last line and the exit status.
#[derive(Debug)]
pub struct Failure {
    line: String,
    exit: Exit,
}

impl Failure {
    fn of(command: &str, error: &impl Display, exit: Exit) -> Self {
        Self { line: format!("hotrow{command}: {error}"), exit }
    }

    /// Reports the failure on standard error and returns the exit status.
    pub fn report(self) -> Exit {
        if self.exit != Exit::Interrupted {
            logging::last_line(&self.line);
        }
        self.exit
    }
}

/// Makes failures of the errors of commands.
macro_rules! failures {
    ($($(#[$attribute:meta])* $error:ty: $name:ident => $failure:expr;)+) => {
        $(
            $(#[$attribute])*
            impl From<$error> for Failure {
                fn from($name: $error) -> Self {
                    $failure
                }
            }
        )+
    };
}

failures! {
    ConfigError: error => Self { line: error.to_string(), exit: Exit::Usage };
    AutoError: error => match error {
        AutoError::Config(error) => error.into(),
        error @ AutoError::Catalogue { .. } => Self::of("", &error, Exit::Failed),
    };
    ServeError: error => Self::of("", &error, Exit::Failed);
    #[cfg(feature = "hub")]
    RelayError: error => match error {
        RelayError::Config(error) => error.into(),
        error => Self::of("", &error, Exit::Failed),
    };
    UrlError: error => match error {
        UrlError::Config(error) => error.into(),
        UrlError::Serve(error) => error.into(),
        UrlError::Database(ref of) => Self { exit: of.exit(), line: error.to_string() },
        UrlError::Triggers => Self { line: error.to_string(), exit: Exit::Usage },
    };
    DemoError: error => match error {
        DemoError::Interrupted => Self::of("", &error, Exit::Interrupted),
        error => Self::of("", &error, Exit::Failed),
    };
    UninstallError: error => match error {
        UninstallError::Config(error) => error.into(),
        error => Self::of("", &error, Exit::Failed),
    };
    InitError: error => Self::of(" init", &error, error.exit());
    HealthError: error => Self::of(" health", &error, error.exit());
    AdviseError: error => Self::of(" advise", &error, error.exit());
    PagesError: error => Self::of("", &error, Exit::Failed);
    NoRandomness: error => Self::of("", &error, Exit::Failed);
    ToolError: error => Self::of("", &error, Exit::Failed);
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// The cause of its failure.
    pub fn run(self) -> Result<Exit, Failure> {
        match self {
            Self::Serve(args) => serve(&args)?,
            #[cfg(feature = "hub")]
            Self::Relay(args) => relay(&args)?,
            Self::Check(args) => return Ok(check(&args)?),
            Self::Init(args) => return Ok(init(&args)?),
            Self::Health(args) => health(&args)?,
            Self::Advise(args) => advise(&args)?,
            Self::Key(args) => key(&args)?,
            Self::UninstallTriggers(args) => uninstall_triggers(&args)?,
            Self::Describe(args) => describe(&args)?,
            Self::Pages(args) => pages::write(&program(), &args)?,
        }
        Ok(Exit::Fine)
    }
}

/// Runs `hotrow serve`.
///
/// # Errors
/// Returns the cause if serving could not start or could not continue.
fn serve(args: &ServeArgs) -> Result<(), Failure> {
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
}
