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
    let database = match (&args.database, &args.config) {
        (Some(database), _) => database.clone(),
        (None, Some(file)) => match config::load_offline(file, &Overrides::default())?.source {
            SourceConfig::Sqlite(source) => source.path,
            #[cfg(feature = "postgres")]
            SourceConfig::Postgres(source) => {
                return refuse(format!(
                    "on PostgreSQL only the publication stays when Hotrow stops; remove it with \
                     DROP PUBLICATION {}",
                    source.publication
                ));
            }
            #[cfg(any(feature = "mysql", feature = "mongodb"))]
            _ => {
                return refuse(
                    "nothing was added to this database, so nothing has to be removed".to_owned(),
                );
            }
        },
        // clap requires one of the two.
        (None, None) => return refuse("name a database with --config or --database".to_owned()),
    };
    let removed = serve::uninstall_triggers(&database).map_err(UninstallError::Database)?;
    print_line(std::io::stdout(), &format!("{}: {removed}", database.display()));
    Ok(())
}
