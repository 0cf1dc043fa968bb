//! `hotrow check`: every problem of a configuration file.

use std::path::PathBuf;

use clap::Args;
use hotrow_cli::output::print_line;

use crate::config::{self, Overrides, Resolved, SourceConfig};
use crate::init::auto::{self, AutoError};

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

/// Runs `hotrow check`.
///
/// # Errors
/// Returns every problem of the file.
pub fn check(args: &CheckArgs) -> Result<(), AutoError> {
    let resolved = auto::load(&args.config, &Overrides::default(), None)?.resolved;
    let certificates = config::check_files(&resolved, &args.config)?;
    for warning in &resolved.warnings {
        print_line(std::io::stderr(), &format!("{}: warning: {warning}", args.config.display()));
    }
    print_line(
        std::io::stdout(),
        &format!("{}: fine; {}", args.config.display(), summary(&resolved)),
    );
    for (table, certificates) in certificates {
        let (valid_until, days) = (certificates.expires(), certificates.days_left(unix_s()));
        let warning = if days < EXPIRY_WARNING_DAYS { "; renew it" } else { "" };
        let file = args.config.display();
        print_line(
            std::io::stdout(),
            &format!("{file}: {table}: valid until {valid_until}, {days} days{warning}"),
        );
    }
    Ok(())
}

/// Days before its end at which a certificate should be renewed.
const EXPIRY_WARNING_DAYS: i64 = 30;

fn unix_s() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

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
