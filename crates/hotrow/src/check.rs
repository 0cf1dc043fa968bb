//! `hotrow check`: every problem of a configuration file, and of the database for it.

use std::path::PathBuf;

use clap::Args;
use hotrow_cli::Exit;
use hotrow_cli::output::print_line;
use hotrow_net::tls::unix_s;

use crate::config::auto::Auto;
use crate::config::{self, ConfigError, Overrides, Resolved, SourceConfig};
use crate::init::auto::{self, AutoError};
use crate::serve::{self, ServeError};

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Check the file alone; the database is not asked
    #[arg(long)]
    offline: bool,
}

/// Runs `hotrow check`: the file, then the database as at a start, without adding anything to it.
/// The exit status is 3 if nothing answered there.
///
/// # Errors
/// Returns every problem of the file.
pub fn check(args: &CheckArgs) -> Result<Exit, ConfigError> {
    let file = args.config.display();
    let offline = config::load_offline(&args.config, &Overrides::default())?;
    let certificates = config::check_files(&offline, &args.config)?;
    let (checked, exit) = if args.offline {
        warn(args, &offline);
        let has_collections = Auto::of(&config::read_file(&args.config)?).is_none();
        let what = match has_collections {
            true => format!("was not asked; {}", summary(&offline)),
            false => "has the collections, and was not asked".to_owned(),
        };
        (format!("the file is fine; the database {what}"), Exit::Fine)
    } else {
        in_database(args)?
    };
    match exit {
        Exit::Fine => print_line(std::io::stdout(), &format!("{file}: {checked}")),
        _ => print_line(std::io::stderr(), &format!("{file}: {checked}")),
    }
    for (table, certificates) in certificates {
        let (valid_until, days) = (certificates.expires(), certificates.days_left(unix_s()));
        let warning = if days < EXPIRY_WARNING_DAYS { "; renew it" } else { "" };
        let line = format!("{file}: {table}: valid until {valid_until}, {days} days{warning}");
        print_line(std::io::stdout(), &line);
    }
    Ok(exit)
}

/// Checks the database, and returns what to say with the exit status.
fn in_database(args: &CheckArgs) -> Result<(String, Exit), ConfigError> {
    let unreachable = |why: String| {
        (format!("the file is fine; the database was not reached: {why}"), Exit::Missed)
    };
    let refused =
        |why: String| (format!("the file is fine; the database is not ready: {why}"), Exit::Failed);
    let resolved = match auto::load(&args.config, &Overrides::default(), None) {
        Ok(loaded) => loaded.resolved,
        Err(AutoError::Config(error)) => return Err(error),
        Err(AutoError::Catalogue { what, is_unreachable, .. }) => {
            return Ok(if is_unreachable { unreachable(what) } else { refused(what) });
        }
    };
    warn(args, &resolved);
    let summary = summary(&resolved);
    Ok(match serve::trial(resolved) {
        Ok(()) => (format!("fine; {summary}"), Exit::Fine),
        Err(ServeError::Unreachable(why)) => unreachable(why),
        Err(error) => refused(error.to_string()),
    })
}

fn warn(args: &CheckArgs, resolved: &Resolved) {
    for warning in &resolved.warnings {
        print_line(std::io::stderr(), &format!("{}: warning: {warning}", args.config.display()));
    }
}

/// Days before its end at which a certificate should be renewed.
const EXPIRY_WARNING_DAYS: i64 = 30;

fn summary(resolved: &Resolved) -> String {
    let sources = resolved.server.sources.iter().zip(&resolved.sources);
    let sources = sources.map(|(named, source)| {
        let name = (resolved.sources.len() > 1).then_some(named.name.as_str());
        summary_of(source, name)
    });
    sources.collect::<Vec<_>>().join("; ")
}

/// Returns what is served from one source; `name`: where there are several.
fn summary_of(source: &SourceConfig, name: Option<&str>) -> String {
    let database = match source {
        SourceConfig::Sqlite(source) => source.path.display().to_string(),
        #[cfg(feature = "postgres")]
        SourceConfig::Postgres(_) => "PostgreSQL".to_owned(),
        #[cfg(feature = "mysql")]
        SourceConfig::Mysql(_) => "MySQL or MariaDB".to_owned(),
        #[cfg(feature = "mongodb")]
        SourceConfig::Mongodb(_) => "MongoDB".to_owned(),
    };
    let collections = source.collections();
    let named = |is_alias: bool, (one, several): (&str, &str)| {
        let names = collections.iter().filter(|c| c.is_alias == is_alias);
        let names: Vec<&str> = names.map(|c| c.name.as_str()).collect();
        let noun = if names.len() == 1 { one } else { several };
        (!names.is_empty()).then(|| format!("{} {noun} ({})", names.len(), names.join(", ")))
    };
    let own = named(false, ("collection", "collections"));
    let aliases = named(true, ("alias", "aliases"));
    let parts: Vec<String> = own.into_iter().chain(aliases).collect();
    let parts = if parts.is_empty() { "nothing".to_owned() } else { parts.join(" and ") };
    let name = name.map(|name| format!(" ({name})")).unwrap_or_default();
    format!("{parts} from {database}{name}")
}
