//! PostgreSQL.
//!
//! Reads bring rows together with the snapshot they were seen in and the log's end, so that an answer always knows what
//! it reflects. docs/postgres.md tells what the database must allow and what it costs.
//!
//! Reading order: [`config`], `target`, `tls`, `stream` (reaching a server), `connect` and `server` (a session, and with
//! whom), `inspect` (what the table is), `plan`, `pool`, `reader` and `json` (a read), `shared` (what the feed tells the
//! readers); then `feed`, `link` (from nothing to a slot), `session`, `delivery`, `probe` (changes), `wire` and
//! [`pgoutput`] (the protocol), `survey` with its fingerprint and `publication` (the catalogue), `checks` (at the start).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hotrow_cache::key::{CollectionId, Key, KeySchema};

use self::config::{CollectionSpec, Config};
use self::connect::Settings;
use self::inspect::Table;
use self::pool::Pool;
use self::shared::Shared;
use self::target::Target;
use self::tuning::Tuning;
use crate::background::Background;
use crate::{BoxFuture, ReadError, ReadSet, Source};

pub use self::error::{Finding, Findings, OpenError};
pub use self::feed::PostgresFeed;
pub use self::stream::ConnectError;
pub use self::target::TargetError;
pub use self::tls::TlsSetupError;
pub use crate::hooks::{Hook, Hooks};

mod checks;
pub mod config;
mod connect;
mod delivery;
mod error;
mod feed;
mod inspect;
mod json;
mod link;
pub mod pgoutput;
mod plan;
mod pool;
mod probe;
mod publication;
mod reader;
mod server;
mod session;
mod shared;
mod stream;
mod survey;
mod target;
mod tls;
mod tuning;
mod visibility;
mod wire;

/// How long the checks at the start may take once a server is reached.
const CHECKS_TIMEOUT: Duration = Duration::from_secs(30);

/// One database.
#[derive(Debug)]
pub struct Postgres {
    /// Reads records. It answers from the start, but freshness is told only while the feed runs.
    pub source: Arc<PostgresSource>,
    /// Delivers changes; run it once.
    pub feed: PostgresFeed,
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

/// Reaches the database and checks everything that is needed. Blocks; it may take the connection time-out for each host
/// and half a minute more.
///
/// # Errors
/// Everything that is wrong, in one [`OpenError`].
pub fn open(config: Config, hooks: Hooks) -> Result<Postgres, OpenError> {
    let target = |setting, url: &str| Target::parse(url).map_err(|error| OpenError::Target { setting, error });
    let readers = target("url", &config.url)?;
    let mut for_feed = config.feed_url.as_ref().map_or_else(|| Ok(readers.clone()), |url| target("feed_url", url))?;
    // So that whoever looks at the server's sessions can tell it from the readers.
    for_feed.application_name.get_or_insert_with(|| "hotrow feed".to_owned());
    let config = Arc::new(config);
    let background = Background::start("postgres")?;
    let settings = Settings { statement_timeout: config.read_timeout, connect_timeout: config.connect_timeout };
    let (session, tables) = {
        let (target, feed_target, config) = (readers.clone(), for_feed.clone(), Arc::clone(&config));
        background.run(async move {
            let session = connect::primary(&target, settings, None).await.map_err(OpenError::Unreachable)?;
            let tables = tokio::time::timeout(CHECKS_TIMEOUT, check(&session, &config, &feed_target)).await;
            let tables = tables.map_err(|_| OpenError::Failed { detail: "they took too long".into() })??;
            Ok::<_, OpenError>((session, tables))
        })?
    };
    let schemas: Arc<[KeySchema]> = tables.iter().map(Table::key_schema).collect();
    let shared = Arc::new(Shared::new(Arc::clone(&schemas)));
    shared.publish(session.identity, &tables.into_iter().map(Ok).collect::<Vec<_>>());
    let runtime = background.handle();
    let pool = Arc::new(Pool::new(readers, settings, Arc::clone(&shared), runtime, config.reads_in_flight));
    pool.adopt(session);
    background.handle().spawn(Pool::keep_pruned(Arc::downgrade(&pool)));
    let feed = PostgresFeed {
        config: Arc::clone(&config),
        target: Arc::new(for_feed),
        tuning: Tuning::new(&config),
        shared: Arc::clone(&shared),
        schemas: Arc::clone(&schemas),
    };
    let source = PostgresSource {
        shared,
        pool,
        schemas,
        specs: config.collections.clone(),
        read_timeout: config.read_timeout,
        hooks,
        _background: background,
    };
    Ok(Postgres { source: Arc::new(source), feed })
}

/// Looks at everything before it complains.
async fn check(session: &connect::Session, config: &Config, for_feed: &Target) -> Result<Vec<Table>, OpenError> {
    let failed = |e: tokio_postgres::Error| OpenError::Failed { detail: connect::full_text(&e) };
    let mut findings = Vec::new();
    let looked_at = inspect::tables(&session.client, &config.collections).await.map_err(failed)?;
    let tables: Vec<Table> = looked_at.into_iter().filter_map(|t| t.map_err(|f| findings.extend(f)).ok()).collect();
    let findings = checks::feed(config, for_feed, &session.identity, findings).await?;
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
