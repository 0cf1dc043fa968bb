//! MySQL and MariaDB: read by primary key, followed by the row-based binlog.
//!
//! Reads bring rows together with what they saw and the log's end, so that an answer always knows what it reflects.
//! docs/mysql.md tells what the server must allow and what it costs.
//!
//! Reading order: [`config`], `target`, `connect` and `server` (a session, and with whom), `inspect` (what the table is),
//! `keys` (how a row is named), `plan`, `pool`, `reader` and `json` (a read), `shared` (what the feed tells the readers);
//! then `feed`, `start` (where in the log), `session`, `dump` (the stream), `binlog` (its events), `delivery`, `place` and
//! `probe` (changes), `checks` (at the start).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hotrow_cache::key::{CollectionId, Key, KeySchema, KeyType};

use self::config::Config;
use self::connect::Settings;
use self::inspect::Table;
use self::pool::Pool;
use self::shared::Shared;
use self::target::Target;
use self::tuning::Tuning;
use crate::background::Background;
use crate::spec::{CollectionSpec, Follow};
use crate::{BoxFuture, ReadError, ReadSet, Source};

pub use self::connect::ConnectError;
pub use self::error::{Finding, Findings, OpenError};
pub use self::feed::MysqlFeed;
pub use self::target::TargetError;
pub use crate::hooks::{Hook, Hooks};

mod binlog;
mod checks;
pub mod config;
mod connect;
mod delivery;
mod dump;
mod error;
mod feed;
mod inspect;
mod json;
mod keys;
mod place;
mod plan;
mod pool;
mod probe;
mod reader;
mod server;
mod session;
mod shared;
mod start;
mod target;
mod tuning;

/// How long the checks at the start may take once a server is reached.
const CHECKS_TIMEOUT: Duration = Duration::from_secs(30);

/// One database.
#[derive(Debug)]
pub struct Mysql {
    /// Reads records. It answers from the start, but freshness is told only while the feed runs.
    pub source: Arc<MysqlSource>,
    /// Delivers changes; run it once.
    pub feed: MysqlFeed,
}

/// Reads records through a pool of connections.
pub struct MysqlSource {
    shared: Arc<Shared>,
    pool: Arc<Pool>,
    schemas: Arc<[KeySchema]>,
    specs: Vec<CollectionSpec>,
    read_timeout: Duration,
    follow: Follow,
    hooks: Hooks,
    /// Drives the connections.
    _background: Background,
}

impl fmt::Debug for MysqlSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlSource").field("schemas", &self.schemas).field("pool", &self.pool).finish_non_exhaustive()
    }
}

/// Reaches the database and checks everything that is needed. Blocks; it may take the connection time-out for each host
/// and half a minute more.
///
/// # Errors
/// Everything that is wrong, in one [`OpenError`].
pub fn open(config: Config, hooks: Hooks) -> Result<Mysql, OpenError> {
    let target = |setting, url: &str| Target::parse(url).map_err(|error| OpenError::Target { setting, error });
    let readers = target("url", &config.url)?;
    let for_feed = config.feed_url.as_ref().map_or_else(|| Ok(readers.clone()), |url| target("feed_url", url))?;
    let config = Arc::new(config);
    let background = Background::start("mysql")?;
    let settings = Settings { statement_timeout: config.read_timeout, connect_timeout: config.connect_timeout };
    let (session, tables) = {
        let (target, feed_target, config) = (readers.clone(), for_feed.clone(), Arc::clone(&config));
        background.run(async move {
            let mut session = connect::primary(&target, settings, None).await.map_err(OpenError::Unreachable)?;
            let tables = check(&mut session, &config, &target, &feed_target);
            let tables = tokio::time::timeout(CHECKS_TIMEOUT, tables).await;
            let tables = tables.map_err(|_| OpenError::Failed { detail: "they took too long".into() })??;
            Ok::<_, OpenError>((session, tables))
        })?
    };
    let schemas: Arc<[KeySchema]> = tables.iter().map(Table::key_schema).collect();
    let shared = Arc::new(Shared::new(Arc::clone(&schemas)));
    shared.publish(session.identity.clone(), &tables.into_iter().map(Ok).collect::<Vec<_>>());
    let pool = Pool::new(readers, settings, Arc::clone(&shared), background.handle(), config.reads_in_flight);
    let pool = Arc::new(pool);
    pool.adopt(session);
    background.handle().spawn(Pool::keep_pruned(Arc::downgrade(&pool)));
    let feed = MysqlFeed {
        config: Arc::clone(&config),
        target: Arc::new(for_feed),
        tuning: Tuning::new(&config),
        shared: Arc::clone(&shared),
        schemas: Arc::clone(&schemas),
    };
    let source = MysqlSource {
        shared,
        pool,
        schemas,
        specs: config.collections.clone(),
        read_timeout: config.read_timeout,
        follow: config.follow,
        hooks,
        _background: background,
    };
    Ok(Mysql { source: Arc::new(source), feed })
}

/// Looks at everything before it complains.
async fn check(
    session: &mut connect::Session,
    config: &Config,
    target: &Target,
    for_feed: &Target,
) -> Result<Vec<Table>, OpenError> {
    let failed = |e: mysql_async::Error| OpenError::Failed { detail: connect::full_text(&e) };
    let connect::Session { conn, identity, .. } = session;
    let mut findings = Vec::new();
    let looked_at = inspect::tables(conn, identity, &target.database, &config.collections).await.map_err(failed)?;
    let tables: Vec<Table> = looked_at.into_iter().filter_map(|t| t.map_err(|f| findings.extend(f)).ok()).collect();
    let findings = checks::feed(config, for_feed, identity, &tables, findings).await?;
    if findings.is_empty() { Ok(tables) } else { Err(OpenError::Findings(Findings(findings))) }
}

impl Source for MysqlSource {
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

    fn has_aliases(&self, collection: CollectionId) -> bool {
        // Whatever the collation is at present: it may be changed while the key's type stays.
        let schema = self.schemas.iter().find(|schema| schema.collection() == collection);
        schema.is_some_and(|schema| schema.types().iter().any(|ty| matches!(ty, KeyType::Text(_))))
    }

    fn watch(&self) -> &'static str {
        match self.follow {
            Follow::Changes => "binlog",
            Follow::Nothing => "none",
        }
    }
}

#[cfg(test)]
mod tests;
