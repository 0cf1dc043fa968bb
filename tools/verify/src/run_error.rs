//! Reasons that a verification does not run.

use crate::database::DatabaseError;

/// Reason a run has no report.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The database cannot be written or read.
    #[error("the database: {0}")]
    Database(#[from] DatabaseError),
    /// There is no such table.
    #[error("the table {name} cannot be read: {what}; --create creates it if there is none")]
    NoTable {
        /// Its name.
        name: String,
        /// The database's error.
        what: String,
    },
    /// The table contains foreign rows.
    #[error(
        "the table {name} has {rows} foreign rows; the checker needs a table of its own, whose \
         rows it overwrites and deletes. With --reuse-table those rows stay, but rows with the \
         checker's keys may be overwritten"
    )]
    Foreign {
        /// Its name.
        name: String,
        /// Number of foreign rows.
        rows: u64,
    },
    /// A target does not serve the collection as required.
    #[error("{url}: {what}")]
    Target {
        /// Its URL.
        url: String,
        /// The reason.
        what: String,
    },
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
}
