//! Databases as the checker writes and reads them: as any program does that knows nothing of Hotrow.
//!
//! Reading order: [`Writer`] (what an engine must do), [`Database`] (which engines there are), then one file per engine.

mod mongodb;
mod mysql;
mod postgres;
mod sqlite;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::row::KeyType;

/// Longest time that one statement, or one attempt to connect, may take.
pub const STATEMENT_TIME_MAX: Duration = Duration::from_secs(5);

/// The table or collection that is set aside for the checker: a key column, `version` (a 64-bit integer) and `payload`
/// (a text).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its name as the configuration has it, a schema before a dot included.
    pub name: String,
    /// The key's column.
    pub key: String,
    /// The key's type.
    pub key_type: KeyType,
}

/// What is written to one key in a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key.
    pub key: u32,
    /// The version that its new state has.
    pub version: u64,
    /// What is done. All work whether there is a row or not, so that no write depends on one whose outcome is unknown.
    pub act: Act,
}

/// What is done to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Inserts the row or updates it.
    Upsert,
    /// Takes the row away and inserts it, in the same transaction. Engines without transactions upsert.
    Replace,
    /// Takes the row away.
    Delete,
}

/// How a transaction shall end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With COMMIT.
    Commit,
    /// With ROLLBACK, after all was written.
    RollBack,
}

/// How a transaction ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// COMMIT returned.
    Committed,
    /// It certainly changed nothing.
    Undone(Fault),
    /// The answer to COMMIT was lost: it may have happened, or may happen still.
    Unknown(Fault),
}

/// Why the database did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It may work later: no connection, a lock, a time-out, a restart. Or it was asked to undo.
    #[error("{0}")]
    Passing(String),
    /// It will never work like this: a missing table or privilege, another type.
    #[error("{0}")]
    Lasting(String),
}

/// Rows by key, with their versions. Rows that are not the checker's are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// The checker's own.
    pub versions: BTreeMap<u32, u64>,
    /// Rows with another kind of key or payload.
    pub foreign: u64,
}

/// A connection of its own to a database. It connects when it is needed and again when it was lost; no call takes much
/// longer than [`STATEMENT_TIME_MAX`] per statement.
pub trait Writer: Send {
    /// Creates the table if there is none.
    ///
    /// # Errors
    /// What the database said.
    fn create(&mut self) -> Result<(), Fault>;

    /// Every row of the table.
    ///
    /// # Errors
    /// What the database said; a missing table is lasting.
    fn rows(&mut self) -> Result<Rows, Fault>;

    /// The version in the row of a key; none without a row.
    ///
    /// # Errors
    /// What the database said.
    fn version(&mut self, key: u32) -> Result<Option<u64>, Fault>;

    /// Makes the changes in one transaction, or none of them. `before_commit` is called just before COMMIT is sent.
    fn transact(&mut self, changes: &[Change], end: End, before_commit: &mut dyn FnMut()) -> Ended;

    /// After a commit: a point of the log at or after it, as positions count, where the engine can tell.
    fn position(&mut self) -> Option<u64>;

    /// Whether one transaction can change several keys.
    fn has_transactions(&mut self) -> bool {
        true
    }

    /// Whether a later write of the same key waits for one whose outcome is unknown. Where it does not, an unknown write
    /// may become visible after it.
    fn unknown_writes_hold_locks(&self) -> bool {
        true
    }
}

/// A database that can be connected to.
#[derive(Clone, PartialEq, Eq)]
pub enum Database {
    /// A file.
    Sqlite(PathBuf),
    /// The connection string of a server.
    Postgres(String),
    /// The connection string of a MySQL or MariaDB server.
    Mysql(String),
    /// The connection string of a MongoDB deployment, with the database's name in it.
    Mongodb(String),
}

impl std::fmt::Debug for Database {
    /// Connection strings may hold passwords.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.engine())
    }
}

impl Database {
    /// The database of a URL as `source.url` has it.
    ///
    /// # Errors
    /// What a URL must look like. The URL itself is not repeated: it may hold a password.
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

    /// The engine's name.
    #[must_use]
    pub fn engine(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "SQLite",
            Self::Postgres(_) => "PostgreSQL",
            Self::Mysql(_) => "MySQL or MariaDB",
            Self::Mongodb(_) => "MongoDB",
        }
    }

    /// A writer for the table. Does not connect yet.
    ///
    /// # Errors
    /// What is wrong with the connection string or the table's name.
    pub fn writer(&self, table: &Table) -> Result<Box<dyn Writer>, Fault> {
        Ok(match self {
            Self::Sqlite(path) => Box::new(sqlite::SqliteWriter::new(path.clone(), table)),
            Self::Postgres(url) => Box::new(postgres::PostgresWriter::new(url, table)?),
            Self::Mysql(url) => Box::new(mysql::MysqlWriter::new(url, table)?),
            Self::Mongodb(url) => Box::new(mongodb::MongodbWriter::new(url, table)?),
        })
    }
}

/// A name as SQL quotes it, part by part if there is a dot in it.
fn quoted(name: &str, quote: char) -> String {
    let part = |part: &str| format!("{quote}{}{quote}", part.replace(quote, &format!("{quote}{quote}")));
    name.split('.').map(part).collect::<Vec<_>>().join(".")
}

/// A runtime that runs while something is asked, in the thread that asks.
fn runtime() -> Result<tokio::runtime::Runtime, Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Fault::Lasting(format!("cannot start a runtime: {error}")))
}

fn rolled_back() -> Ended {
    Ended::Undone(Fault::Passing("rolled back, as was asked".to_owned()))
}
