//! What can be wrong with a database or with what the configuration says about it, and what to do.

use std::path::PathBuf;

use rusqlite::ErrorCode;

/// Why a database cannot be served. Each message names the thing, the rule and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// There is no file. It is never created.
    #[error("the database file {path} does not exist; create it first or correct `url`")]
    Missing {
        /// The path as configured.
        path: PathBuf,
    },
    /// A directory, a socket and the like.
    #[error("{path} is not a regular file, so it cannot be a database")]
    NotAFile {
        /// The path as configured.
        path: PathBuf,
    },
    /// The file is there and holds something else (an empty file too).
    #[error("{path} is not an SQLite database: {detail}")]
    NotADatabase {
        /// The path as configured.
        path: PathBuf,
        /// What was seen.
        detail: String,
    },
    /// The operating system says no.
    #[error(
        "no permission to read {path}: {detail}; give this user read access to the file and search access to its directory"
    )]
    Permission {
        /// The path as configured.
        path: PathBuf,
        /// What was refused.
        detail: String,
    },
    /// The change log cannot be added.
    #[error(
        "{path} cannot be written to, which `watch = \"triggers\"` needs (file and directory): {detail}; give write access or use `watch = \"none\"`"
    )]
    ReadOnly {
        /// The path as configured.
        path: PathBuf,
        /// What was refused.
        detail: String,
    },
    /// Somebody holds a lock for too long.
    #[error("{path} is locked by another process: {detail}; end its transaction or its exclusive locking mode")]
    Locked {
        /// The path as configured.
        path: PathBuf,
        /// What the driver said.
        detail: String,
    },
    /// Triggers are promised to deliver within milliseconds without blocking writers; only WAL allows that.
    #[error(
        "{path} uses journal mode `{mode}`, and `watch = \"triggers\"` needs WAL; run `PRAGMA journal_mode=WAL;` on it once"
    )]
    NotWal {
        /// The path as configured.
        path: PathBuf,
        /// The mode found.
        mode: String,
    },
    /// Left behind by a database that was replaced; reading through it would mix the two.
    #[error(
        "{wal} still belongs to the database that was replaced; remove it and the `-shm` file beside it, or move a database together with its files"
    )]
    StaleWal {
        /// The write-ahead log in the way.
        wal: PathBuf,
    },
    /// The log has a layout from the future.
    #[error(
        "the change log in {path} has format {found}, this version knows {known}; use the newer version or run `hotrow unwatch`"
    )]
    NewerFormat {
        /// The path as configured.
        path: PathBuf,
        /// Format found.
        found: i64,
        /// Highest format known here.
        known: i64,
    },
    /// The configuration names a table that is not there.
    #[error("collection `{collection}`: there is no table `{table}`; the database has {have}")]
    NoTable {
        /// Whose setting.
        collection: String,
        /// The table named.
        table: String,
        /// What there is.
        have: String,
    },
    /// A view, a virtual table or one of SQLite's or our own.
    #[error("collection `{collection}`: `{table}` is a {kind}; only ordinary tables can be served, because {why}")]
    NotATable {
        /// Whose setting.
        collection: String,
        /// The table named.
        table: String,
        /// What it is.
        kind: String,
        /// What is missing.
        why: &'static str,
    },
    /// The configuration names a column that is not there.
    #[error("collection `{collection}`: table `{table}` has no column `{column}` (setting `{setting}`); it has {have}")]
    NoColumn {
        /// Whose setting.
        collection: String,
        /// The table named.
        table: String,
        /// The column named.
        column: String,
        /// `key`, `columns` or `exclude`.
        setting: &'static str,
        /// What there is.
        have: String,
    },
    /// Nothing is left after `columns` and `exclude`.
    #[error("collection `{collection}`: `columns` and `exclude` leave no column of `{table}` to serve")]
    NothingServed {
        /// Whose setting.
        collection: String,
        /// The table named.
        table: String,
    },
    /// One id could name several rows.
    #[error(
        "collection `{collection}`: ({key}) is not unique in `{table}`; the key needs a PRIMARY KEY or a UNIQUE index without WHERE on exactly these columns; unique there: {have}"
    )]
    KeyNotUnique {
        /// Whose setting.
        collection: String,
        /// The table named.
        table: String,
        /// The key named.
        key: String,
        /// What there is.
        have: String,
    },
    /// The wrong number of key columns or key types.
    #[error("collection `{collection}`: {detail}")]
    KeyShape {
        /// Whose setting.
        collection: String,
        /// The rule and the value.
        detail: String,
    },
    /// Ids of this type cannot be told apart as SQLite does.
    #[error("collection `{collection}`: key column `{column}` is declared `{declared}`: {rule}")]
    KeyType {
        /// Whose setting.
        collection: String,
        /// The key column.
        column: String,
        /// Its declared type.
        declared: String,
        /// The rule and what to do.
        rule: &'static str,
    },
    /// Only SQLite's own collations are known here.
    #[error(
        "collection `{collection}`: key column `{column}` is compared with the collation `{collation}`, which only the program that defines it can do; use BINARY, NOCASE or RTRIM"
    )]
    CustomCollation {
        /// Whose setting.
        collection: String,
        /// The key column.
        column: String,
        /// The collation's name.
        collation: String,
    },
    /// A REPLACE could evict rows that no trigger can name.
    #[error(
        "collection `{collection}`: the unique index `{index}` on `{table}` {why}, so a REPLACE could remove rows unnoticed; drop that index or use `watch = \"none\"`"
    )]
    UnwatchableIndex {
        /// Whose setting.
        collection: String,
        /// The table named.
        table: String,
        /// The index.
        index: String,
        /// What about it.
        why: &'static str,
    },
    /// Writes to the table would fail with our triggers, so they were not added.
    #[error(
        "collection `{collection}`: the triggers for `{table}` do not work there: {detail}; use `watch = \"none\"`"
    )]
    Triggers {
        /// Whose setting.
        collection: String,
        /// The table named.
        table: String,
        /// What the driver said.
        detail: String,
    },
    /// A key type differs from the one at the start, and ids in flight were parsed by that one.
    #[error(
        "collection `{collection}`: the key of `{table}` changed its type or collation; restart to serve it by the new one"
    )]
    KeyChanged {
        /// Whose setting.
        collection: String,
        /// The table named.
        table: String,
    },
    /// A thread could not be started.
    #[error("cannot start a reader thread: {detail}")]
    Thread {
        /// What the system said.
        detail: String,
    },
    /// Anything else the driver says.
    #[error("cannot work with the database {path}: {detail}")]
    Other {
        /// The path as configured.
        path: PathBuf,
        /// What the driver said.
        detail: String,
    },
}

