//! Problems of a database or of its configuration, each with a remedy.

use std::path::PathBuf;

use hotrow_source::preflight::Finding;
use rusqlite::ErrorCode;

/// Failure to serve a database. Each message names the object, the rule and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// There is no file. It is never created.
    #[error("the database file {path} does not exist; create it first or correct `url`")]
    Missing {
        /// Path as configured.
        path: PathBuf,
    },
    /// A directory, a socket and the like.
    #[error("{path} is not a regular file, so it cannot be a database")]
    NotAFile {
        /// Path as configured.
        path: PathBuf,
    },
    /// The file holds something else, or is empty.
    #[error("{path} is not an SQLite database: {detail}")]
    NotADatabase {
        /// Path as configured.
        path: PathBuf,
        /// Problem found.
        detail: String,
    },
    /// The operating system denies access.
    #[error(
        "no permission to read {path}: {detail}; give this user read access to the file and \
         search access to its directory"
    )]
    Permission {
        /// Path as configured.
        path: PathBuf,
        /// Denied access.
        detail: String,
    },
    /// The change log cannot be added.
    #[error(
        "{path} cannot be written to, which `watch = \"triggers\"` needs (file and directory): \
         {detail}; give write access or use `watch = \"none\"`"
    )]
    ReadOnly {
        /// Path as configured.
        path: PathBuf,
        /// Denied access.
        detail: String,
    },
    /// SQLite shares the write-ahead log through two files beside the database.
    #[error(
        "the `-wal` and `-shm` files of {path} can neither be used nor created: {detail}; \
         give this user write access to {folder} and read access to these files, \
         or keep a process connected that creates them"
    )]
    NoWalFiles {
        /// Path as configured.
        path: PathBuf,
        /// Folder of the files.
        folder: PathBuf,
        /// Denied access.
        detail: String,
    },
    /// Another process holds a lock for too long.
    #[error(
        "{path} is locked by another process: {detail}; \
         end its transaction or its exclusive locking mode"
    )]
    Locked {
        /// Path as configured.
        path: PathBuf,
        /// Message of the driver.
        detail: String,
    },
    /// Triggers must deliver within milliseconds without blocking writers; only WAL allows that.
    #[error(
        "{path} uses journal mode `{mode}`, and `watch = \"triggers\"` needs WAL; \
         run `PRAGMA journal_mode=WAL;` on it once"
    )]
    NotWal {
        /// Path as configured.
        path: PathBuf,
        /// Journal mode found.
        mode: String,
    },
    /// A write-ahead log of a replaced database; reading through it would mix the two databases.
    #[error(
        "{wal} still belongs to the database that was replaced; \
         remove it and the `-shm` file beside it, or move a database together with its files"
    )]
    StaleWal {
        /// Path of the write-ahead log.
        wal: PathBuf,
    },
    /// The log has the layout of a newer version.
    #[error(
        "the change log in {path} has format {found}, this version knows {known}; \
         use the newer version or run `hotrow uninstall-triggers`"
    )]
    NewerFormat {
        /// Path as configured.
        path: PathBuf,
        /// Format found.
        found: i64,
        /// Highest format known to this version.
        known: i64,
    },
    /// The configuration names a table that does not exist.
    #[error("collection `{collection}`: there is no table `{table}`; the database has {have}")]
    NoTable {
        /// Name of the collection.
        collection: String,
        /// Table named.
        table: String,
        /// Existing tables.
        have: String,
    },
    /// The table is a view, a virtual table, or an internal table of SQLite or Hotrow.
    #[error(
        "collection `{collection}`: `{table}` is a {kind}; \
         only ordinary tables can be served, because {why}"
    )]
    NotATable {
        /// Name of the collection.
        collection: String,
        /// Table named.
        table: String,
        /// Its kind.
        kind: String,
        /// Missing property.
        why: &'static str,
    },
    /// A row of the view may depend on more than one row of one table.
    #[error(
        "collection `{collection}`: the view `{view}` {detail}; serve the table behind it, or a \
         view whose rows depend on one row of one table each"
    )]
    View {
        /// Name of the collection.
        collection: String,
        /// View named.
        view: String,
        /// Rule and value.
        detail: String,
    },
    /// The configuration names a column that does not exist.
    #[error(
        "collection `{collection}`: table `{table}` has no column `{column}` (setting \
         `{setting}`); it has {have}"
    )]
    NoColumn {
        /// Name of the collection.
        collection: String,
        /// Table named.
        table: String,
        /// Column named.
        column: String,
        /// `key`, `columns` or `exclude`.
        setting: &'static str,
        /// Existing columns.
        have: String,
    },
    /// No column is left after `columns` and `exclude`.
    #[error(
        "collection `{collection}`: `columns` and `exclude` leave no column of `{table}` to serve"
    )]
    NothingServed {
        /// Name of the collection.
        collection: String,
        /// Table named.
        table: String,
    },
    /// One id could name several rows.
    #[error(
        "collection `{collection}`: ({key}) is not unique in `{table}`; \
         the key needs a PRIMARY KEY or a UNIQUE index without WHERE on exactly these columns; \
         unique there: {have}"
    )]
    KeyNotUnique {
        /// Name of the collection.
        collection: String,
        /// Table named.
        table: String,
        /// Key named.
        key: String,
        /// Existing unique keys.
        have: String,
    },
    /// A collection without `key`, whose table has no evident one.
    #[error("{0}")]
    DefaultKey(String),
    /// The number of key columns or key types is wrong.
    #[error("collection `{collection}`: {detail}")]
    KeyShape {
        /// Name of the collection.
        collection: String,
        /// Rule and value.
        detail: String,
    },
    /// Ids of this type cannot be compared as SQLite does.
    #[error("collection `{collection}`: key column `{column}` is declared `{declared}`: {rule}")]
    KeyType {
        /// Name of the collection.
        collection: String,
        /// Key column.
        column: String,
        /// Its declared type.
        declared: String,
        /// Rule and remedy.
        rule: &'static str,
    },
    /// Only SQLite's own collations are supported.
    #[error(
        "collection `{collection}`: key column `{column}` is compared with the collation \
         `{collation}`, which only the program that defines it can do; use BINARY, NOCASE or RTRIM"
    )]
    CustomCollation {
        /// Name of the collection.
        collection: String,
        /// Key column.
        column: String,
        /// Name of the collation.
        collation: String,
    },
    /// A REPLACE could evict rows that no trigger can name.
    #[error(
        "collection `{collection}`: the unique index `{index}` on `{table}` {why}, so a REPLACE \
         could remove rows unnoticed; drop that index or use `watch = \"none\"`"
    )]
    UnwatchableIndex {
        /// Name of the collection.
        collection: String,
        /// Table named.
        table: String,
        /// Name of the index.
        index: String,
        /// Problem of the index.
        why: &'static str,
    },
    /// A table cannot be embedded in the records of a collection.
    #[error("collection `{collection}`: {detail}")]
    Embedded {
        /// Path of the setting, or the collection.
        collection: String,
        /// Rule, value and remedy.
        detail: String,
    },
    /// Writes to the table would fail with the triggers, so they were not added.
    #[error(
        "collection `{collection}`: the triggers for `{table}` do not work there: {detail}; \
         use `watch = \"none\"`"
    )]
    Triggers {
        /// Name of the collection.
        collection: String,
        /// Table named.
        table: String,
        /// Message of the driver.
        detail: String,
    },
    /// A key type differs from the one at the start, by which ids in flight were parsed.
    #[error(
        "collection `{collection}`: the key of `{table}` changed its type or collation; \
         restart to serve it by the new one"
    )]
    KeyChanged {
        /// Name of the collection.
        collection: String,
        /// Table named.
        table: String,
    },
    /// A thread could not be started.
    #[error("cannot start a reader thread: {detail}")]
    Thread {
        /// Message of the system.
        detail: String,
    },
    /// Any other error of the driver.
    #[error("cannot work with the database {path}: {detail}")]
    Other {
        /// Path as configured.
        path: PathBuf,
        /// Message of the driver.
        detail: String,
    },
}

