//! Direct access to the database, as by any program independent of Hotrow.
//!
//! Reading order: [`Writer`] (an engine's operations), [`Database`] (the engines), `sql` (their
//! statements), then one file per engine.

mod mongodb;
mod mysql;
mod parameters;
mod postgres;
mod postgres_tls;
mod sql;
mod sqlite;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::row::KeyType;

/// Time limit of one statement or one connection attempt.
pub const STATEMENT_TIME_MAX: Duration = Duration::from_secs(5);

/// Table or collection reserved for the checker: a key column, `version` (a 64-bit integer),
/// `payload` (text) and possibly a column with a reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its name from the configuration, with a schema before a dot.
    pub name: String,
    /// The key's column.
    pub key: String,
    /// The key's type.
    pub key_type: KeyType,
    /// In a table of records the column of the alias, in one of children that of their parent.
    pub reference: Option<Reference>,
}

/// A column with a number, in the form of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The column.
    pub column: String,
    /// Its type.
    pub key_type: KeyType,
}

/// Tables of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tables {
    /// Table of the records.
    pub records: Table,
    /// Table of the rows inside them, if the collection has an embedded member.
    pub children: Option<Table>,
}

/// One of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableRole {
    /// The table of the records.
    Records,
    /// The table of the children.
    Children,
}

/// A change of one row in a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The row's table.
    pub table: TableRole,
    /// The row's key.
    pub key: u32,
    /// The row's new version.
    pub version: u64,
    /// The row's new reference; `None`: NULL, or no such column.
    pub reference: Option<u32>,
    /// Operation. All work with or without an existing row, so that no write depends on an unknown
    /// outcome.
    pub kind: ChangeKind,
}

/// Operation on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// Inserts the row or updates it.
    Upsert,
    /// Deletes and inserts the row in one transaction. Engines without transactions upsert.
    Replace,
    /// Deletes the row.
    Delete,
}

/// Requested end of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionEnd {
    /// With COMMIT.
    Commit,
    /// ROLLBACK, after all writes.
    RollBack,
}

/// Actual end of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransactionOutcome {
    /// COMMIT returned.
    Committed,
    /// It certainly changed nothing.
    RolledBack(DatabaseError),
    /// The response to COMMIT was lost: it may have happened, or may still happen.
    Unknown(DatabaseError),
}

/// Error of a database operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatabaseError {
    /// Transient: no connection, a lock, a time-out, a restart, or a requested rollback.
    #[error("{0}")]
    Transient(String),
    /// Permanent: a missing table or privilege, a wrong type.
    #[error("{0}")]
    Permanent(String),
}

/// Content of a row besides its key; the payload follows from both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredRow {
    /// Its version.
    pub version: u64,
    /// Its reference.
    pub reference: Option<u32>,
}

/// Rows by key, and a count of foreign rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// Rows of the checker.
    pub rows: BTreeMap<u32, StoredRow>,
    /// Number of rows with another kind of key or payload.
    pub foreign: u64,
}

/// A database connection. It connects on demand and reconnects after a loss; no call takes much
/// longer than [`STATEMENT_TIME_MAX`] per statement.
pub trait Writer: Send {
    /// Creates the tables that are missing.
    ///
    /// # Errors
    /// The database's error.
    fn create(&mut self) -> Result<(), DatabaseError>;

    /// Returns a key's row of a table, or every row.
    ///
    /// # Errors
    /// The database's error; a missing table is permanent.
    fn find(&mut self, table: TableRole, key: Option<u32>) -> Result<Rows, DatabaseError>;

    /// Returns every row of a table.
    ///
    /// # Errors
    /// As [`Self::find`].
    fn rows(&mut self, table: TableRole) -> Result<Rows, DatabaseError> {
        self.find(table, None)
    }

    /// Returns a key's row.
    ///
    /// # Errors
    /// As [`Self::find`].
    fn row(&mut self, table: TableRole, key: u32) -> Result<Option<StoredRow>, DatabaseError> {
        Ok(self.find(table, Some(key))?.rows.remove(&key))
    }

    /// Makes the changes in one transaction, atomically. `before_commit` is called just before
    /// COMMIT is sent.
    fn transact(
        &mut self,
        changes: &[Change],
        end: TransactionEnd,
        before_commit: &mut dyn FnMut(),
    ) -> TransactionOutcome;

    /// Returns, after a commit, a log position at or after it, if the engine has one.
    fn position(&mut self) -> Option<u64>;

    /// Returns whether one transaction can change several keys.
    fn has_transactions(&mut self) -> bool {
        true
    }

    /// Returns whether a later write of the same key waits for one of unknown outcome. If not, an
    /// unknown write may become visible after it.
    fn unknown_writes_hold_locks(&self) -> bool {
        true
    }
}

/// A database to connect to.
#[derive(Clone, PartialEq, Eq)]
pub enum Database {
    /// A SQLite file.
    Sqlite(PathBuf),
    /// Connection string of a PostgreSQL server.
    Postgres(String),
    /// Connection string of a MySQL or MariaDB server.
    Mysql(String),
    /// Connection string of a MongoDB deployment, with a database name.
    Mongodb(String),
}

impl std::fmt::Debug for Database {
    /// Omits the connection string, which may contain a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.engine())
    }
}

impl Database {
    /// Parses a URL, as in `source.url`.
    ///
    /// # Errors
    /// The expected form. The URL itself is not repeated, because it may contain a password.
    pub fn parse(url: &str) -> Result<Self, String> {
        let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
        match scheme {
            "sqlite" => {
                let rest = &url["sqlite:".len()..];
                let path = rest.strip_prefix("//").unwrap_or(rest);
                Ok(Self::Sqlite(PathBuf::from(path)))
            }
            "postgres" | "postgresql" => Ok(Self::Postgres(url.to_owned())),
            "mysql" => Ok(Self::Mysql(url.to_owned())),
            "mariadb" => Ok(Self::Mysql(format!("mysql{}", &url["mariadb".len()..]))),
            "mongodb" | "mongodb+srv" => Ok(Self::Mongodb(url.to_owned())),
            _ => Err("must begin with sqlite:, postgres:, mysql:, mariadb: or mongodb:".to_owned()),
        }
    }

    /// Returns the engine's name.
    pub fn engine(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "SQLite",
            Self::Postgres(_) => "PostgreSQL",
            Self::Mysql(_) => "MySQL or MariaDB",
            Self::Mongodb(_) => "MongoDB",
        }
    }

    /// Returns a writer for the tables, without connecting yet.
    ///
    /// # Errors
    /// A wrong connection string or table name.
    pub fn writer(&self, tables: &Tables) -> Result<Box<dyn Writer>, DatabaseError> {
        Ok(match self {
            Self::Sqlite(path) => Box::new(sqlite::SqliteWriter::new(path.clone(), tables)),
            Self::Postgres(url) => Box::new(postgres::PostgresWriter::new(url, tables)?),
            Self::Mysql(url) => Box::new(mysql::MysqlWriter::new(url, tables)?),
            // Its collections have no embedded rows.
            Self::Mongodb(url) => Box::new(mongodb::MongodbWriter::new(url, &tables.records)?),
        })
    }
}

/// Returns a runtime that runs in the calling thread.
fn runtime() -> Result<tokio::runtime::Runtime, DatabaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| DatabaseError::Permanent(format!("cannot start a runtime: {error}")))
}

fn rolled_back() -> TransactionOutcome {
    TransactionOutcome::RolledBack(DatabaseError::Transient("rolled back as requested".to_owned()))
}
