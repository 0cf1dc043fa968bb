//! `/db`: one row of 100,000 by its id, in three ways over the same connections: the driver alone, a query builder, an ORM.
//!
//! Reading order: here, `sqlite`, `postgres` (connections, and how each binds and reads), `orm`, `rows` (what the table holds).

mod orm;
mod postgres;
mod rows;
mod sqlite;

use std::error::Error;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use sea_query::{Expr, ExprTrait as _, PostgresQueryBuilder, Query, SelectStatement, SqliteQueryBuilder};
use serde::{Deserialize, Serialize};

use crate::Model;

pub use rows::ROWS;

/// The table, made anew by [`make_database`].
const TABLE: &str = "reference_rows";
/// Its columns.
const COLUMNS: [&str; 2] = ["id", "random_number"];
/// How long a request waits for a free connection.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it waits for the row, that included.
const ROW_PATIENCE: Duration = Duration::from_secs(10);

/// Where the rows are.
#[derive(Clone, Debug)]
pub enum DatabaseUrl {
    /// A file, as `sqlite:PATH`.
    Sqlite(PathBuf),
    /// A server, as `postgres://user@host/database`; without TLS.
    Postgres(Box<tokio_postgres::Config>),
}

/// One row, as it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Row {
    pub(crate) id: i32,
    pub(crate) random_number: i32,
}

/// How a row is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Way {
    /// The text of the query is in the program; the driver prepares it once for each connection.
    Raw,
    /// The query is put together by sea-query for each request.
    Builder,
    /// SeaORM puts the query together and makes a model of the row.
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

/// Why there is no row.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The table is not what this program makes.
    #[error("the database has no table {TABLE} with the rows 1 to {ROWS}: {0}; make it with --make-database")]
    Unmade(String),
    /// No connection was free in time.
    #[error("no connection was free within {} s", PATIENCE.as_secs())]
    Busy,
    /// The answer did not come in time.
    #[error("the database did not answer within {} s", ROW_PATIENCE.as_secs())]
    Slow,
    /// SQLite said no.
    #[error("SQLite: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// PostgreSQL, or the way there.
    #[error("PostgreSQL: {}", with_causes(.0))]
    Postgres(#[from] tokio_postgres::Error),
    /// The pool could not make a connection.
    #[error("PostgreSQL: {}", with_causes(.0))]
    Connection(#[from] deadpool_postgres::PoolError),
    /// The pool could not be made.
    #[error("the pool of connections: {0}")]
    Pool(#[from] deadpool_postgres::BuildError),
    /// The ORM said no.
    #[error("the ORM: {0}")]
    Orm(#[from] sea_orm::DbErr),
    /// A value of a kind that this table does not have.
    #[error("{0} is not mapped")]
    Unmapped(String),
    /// A row that the table should have.
    #[error("there is no row {0}")]
    NoRow(i32),
    /// A thread that asked did not come back.
    #[error("a query did not finish: {0}")]
    Lost(#[from] tokio::task::JoinError),
    /// A runtime for making the database.
    #[error("cannot start a runtime: {0}")]
    Runtime(std::io::Error),
}

/// Makes the table with its 100,000 rows, always the same; one that is there is replaced, all at once.
///
/// # Errors
/// What kept it from doing so.
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
    /// Opens up to `connections` connections to a database that [`make_database`] has made.
    pub(crate) async fn open(
        url: &DatabaseUrl,
        connections: NonZeroUsize,
        model: Model,
    ) -> Result<Self, DatabaseError> {
        let store = match url {
            DatabaseUrl::Sqlite(path) => Store::Sqlite(sqlite::Pool::open(path, connections, model)?),
            DatabaseUrl::Postgres(config) => Store::Postgres(postgres::Pool::open(config, connections).await?),
        };
        Ok(Self { orm: orm::connect(&store).await?, store })
    }

    /// The row with this id.
    pub(crate) async fn row(&self, way: Way, id: i32) -> Result<Row, DatabaseError> {
        match (way, &self.store) {
            (Way::Raw, Store::Sqlite(pool)) => pool.row(id).await,
            (Way::Raw, Store::Postgres(pool)) => pool.row(id).await,
            (Way::Builder, Store::Sqlite(pool)) => {
                let (sql, values) = select(id).build(SqliteQueryBuilder);
                pool.built_row(sql, values).await
            }
            (Way::Builder, Store::Postgres(pool)) => {
                let (sql, values) = select(id).build(PostgresQueryBuilder);
                pool.built_row(&sql, values).await
            }
            (Way::Orm, _) => orm::row(&self.orm, id).await,
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
            Some(("sqlite", path)) if !path.is_empty() && path != ":memory:" => Ok(Self::Sqlite(path.into())),
            Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => {
                url.parse().map(|config| Self::Postgres(Box::new(config))).map_err(|e| with_causes(&e))
            }
            _ => Err("must be sqlite:PATH or postgres://user@host/database".to_owned()),
        }
    }
}

/// An error and what it came from: drivers tell the cause only there.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_url_names_a_file_or_a_server() {
        let kind = |url: &str| url.parse::<DatabaseUrl>();
        assert!(matches!(kind("sqlite:a b.db"), Ok(DatabaseUrl::Sqlite(path)) if path == Path::new("a b.db")));
        assert!(matches!(kind("sqlite:/x.db"), Ok(DatabaseUrl::Sqlite(path)) if path == Path::new("/x.db")));
        assert!(matches!(kind("postgres://u@127.0.0.1:5432/d"), Ok(DatabaseUrl::Postgres(_))));
        assert!(matches!(kind("postgresql://u@h/d"), Ok(DatabaseUrl::Postgres(_))));
        for bad in ["", "sqlite", "sqlite:", "sqlite::memory:", "mysql://h/d", "postgres:x", "x.db"] {
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
}
