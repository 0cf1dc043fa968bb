//! Rows in a SQLite file: a pool of read-only connections.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OpenFlags, Params, params_from_iter, types};
use sea_query::{Value, Values};
use tokio::sync::Semaphore;

use super::{CONNECTION_TIMEOUT, DatabaseError, Row};
use super::{ROWS, rows};
use crate::Model;

const SELECT: &str = "SELECT id, random_number FROM reference_rows WHERE id = ?1";
const COUNT: &str = "SELECT count(*) FROM reference_rows WHERE id BETWEEN 1 AND ?1";

/// A pool of connections, each used by one request at a time.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    free: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
    model: Model,
    /// The file, if connections are not kept.
    reopened: Option<Arc<Path>>,
}

impl Pool {
    pub(super) fn open(
        path: &Path,
        connections: NonZeroUsize,
        keepalive: bool,
        model: Model,
    ) -> Result<Self, DatabaseError> {
        let table_missing =
            |e: rusqlite::Error| DatabaseError::TableMissing(format!("{}: {e}", path.display()));
        let mut free = Vec::with_capacity(connections.get());
        for _ in 0..connections.get() {
            free.push(connect(path).map_err(table_missing)?);
        }
        if let Some(connection) = free.first() {
            let count: i32 =
                connection.query_row(COUNT, [ROWS], |row| row.get(0)).map_err(table_missing)?;
            if count != ROWS {
                return Err(DatabaseError::TableMissing(format!(
                    "{} has {count} of them",
                    path.display()
                )));
            }
        }
        let permits = Arc::new(Semaphore::new(connections.get()));
        let reopened = (!keepalive).then(|| Arc::from(path));
        Ok(Self { free: Arc::new(Mutex::new(free)), permits, model, reopened })
    }

    /// Returns the row by the fixed query.
    pub(super) async fn row(&self, id: i32) -> Result<Row, DatabaseError> {
        self.with(move |connection| Ok(one_row(connection, SELECT, [id])?)).await
    }

    /// Returns the row by a built query.
    pub(super) async fn built_row(
        &self,
        sql: String,
        values: Values,
    ) -> Result<Row, DatabaseError> {
        let values = bound(values)?;
        self.with(move |connection| Ok(one_row(connection, &sql, params_from_iter(values))?)).await
    }

    /// Returns all rows of any query, by column name.
    pub(super) async fn all(
        &self,
        sql: String,
        values: Values,
    ) -> Result<Vec<BTreeMap<String, Value>>, DatabaseError> {
        let values = bound(values)?;
        self.with(move |connection| named_rows(connection, &sql, values)).await
    }

    /// Uses a connection on a thread that may wait for the disk: one for blocking work, or the
    /// current worker.
    async fn with<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, DatabaseError> + Send + 'static,
    ) -> Result<T, DatabaseError> {
        let permit =
            tokio::time::timeout(CONNECTION_TIMEOUT, self.permits.clone().acquire_owned()).await;
        let permit = permit.ok().and_then(Result::ok).ok_or(DatabaseError::PoolTimeout)?;
        let (free, reopened) = (self.free.clone(), self.reopened.clone());
        let work = move || {
            let lock = || free.lock().unwrap_or_else(PoisonError::into_inner);
            let mut connection = lock().pop().ok_or(DatabaseError::PoolTimeout)?;
            if let Some(path) = reopened {
                // On an error the former connection stays in the pool.
                match connect(&path) {
                    Ok(new) => connection = new,
                    Err(error) => {
                        lock().push(connection);
                        return Err(error.into());
                    }
                }
            }
            let outcome = query(&connection);
            lock().push(connection);
            drop(permit);
            outcome
        };
        match self.model {
            Model::Async => tokio::task::spawn_blocking(work).await?,
            Model::Blocking => work(),
        }
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(CONNECTION_TIMEOUT)?;
    Ok(connection)
}

fn one_row(connection: &Connection, sql: &str, parameters: impl Params) -> rusqlite::Result<Row> {
    let read = |row: &rusqlite::Row<'_>| Ok(Row { id: row.get(0)?, random_number: row.get(1)? });
    connection.prepare_cached(sql)?.query_row(parameters, read)
}

fn named_rows(
    connection: &Connection,
    sql: &str,
    values: Vec<types::Value>,
) -> Result<Vec<BTreeMap<String, Value>>, DatabaseError> {
    let mut statement = connection.prepare_cached(sql)?;
    let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let mut rows = statement.query(params_from_iter(values))?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        let mut named = BTreeMap::new();
        for (at, name) in names.iter().enumerate() {
            // The table has no others.
            named.insert(name.clone(), Value::Int(row.get(at)?));
        }
        all.push(named);
    }
    Ok(all)
}

/// Converts parameters for the driver.
fn bound(values: Values) -> Result<Vec<types::Value>, DatabaseError> {
    let bind = |value| match value {
        Value::Int(n) => Ok(n.into()),
        Value::BigInt(n) => Ok(n.into()),
        Value::BigUnsigned(Some(n)) => {
            i64::try_from(n).map(Into::into).map_err(|_| unsupported(&value))
        }
        other => Err(unsupported(&other)),
    };
    values.0.into_iter().map(bind).collect()
}

fn unsupported(value: &Value) -> DatabaseError {
    DatabaseError::UnsupportedType(format!("the parameter {value:?}"))
}

/// Creates and fills the table, or changes nothing.
pub(super) fn make(path: &Path) -> rusqlite::Result<()> {
    let mut connection = Connection::open(path)?;
    connection.busy_timeout(CONNECTION_TIMEOUT)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    let transaction = connection.transaction()?;
    transaction.execute_batch(
        "DROP TABLE IF EXISTS reference_rows;
         CREATE TABLE reference_rows (id INTEGER PRIMARY KEY, random_number INTEGER NOT NULL);",
    )?;
    let mut insert =
        transaction.prepare("INSERT INTO reference_rows (id, random_number) VALUES (?1, ?2)")?;
    for row in rows() {
        insert.execute([row.id, row.random_number])?;
    }
    drop(insert);
    transaction.commit()
}