/// Effect of a driver's error on its statement and connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Another connection holds a lock; the same call may work later.
    Busy,
    /// The query's own time limit ended it.
    Interrupted,
    /// The file is damaged, missing or out of reach; the connection is of no more use.
    Unusable,
    /// The statement does not fit the schema, or another problem of this one statement. Of a
    /// statement that still fits, a row is the cause.
    Statement,
    /// A part of the file is damaged: of a statement that still fits, the part that has the row.
    Damage,
}

pub(crate) fn fault(e: &rusqlite::Error) -> Fault {
    match e.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Fault::Busy,
        Some(ErrorCode::OperationInterrupted) => Fault::Interrupted,
        Some(
            ErrorCode::NotADatabase
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
        Some(ErrorCode::DatabaseCorrupt) => Fault::Damage,
        _ => Fault::Statement,
    }
}

impl hotrow_source::preflight::OpenFailure for OpenError {
    fn is_unreachable(&self) -> bool {
        matches!(self, Self::Missing { .. } | Self::Locked { .. })
    }
}

impl OpenError {
    pub(crate) fn default_key(finding: &Finding) -> Self {
        Self::DefaultKey(format!("{}; {}", finding.problem, finding.remedy))
    }

    /// Converts an error that the driver returned while a database was opened or inspected.
    pub(crate) fn from_driver(path: &std::path::Path, e: &rusqlite::Error) -> Self {
        let path = path.to_path_buf();
        let detail = e.to_string();
        match e.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
                Self::NotADatabase { path, detail }
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                Self::Locked { path, detail }
            }
            Some(ErrorCode::ReadOnly) => Self::ReadOnly { path, detail },
            Some(ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied) => {
                Self::Permission { path, detail }
            }
            _ => Self::Other { path, detail },
        }
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    #[test]
    fn each_code_of_the_library_has_its_consequence() {
        let table: [(Fault, &[i32]); 5] = [
            (Fault::Busy, &[ffi::SQLITE_BUSY, ffi::SQLITE_LOCKED, ffi::SQLITE_BUSY_SNAPSHOT]),
            (Fault::Interrupted, &[ffi::SQLITE_INTERRUPT]),
            (Fault::Damage, &[ffi::SQLITE_CORRUPT, ffi::SQLITE_CORRUPT_INDEX]),
            (
                Fault::Unusable,
                &[
                    ffi::SQLITE_NOTADB,
                    ffi::SQLITE_IOERR_SHORT_READ,
                    ffi::SQLITE_CANTOPEN,
                    ffi::SQLITE_PERM,
                    ffi::SQLITE_AUTH,
                    ffi::SQLITE_READONLY,
                    ffi::SQLITE_FULL,
                    ffi::SQLITE_NOMEM,
                    ffi::SQLITE_PROTOCOL,
                    ffi::SQLITE_INTERNAL,
                    ffi::SQLITE_SCHEMA,
                ],
            ),
            // An overflow in an expression or a missing table, a value of another type, one that is
            // too large.
            (Fault::Statement, &[ffi::SQLITE_ERROR, ffi::SQLITE_MISMATCH, ffi::SQLITE_TOOBIG]),
        ];
        for (expected, codes) in table {
            for code in codes {
                let error = rusqlite::Error::SqliteFailure(ffi::Error::new(*code), None);
                assert_eq!(fault(&error), expected, "{code}");
            }
        }
    }
}