/// What an error of the driver means for the one who met it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Somebody else holds a lock; the same call may work later.
    Busy,
    /// Our own time limit ended the query.
    Interrupted,
    /// The file is damaged, gone or out of reach; the connection is of no more use.
    Unusable,
    /// The statement does not fit the schema, or anything else about this one statement.
    Statement,
}

/// Sorts an error of the driver.
pub(crate) fn fault(e: &rusqlite::Error) -> Fault {
    match e.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Fault::Busy,
        Some(ErrorCode::OperationInterrupted) => Fault::Interrupted,
        Some(
            ErrorCode::DatabaseCorrupt
            | ErrorCode::NotADatabase
            | ErrorCode::SystemIoFailure
            | ErrorCode::CannotOpen
            | ErrorCode::PermissionDenied
            | ErrorCode::AuthorizationForStatementDenied
            | ErrorCode::ReadOnly
            | ErrorCode::DiskFull
            | ErrorCode::OutOfMemory
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::InternalMalfunction
            // Only after SQLite itself has tried again many times.
            | ErrorCode::SchemaChanged,
        ) => Fault::Unusable,
        _ => Fault::Statement,
    }
}

impl OpenError {
    /// The message for an error of the driver that was met while a database was opened or looked at.
    pub(crate) fn from_driver(path: &std::path::Path, e: &rusqlite::Error) -> Self {
        let (path, detail) = (path.to_path_buf(), e.to_string());
        match e.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Self::NotADatabase { path, detail },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Locked { path, detail },
            Some(ErrorCode::ReadOnly) => Self::ReadOnly { path, detail },
            Some(ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied) => {
                Self::Permission { path, detail }
            }
            _ => Self::Other { path, detail },
        }
    }
}
