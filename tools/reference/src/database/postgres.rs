//! Rows on a PostgreSQL server: tokio-postgres, pooled by deadpool.

use std::collections::BTreeMap;
use std::future::Future;
use std::num::NonZeroUsize;

use deadpool_postgres::{
    Client, Hook, HookError, Manager, ManagerConfig, PoolError, RecyclingMethod, Runtime,
};
use sea_query::{Value, Values};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Config, NoTls};

use super::{CONNECTION_TIMEOUT, DatabaseError, ROW_TIMEOUT, Row};
use super::{ROWS, rows};

const SELECT: &str = "SELECT id, random_number FROM reference_rows WHERE id = $1";
const COUNT: &str = "SELECT count(*) FROM reference_rows WHERE id BETWEEN 1 AND $1";

/// A parameter of the driver.
type Parameter = Box<dyn ToSql + Sync + Send>;

/// A pool of connections, each used by one request at a time.
#[derive(Clone, Debug)]
pub(super) struct Pool(deadpool_postgres::Pool);

impl Pool {
    pub(super) async fn open(
        config: &Config,
        connections: NonZeroUsize,
        keepalive: bool,
    ) -> Result<Self, DatabaseError> {
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let pool = deadpool_postgres::Pool::builder(Manager::from_config(
            config.clone(),
            NoTls,
            recycling,
        ))
        .max_size(connections.get())
        .runtime(Runtime::Tokio1)
        .wait_timeout(Some(CONNECTION_TIMEOUT))
        .create_timeout(Some(CONNECTION_TIMEOUT))
        .pre_recycle(Hook::sync_fn(move |_, _| {
            // A refused connection is closed, and a new one takes its place.
            if keepalive { Ok(()) } else { Err(HookError::message("connections are not kept")) }
        }))
        .build()?;
        let pool = Self(pool);
        // Most likely the table is missing; the message contains the server's error.
        let table_missing =
            |error: tokio_postgres::Error| DatabaseError::TableMissing(super::with_causes(&error));
        let count = in_time(async {
            let row =
                pool.client().await?.query_one(COUNT, &[&ROWS]).await.map_err(table_missing)?;
            row.try_get::<_, i64>(0).map_err(table_missing)
        });
        match count.await? {
            count if count == i64::from(ROWS) => Ok(pool),
            count => Err(DatabaseError::TableMissing(format!("there are {count} of them"))),
        }
    }

    /// Returns the row by the fixed query.
    pub(super) async fn row(&self, id: i32) -> Result<Row, DatabaseError> {
        in_time(async {
            let client = self.client().await?;
            let statement = client.prepare_cached(SELECT).await?;
            let row =
                client.query_opt(&statement, &[&id]).await?.ok_or(DatabaseError::NoRow(id))?;
            Ok(Row { id: row.try_get(0)?, random_number: row.try_get(1)? })
        })
        .await
    }

    /// Returns the row by a built query.
    pub(super) async fn built_row(&self, sql: &str, values: Values) -> Result<Row, DatabaseError> {
        in_time(async {
            let parameters = bound(values)?;
            let client = self.client().await?;
            let statement = client.prepare_cached(sql).await?;
            let row = client.query_one(&statement, &borrowed(&parameters)).await?;
            Ok(Row { id: row.try_get(0)?, random_number: row.try_get(1)? })
        })
        .await
    }

    /// Returns all rows of any query, by column name.
    pub(super) async fn all(
        &self,
        sql: &str,
        values: Values,
    ) -> Result<Vec<BTreeMap<String, Value>>, DatabaseError> {
        in_time(async {
            let parameters = bound(values)?;
            let client = self.client().await?;
            let statement = client.prepare_cached(sql).await?;
            let rows = client.query(&statement, &borrowed(&parameters)).await?;
            rows.iter().map(named).collect()
        })
        .await
    }

    async fn client(&self) -> Result<Client, DatabaseError> {
        self.0.get().await.map_err(|error| match error {
            PoolError::Timeout(_) => DatabaseError::PoolTimeout,
            other => other.into(),
        })
    }
}

async fn in_time<T>(
    work: impl Future<Output = Result<T, DatabaseError>>,
) -> Result<T, DatabaseError> {
    tokio::time::timeout(ROW_TIMEOUT, work).await.unwrap_or(Err(DatabaseError::Timeout))
}

fn named(row: &tokio_postgres::Row) -> Result<BTreeMap<String, Value>, DatabaseError> {
    let mut named = BTreeMap::new();
    for (at, column) in row.columns().iter().enumerate() {
        let value = match *column.type_() {
            Type::INT4 => Value::Int(row.try_get(at)?),
            Type::INT8 => Value::BigInt(row.try_get(at)?),
            ref other => {
                return Err(DatabaseError::UnsupportedType(format!(
                    "the column {} of type {other}",
                    column.name()
                )));
            }
        };
        named.insert(column.name().to_owned(), value);
    }
    Ok(named)
}

/// Converts parameters for the driver.
fn bound(values: Values) -> Result<Vec<Parameter>, DatabaseError> {
    let unsupported =
        |value: &Value| DatabaseError::UnsupportedType(format!("the parameter {value:?}"));
    let bind = |value| match value {
        Value::Int(n) => Ok(Box::new(n) as Parameter),
        Value::BigInt(n) => Ok(Box::new(n) as Parameter),
        Value::BigUnsigned(Some(n)) => {
            i64::try_from(n).map(|n| Box::new(n) as Parameter).map_err(|_| unsupported(&value))
        }
        other => Err(unsupported(&other)),
    };
    values.0.into_iter().map(bind).collect()
}

fn borrowed(parameters: &[Parameter]) -> Vec<&(dyn ToSql + Sync)> {
    parameters.iter().map(|parameter| parameter.as_ref() as &(dyn ToSql + Sync)).collect()
}

/// Creates and fills the table, or changes nothing.
pub(super) async fn make(config: &Config) -> Result<(), DatabaseError> {
    let (mut client, connection) = in_time(async { Ok(config.connect(NoTls).await?) }).await?;
    // Its errors are returned by the queries.
    tokio::spawn(async move { _ = connection.await });
    let transaction = client.transaction().await?;
    let table = "DROP TABLE IF EXISTS reference_rows;
                 CREATE TABLE reference_rows
                     (id integer PRIMARY KEY, random_number integer NOT NULL);";
    transaction.batch_execute(table).await?;
    let (ids, numbers): (Vec<i32>, Vec<i32>) =
        rows().map(|row| (row.id, row.random_number)).unzip();
    let insert = "INSERT INTO reference_rows SELECT * FROM unnest($1::int4[], $2::int4[])";
    transaction.execute(insert, &[&ids, &numbers]).await?;
    transaction.commit().await?;
    client.batch_execute("ANALYZE reference_rows").await?;
    Ok(())
}
