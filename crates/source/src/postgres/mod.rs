//! PostgreSQL.
//!
//! Reads bring rows together with the snapshot they were seen in and the log's end, so that an answer always knows what
//! it reflects. docs/postgres.md tells what the database must allow and what it costs.
//!
//! Reading order: [`config`], `target`, `tls`, `stream` (reaching a server), `connect` and `server` (a session, and with
//! whom), `inspect` (what the table is), `plan`, `pool`, `reader` and `json` (a read), `shared` (what the feed tells the
//! readers).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hotrow_cache::key::{CollectionId, Key, KeySchema};

use self::background::Background;
use self::config::{CollectionSpec, Config};
use self::connect::Settings;
use self::inspect::Table;
use self::pool::Pool;
use self::shared::Shared;
use self::target::Target;
use crate::{BoxFuture, ReadError, ReadSet, Source};

pub use self::error::{Finding, Findings, OpenError};
pub use self::stream::ConnectError;
pub use self::target::TargetError;
pub use self::tls::TlsSetupError;

mod background;
pub mod config;
mod connect;
mod error;
mod inspect;
mod json;
mod plan;
mod pool;
mod reader;
mod server;
mod shared;
mod stream;
mod target;
mod tls;

/// How long the checks at the start may take once a server is reached.
const CHECKS_TIMEOUT: Duration = Duration::from_secs(30);

/// One database.
#[derive(Debug)]
pub struct Postgres {
    /// Reads records.
    pub source: Arc<PostgresSource>,
}

/// Reads records through a pool of connections.
pub struct PostgresSource {
    shared: Arc<Shared>,
    pool: Arc<Pool>,
    schemas: Arc<[KeySchema]>,
    specs: Vec<CollectionSpec>,
    read_timeout: Duration,
    hooks: Hooks,
    /// Drives the connections.
    _background: Background,
}

impl fmt::Debug for PostgresSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresSource")
            .field("schemas", &self.schemas)
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}

/// What a [`Hooks`] closure gets: the collection and the keys of a query.
pub type Hook = Arc<dyn Fn(CollectionId, &[Key]) + Send + Sync>;

/// Places where tests can hold a query, to force an order of events. By default nothing happens there. A hook that waits
/// blocks the task that reads.
#[derive(Clone, Default)]
pub struct Hooks {
    /// Called before the query is sent.
    pub before_read: Option<Hook>,
    /// Called between the database's answer and its delivery.
    pub after_read: Option<Hook>,
}

impl Hooks {
    fn before_read(&self, collection: CollectionId, keys: &[Key]) {
        if let Some(hook) = &self.before_read {
            hook(collection, keys);
        }
    }

    fn after_read(&self, collection: CollectionId, keys: &[Key]) {
        if let Some(hook) = &self.after_read {
            hook(collection, keys);
        }
    }
}

/// Reaches the database and checks everything that is needed. Blocks; it may take the connection time-out for each host
/// and half a minute more.
///
/// # Errors
/// Everything that is wrong, in one [`OpenError`].
pub fn open(config: Config, hooks: Hooks) -> Result<Postgres, OpenError> {
    let target = |setting, url: &str| Target::parse(url).map_err(|error| OpenError::Target { setting, error });
    let readers = target("url", &config.url)?;
    let background = Background::start("postgres")?;
    let settings = Settings { statement_timeout: config.read_timeout, connect_timeout: config.connect_timeout };
    let specs = config.collections.clone();
    let (session, tables) = {
        let target = readers.clone();
        background.run(async move {
            let session = connect::primary(&target, settings, None).await.map_err(OpenError::Unreachable)?;
            let tables = tokio::time::timeout(CHECKS_TIMEOUT, check(&session, &specs)).await;
            let tables = tables.map_err(|_| OpenError::Failed { detail: "they took too long".into() })??;
            Ok((session, tables))
        })?
    };
    let schemas: Arc<[KeySchema]> = tables.iter().map(Table::key_schema).collect();
    let shared = Arc::new(Shared::new(Arc::clone(&schemas)));
    shared.publish(session.identity, &tables.into_iter().map(Ok).collect::<Vec<_>>());
    let runtime = background.handle();
    let pool = Arc::new(Pool::new(readers, settings, Arc::clone(&shared), runtime, config.reads_in_flight));
    pool.adopt(session);
    let source = PostgresSource {
        shared,
        pool,
        schemas,
        specs: config.collections,
        read_timeout: config.read_timeout,
        hooks,
        _background: background,
    };
    Ok(Postgres { source: Arc::new(source) })
}

/// Looks at everything before it complains.
async fn check(session: &connect::Session, specs: &[CollectionSpec]) -> Result<Vec<Table>, OpenError> {
    let failed = |e: tokio_postgres::Error| OpenError::Failed { detail: connect::full_text(&e) };
    let mut findings = Vec::new();
    let looked_at = inspect::tables(&session.client, specs).await.map_err(failed)?;
    let tables: Vec<Table> = looked_at.into_iter().filter_map(|t| t.map_err(|f| findings.extend(f)).ok()).collect();
    if findings.is_empty() { Ok(tables) } else { Err(OpenError::Findings(Findings(findings))) }
}

impl Source for PostgresSource {
    fn read(&self, collection: CollectionId, keys: Vec<Key>) -> BoxFuture<'_, Result<ReadSet, ReadError>> {
        Box::pin(async move { self.read_keys(collection, &keys).await })
    }

    fn schemas(&self) -> &[KeySchema] {
        &self.schemas
    }

    fn queries_total(&self) -> u64 {
        self.shared.queries.load(Ordering::Relaxed)
    }

    fn health(&self) -> Result<(), String> {
        self.shared.plan().map_err(|why| why.to_string())?;
        self.pool.outage().map_or(Ok(()), |why| Err(why.to_string()))
    }

    fn watch(&self) -> &'static str {
        "replication"
    }
}

#[cfg(test)]
mod tests;
