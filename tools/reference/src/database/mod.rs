//! `/db`: one row of 100,000 by its id, by three methods over the same connections: the driver
//! alone, a query builder, an ORM.
//!
//! Reading order: this file, `sqlite`, `postgres` (connections, binding and reading), `orm`, `rows`
//! (the table's contents).

mod orm;
mod postgres;
mod sqlite;

use std::error::Error;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use sea_query::{
    Expr, ExprTrait as _, PostgresQueryBuilder, Query, SelectStatement, SqliteQueryBuilder,
};
use serde::{Deserialize, Serialize};

use crate::{DatabaseConfig, Model};

/// The table, created by [`make_database`].
const TABLE: &str = "reference_rows";
/// Its columns.
const COLUMNS: [&str; 2] = ["id", "random_number"];
/// Longest wait for a free connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for the row, including the wait for a connection.
const ROW_TIMEOUT: Duration = Duration::from_secs(10);

/// The location of the rows.
#[derive(Clone, Debug)]
pub enum DatabaseUrl {
    /// A file, as `sqlite:PATH`.
    Sqlite(PathBuf),
    /// A server, as `postgres://user@host/database`; without TLS.
    Postgres(Box<tokio_postgres::Config>),
}

/// One row, as sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Row {
    pub(crate) id: i32,
    pub(crate) random_number: i32,
}

/// The query method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum QueryMethod {
    /// A fixed query text, which the driver prepares once per connection.
    Raw,
    /// sea-query builds the query for each request.
    Builder,
    /// SeaORM builds the query and a model of the row.
    Orm,
}

/// An open database.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    store: Store,
    orm: sea_orm::DatabaseConnection,
}

/// Its connections.
#[derive(Clone, Debug)]
enum Store {
    Sqlite(sqlite::Pool),
    Postgres(postgres::Pool),
}

