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
    let (collections, database) = match &resolved.source {
        SourceConfig::Sqlite(source) => (&source.collections, source.path.display().to_string()),
        #[cfg(feature = "postgres")]
        SourceConfig::Postgres(source) => (&source.server.collections, "PostgreSQL".to_owned()),
        #[cfg(feature = "mysql")]
        SourceConfig::Mysql(source) => (&source.server.collections, "MySQL or MariaDB".to_owned()),
        #[cfg(feature = "mongodb")]
        SourceConfig::Mongodb(source) => (&source.server.collections, "MongoDB".to_owned()),
    };
    let names: Vec<&str> = collections.iter().map(|c| c.name.as_str()).collect();
    let noun = if names.len() == 1 { "collection" } else { "collections" };
    format!("{} {noun} ({}) from {}", names.len(), names.join(", "), database)
}
