//! Why `hotrow init` writes no file.

use hotrow_cli::Exit;
use hotrow_cli::output::OutputError;
use hotrow_source::preflight::OpenFailure;

use super::file::WriteError;
use crate::config::ConfigError;

/// Reason why no file was written.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// The variable of the connection string cannot be read.
    #[error("the environment variable {name} {problem}")]
    Variable {
        /// Its name.
        name: String,
        /// The problem.
        problem: &'static str,
    },
    /// A shell cannot set a variable of this name.
    #[error("{0:?} is no name of an environment variable; use letters, digits and _")]
    VariableName(String),
    /// The connection string is wrong. It is not repeated.
    #[error("the connection string {0}")]
    Url(String),
    /// The database cannot be examined.
    #[error("{0}")]
    Database(String),
    /// The database does not answer.
    #[error("{0}")]
    Unreachable(String),
    /// The statements of `--apply` were not run.
    #[error("--apply {0}")]
    NotApplied(String),
    /// The account of another database was named.
    #[error("--role is for PostgreSQL, MySQL and MariaDB")]
    Role,
    /// No table has a name of `--tables`.
    #[error(
        "--tables: the database has no table {}, or this account may not see it; name tables as \
         the database spells them",
        .0.join(", ")
    )]
    UnknownTables(Vec<String>),
    /// The database has no table.
    #[error("the database has no table that this account may see; see --schema and --tables")]
    NoTables,
    /// The file would not pass `hotrow check`, and no single table is the cause.
    #[error("the file would not be valid; this is a bug in Hotrow: {0}")]
    Invalid(ConfigError),
    /// The file would be too large.
    #[error("the file would have {bytes} bytes, and at most {max} can be read; name fewer tables")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        max: u64,
    },
    /// The output file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Standard output cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
}

/// Returns the result of a look at a database.
pub(super) fn opened<T>(result: Result<T, impl OpenFailure>) -> Result<T, InitError> {
    result.map_err(|error| match error.is_unreachable() {
        true => InitError::Unreachable(error.to_string()),
        false => InitError::Database(error.to_string()),
    })
}

impl InitError {
    /// Returns the exit status: 2 if the command line is wrong.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Variable { .. } | Self::VariableName(_) | Self::Url(_) | Self::Role => {
                Exit::Usage
            }
            _ => Exit::Failed,
        }
    }
}