/// Reasons for a missing row.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The table is missing or has other contents.
    #[error(
        "the database has no table {TABLE} with the rows 1 to {ROWS}: {0}; make it with \
         --make-database"
    )]
    TableMissing(String),
    /// No connection was free in time.
    #[error("no connection was free within {} s", CONNECTION_TIMEOUT.as_secs())]
    PoolTimeout,
    /// The response was late.
    #[error("the database did not answer within {} s", ROW_TIMEOUT.as_secs())]
    Timeout,
    /// SQLite reported an error.
    #[error("SQLite: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// PostgreSQL, or the connection to it, reported an error.
    #[error("PostgreSQL: {}", with_causes(.0))]
    Postgres(#[from] tokio_postgres::Error),
    /// The pool could not open a connection.
    #[error("PostgreSQL: {}", with_causes(.0))]
    Connection(#[from] deadpool_postgres::PoolError),
    /// The pool could not be created.
    #[error("the pool of connections: {0}")]
    Pool(#[from] deadpool_postgres::BuildError),
    /// The ORM reported an error.
    #[error("the ORM: {0}")]
    Orm(#[from] sea_orm::DbErr),
    /// A value of a type that this table lacks.
    #[error("{0} is not mapped")]
    UnsupportedType(String),
    /// A row that the table should contain is missing.
    #[error("there is no row {0}")]
    NoRow(i32),
    /// The querying thread did not return.
    #[error("a query did not finish: {0}")]
    Lost(#[from] tokio::task::JoinError),
    /// The runtime for creating the database could not start.
    #[error("cannot start a runtime: {0}")]
    Runtime(std::io::Error),
}

/// Creates or replaces the table with its 100,000 fixed rows, in one transaction.
///
/// # Errors
/// Returns the reason for a failure.
pub fn make_database(url: &DatabaseUrl) -> Result<(), DatabaseError> {
    match url {
        DatabaseUrl::Sqlite(path) => Ok(sqlite::make(path)?),
        DatabaseUrl::Postgres(config) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map_err(DatabaseError::Runtime)?.block_on(postgres::make(config))
        }
    }
}

impl Database {
    /// Opens a database created by [`make_database`], with up to the configured connections.
    pub(crate) async fn open(config: &DatabaseConfig, model: Model) -> Result<Self, DatabaseError> {
        let DatabaseConfig { url, connections, keepalive } = config;
        let store = match url {
            DatabaseUrl::Sqlite(path) => {
                Store::Sqlite(sqlite::Pool::open(path, *connections, *keepalive, model)?)
            }
            DatabaseUrl::Postgres(config) => {
                Store::Postgres(postgres::Pool::open(config, *connections, *keepalive).await?)
            }
        };
        Ok(Self { orm: orm::connect(&store).await?, store })
    }

    /// Returns the row with this id.
    pub(crate) async fn row(&self, method: QueryMethod, id: i32) -> Result<Row, DatabaseError> {
        match (method, &self.store) {
            (QueryMethod::Raw, Store::Sqlite(pool)) => pool.row(id).await,
            (QueryMethod::Raw, Store::Postgres(pool)) => pool.row(id).await,
            (QueryMethod::Builder, Store::Sqlite(pool)) => {
                let (sql, values) = select(id).build(SqliteQueryBuilder);
                pool.built_row(sql, values).await
            }
            (QueryMethod::Builder, Store::Postgres(pool)) => {
                let (sql, values) = select(id).build(PostgresQueryBuilder);
                pool.built_row(&sql, values).await
            }
            (QueryMethod::Orm, _) => orm::row(&self.orm, id).await,
        }
    }
}

fn select(id: i32) -> SelectStatement {
    Query::select().columns(COLUMNS).from(TABLE).and_where(Expr::col("id").eq(id)).take()
}

impl FromStr for DatabaseUrl {
    type Err = String;

    fn from_str(url: &str) -> Result<Self, String> {
        match url.split_once(':') {
            Some(("sqlite", path)) if !path.is_empty() && path != ":memory:" => {
                Ok(Self::Sqlite(path.into()))
            }
            Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => url
                .parse()
                .map(|config| Self::Postgres(Box::new(config)))
                .map_err(|e| with_causes(&e)),
            _ => Err("must be sqlite:PATH or postgres://user@host/database".to_owned()),
        }
    }
}

/// Formats an error with its causes, which drivers report only there.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

/// Number of rows; their ids are 1 to this.
pub const ROWS: i32 = 100_000;
/// Largest number in a row; the smallest is 1.
const NUMBER_MAX: u64 = 10_000;

/// Returns all rows, the same each time.
fn rows() -> impl Iterator<Item = Row> {
    (1..=ROWS).map(|id| Row { id, random_number: number(id.unsigned_abs()) })
}

/// Returns a pseudorandom number: SplitMix64 (Steele, Lea and Flood, 2014) of the id.
fn number(id: u32) -> i32 {
    let mut z = u64::from(id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    i32::try_from(z % NUMBER_MAX + 1).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_url_names_a_file_or_a_server() {
        let kind = |url: &str| url.parse::<DatabaseUrl>();
        assert!(matches!(
            kind("sqlite:a b.db"),
            Ok(DatabaseUrl::Sqlite(path)) if path == Path::new("a b.db")
        ));
        assert!(matches!(
            kind("sqlite:/x.db"),
            Ok(DatabaseUrl::Sqlite(path)) if path == Path::new("/x.db")
        ));
        assert!(matches!(kind("postgres://u@127.0.0.1:5432/d"), Ok(DatabaseUrl::Postgres(_))));
        assert!(matches!(kind("postgresql://u@h/d"), Ok(DatabaseUrl::Postgres(_))));
        for bad in ["", "sqlite", "sqlite:", "sqlite::memory:", "mysql://h/d", "postgres:x", "x.db"]
        {
            assert!(kind(bad).expect_err(bad).contains("sqlite:PATH"), "{bad}");
        }
        assert!(kind("postgres://u@h:port/d").is_err());
    }

    #[test]
    fn the_builder_asks_for_one_row() {
        let (sql, values) = select(7).build(SqliteQueryBuilder);
        assert_eq!(sql, r#"SELECT "id", "random_number" FROM "reference_rows" WHERE "id" = ?"#);
        assert_eq!(values.0, [sea_query::Value::Int(Some(7))]);
        let (sql, _) = select(7).build(PostgresQueryBuilder);
        assert!(sql.ends_with(r#"WHERE "id" = $1"#), "{sql}");
    }

    #[test]
    fn numbers_are_spread_evenly() {
        let all: Vec<Row> = rows().collect();
        assert_eq!((all.len(), all[0].id, all[99_999].id), (100_000, 1, ROWS));
        assert!(all.iter().all(|row| (1..=10_000).contains(&row.random_number)));
        let mean = all.iter().map(|row| f64::from(row.random_number)).sum::<f64>() / 100_000.0;
        assert!((mean - 5000.5).abs() < 50.0, "{mean}");
        assert!(
            all.windows(2).filter(|pair| pair[0].random_number < pair[1].random_number).count()
                > 49_000
        );
    }
}
