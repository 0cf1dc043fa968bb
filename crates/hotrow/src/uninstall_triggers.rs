//! `hotrow uninstall-triggers`: removes what `watch = "triggers"` added to a database.

use std::path::PathBuf;

use clap::Args;
use hotrow_cli::output::print_line;

use crate::config::{self, ConfigError, Overrides, SourceConfig};
use crate::serve;

/// Arguments of `uninstall-triggers`.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct UninstallTriggersArgs {
    /// Configuration file (TOML) whose source.url names the database
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// SQLite file
    #[arg(long, value_name = "FILE")]
    database: Option<PathBuf>,
}

/// Reason why nothing was removed.
#[derive(Debug, thiserror::Error)]
pub enum UninstallError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The database has no triggers of Hotrow, or cannot be changed.
    #[error("{0}")]
    Database(String),
}

/// Runs `hotrow uninstall-triggers`.
///
/// # Errors
/// Returns the cause if the change log and its triggers could not be removed.
pub fn uninstall_triggers(args: &UninstallTriggersArgs) -> Result<(), UninstallError> {
    let refuse = |reason: String| Err(UninstallError::Database(reason));
    let databases = match (&args.database, &args.config) {
        (Some(database), _) => vec![database.clone()],
        (None, Some(file)) => {
            let sources = config::load_offline(file, &Overrides::default())?.sources;
            // Of several databases, those to which triggers may have been added.
            let files: Vec<PathBuf> = sources.iter().filter_map(file_of).collect();
            match (files.is_empty(), sources.first()) {
                (true, Some(first)) => return refuse(nothing_added(first)),
                _ => files,
            }
        }
        // clap requires one of the two.
        (None, None) => return refuse("name a database with --config or --database".to_owned()),
    };
    for database in databases {
        let removed = serve::uninstall_triggers(&database).map_err(UninstallError::Database)?;
        print_line(std::io::stdout(), &format!("{}: {removed}", database.display()));
    }
    Ok(())
}

/// Returns the file of a database that is one.
fn file_of(source: &SourceConfig) -> Option<PathBuf> {
    match source {
        SourceConfig::Sqlite(source) => Some(source.path.clone()),
        #[cfg(any(feature = "postgres", feature = "mysql", feature = "mongodb"))]
        _ => None,
    }
}

/// Says what stays in a database that has no triggers of Hotrow.
fn nothing_added(source: &SourceConfig) -> String {
    match source {
        #[cfg(feature = "postgres")]
        SourceConfig::Postgres(source) => format!(
            "on PostgreSQL only the publication stays when Hotrow stops; remove it with \
             DROP PUBLICATION {}",
            source.publication
        ),
        _ => "nothing was added to this database, so nothing has to be removed".to_owned(),
    }
}
