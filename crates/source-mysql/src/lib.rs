//! MySQL and MariaDB: reads by primary key, changes from the row-based binary log.
//!
//! Every read returns the rows with the log's end and the version that the rows reflect. The
//! required server settings and their costs are in docs/mysql.md.
//!
//! Reading order:
//! - sessions: [`config`], `target`, `connect`, `server`, `error`
//! - tables and keys: `inspect`, `keys`
//! - reads: `plan`, `pool`, `record_rows`, `reader`, `json`, and `shared` and `recent`, the state
//!   that the feed publishes to readers
//! - the feed: `feed`, `start`, `session`, `dump`, `binlog`, `delivery`, `xa_commits`, `place`,
//!   `landmark`, `probe`; with a change hub also `hub` and [`resume_rules`]
//! - rules with switches for tests: [`rule_set`], [`embedded_rules`]
//! - preflight checks: `checks`; of a first configuration: `discover`

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hotrow_types::key::{CollectionId, Key, KeySchema, KeyType};
use hotrow_types::writer_token::WriterToken;

use self::config::{Config, Tuning};
use self::inspect::Table;
use self::pool::{Connector, Pool};
use self::server::Flavor;
use self::shared::Shared;
use self::target::Target;
use hotrow_source::background::Background;
use hotrow_source::database_name::DatabaseName;
use hotrow_source::field_schema::FieldSchema;
use hotrow_source::spec::{CollectionConfig, Follow};
use hotrow_source::{
    BoxFuture, KeysOfCollection, ReadSet, RowBudget, Source, SourceError, WriterTokens, preflight,
};
use hotrow_supervisor::Supervisor;

pub use self::discover::{apply, default_keys, discover};
pub use self::error::ConnectError;
pub use self::feed::MysqlFeed;
pub use self::target::TargetError;
pub use hotrow_source::hooks::{Hook, Hooks};
pub use hotrow_source::preflight::{Finding, PreflightErrors};

mod binlog;
mod blockers;
mod catalog_row;
mod checks;
pub mod config;
mod connect;
mod delivery;
mod discover;
mod dump;
pub mod embedded_rules;
mod error;
mod feed;
mod hub;
mod inspect;
mod json;
mod keys;
mod landmark;
mod place;
mod plan;
mod pool;
mod probe;
mod reader;
mod recent;
mod record_rows;
pub mod resume_rules;
pub mod rule_set;
mod server;
mod session;
mod shared;
mod snapshot;
mod start;
mod target;
mod writer_token;
mod xa_commits;

/// Reason that a database cannot be served.
pub type OpenError = preflight::OpenError<TargetError, ConnectError>;

/// Time limit of the preflight checks, after a server was reached.
const CHECKS_TIMEOUT: Duration = Duration::from_secs(30);
/// Lock wait of one preflight query after which the log names the possible lock holders.
const LOCK_REPORT_AFTER: Duration = Duration::from_secs(5);

/// A served database.
#[derive(Debug)]
pub struct Mysql {
    /// Reads records. It answers from the start, but freshness is known only while the feed runs.
    pub source: Arc<MysqlSource>,
    /// Delivers changes. Runs on a dedicated thread.
    pub feed: MysqlFeed,
}

/// Reader of records through a pool of connections.
pub struct MysqlSource {
    shared: Arc<Shared>,
    pool: Arc<Pool>,
    schemas: Arc<[KeySchema]>,
    specs: Vec<CollectionConfig>,
    read_timeout: Duration,
    follow: Follow,
    hooks: Hooks,
    name: DatabaseName,
    writer_tokens: WriterTokens,
    /// Runtime of the connections.
    _background: Background,
}

impl fmt::Debug for MysqlSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlSource")
            .field("schemas", &self.schemas)
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}

/// Connects to the database and runs every preflight check. Blocks for at most the connection
/// timeout of each host and 30 s more. The connection thread runs under `supervisor`.
///
/// # Errors
/// One [`OpenError`] with every problem found.
pub fn open(config: Config, hooks: Hooks, supervisor: &Supervisor) -> Result<Mysql, OpenError> {
    let (readers, feed_target) = preflight::targets(&config.server, Target::parse)?;
    let config = Arc::new(config);
    let background = Background::start("mysql", supervisor)?;
    let settings = config.server.session(config.server.read_timeout);
    let (session, tables) = {
        let target = readers.clone();
        let feed_target = feed_target.clone();
        let config = Arc::clone(&config);
        background.run(async move {
            let mut session =
                connect::primary(&target, settings, None).await.map_err(OpenError::Unreachable)?;
            let tables = check(&mut session, &config, &target, &feed_target);
            let tables = preflight::within(CHECKS_TIMEOUT, tables).await?;
            Ok::<_, OpenError>((session, tables))
        })?
    };
    let schemas: Arc<[KeySchema]> = tables.iter().map(Table::key_schema).collect();
    let shared = Arc::new(Shared::new(Arc::clone(&schemas), config.embedded_rules));
    shared.publish(session.identity.clone(), &tables.into_iter().map(Ok).collect::<Vec<_>>());
    let (system, writer_tokens) = match session.identity.flavor {
        Flavor::MariaDb => ("mariadb", WriterTokens::MariaDbGtids),
        Flavor::MySql => ("mysql", WriterTokens::MySqlGtids),
    };
    let (namespace, collections) = (readers.database.clone(), &config.server.collections);
    let name = DatabaseName::new((system, "SELECT"), Some(namespace), collections);
    let connector = Connector { target: readers, settings, shared: Arc::clone(&shared) };
    let pool = Pool::start(connector, session, config.server.reads_in_flight, &background);
    let feed = MysqlFeed {
        config: Arc::clone(&config),
        target: Arc::new(feed_target),
        tuning: Tuning::new(&config),
        shared: Arc::clone(&shared),
        schemas: Arc::clone(&schemas),
    };
    let source = MysqlSource {
        shared,
        pool,
        schemas,
        specs: config.server.collections.clone(),
        read_timeout: config.server.read_timeout,
        follow: config.server.follow,
        hooks,
        name,
        writer_tokens,
        _background: background,
    };
    Ok(Mysql { source: Arc::new(source), feed })
}

/// Runs every check before it reports errors.
async fn check(
    session: &mut connect::Session,
    config: &Config,
    target: &Target,
    feed_target: &Target,
) -> Result<Vec<Table>, OpenError> {
    let mut findings = Vec::new();
    let inspected = inspect_despite_locks(session, config, target).await?;
    let connect::Session { identity, .. } = session;
    let tables: Vec<Table> = preflight::served(inspected, &mut findings);
    let findings = checks::feed(config, feed_target, identity, &tables, findings).await?;
    OpenError::unless_found(findings, tables)
}

/// Inspects the tables. A schema change may lock a table for longer than a read may take, so the
/// inspection is repeated within the limit of the preflight checks, and the log names the possible
/// lock holders.
async fn inspect_despite_locks(
    session: &mut connect::Session,
    config: &Config,
    target: &Target,
) -> Result<Vec<Result<Table, inspect::Refused>>, OpenError> {
    let connect::Session { conn, identity, .. } = session;
    let failed = |e: mysql_async::Error| OpenError::Failed { detail: error::full_text(&e) };
    let limit = config.server.read_timeout.min(LOCK_REPORT_AFTER);
    let retry_until = tokio::time::Instant::now() + CHECKS_TIMEOUT.saturating_sub(2 * limit);
    connect::limit_statements(conn, identity.flavor, limit).await.map_err(failed)?;
    let mut reported = String::new();
    let tables = loop {
        match inspect::tables(conn, identity, &target.database, &config.server.collections).await {
            Ok(tables) => break tables,
            Err(e) if blockers::is_wait(&e) => {
                let holder = blockers::describe(conn).await;
                if tokio::time::Instant::now() >= retry_until {
                    return Err(OpenError::Failed {
                        detail: format!("{}: {holder}", error::full_text(&e)),
                    });
                }
                if holder != reported {
                    tracing::warn!(detail = %holder, "the catalogue cannot be read yet");
                    reported = holder;
                }
            }
            Err(e) => return Err(failed(e)),
        }
    };
    connect::limit_statements(conn, identity.flavor, config.server.read_timeout)
        .await
        .map_err(failed)?;
    Ok(tables)
}

impl Source for MysqlSource {
    fn read_within(
        &self,
        collection: CollectionId,
        keys: Vec<Key>,
        rows: Arc<RowBudget>,
    ) -> BoxFuture<'_, Result<ReadSet, SourceError>> {
        Box::pin(async move { self.read_keys(&[(collection, keys)], &rows).await })
    }

    fn read_snapshot(
        &self,
        parts: Vec<KeysOfCollection>,
        rows: Arc<RowBudget>,
    ) -> BoxFuture<'_, Result<ReadSet, SourceError>> {
        Box::pin(async move { self.read_keys(&parts, &rows).await })
    }

    fn schemas(&self) -> &[KeySchema] {
        &self.schemas
    }

    fn fields(&self, CollectionId(id): CollectionId) -> Option<Arc<[FieldSchema]>> {
        let plan = self.shared.published.plan().ok()?;
        plan.collections.get(usize::from(id))?.as_ref().ok().map(|read| Arc::clone(&read.schemas))
    }

    fn writer_tokens(&self) -> WriterTokens {
        self.writer_tokens
    }

    fn has_committed(&self, token: WriterToken) -> BoxFuture<'_, Result<bool, SourceError>> {
        Box::pin(self.ask_committed(token))
    }

    fn queries_total(&self) -> u64 {
        self.shared.queries.load(Ordering::Relaxed)
    }

    fn health(&self) -> Result<(), String> {
        self.shared.published.plan().map_err(|why| why.to_string())?;
        self.pool.outage().health()
    }

    fn database(&self) -> DatabaseName {
        self.name.clone()
    }

    fn unseen_changes(&self) -> &'static str {
        "sessions with `sql_log_bin = 0`, `binlog_do_db` and `binlog_ignore_db`, \
         writes to the data files (docs/mysql.md, \"What no feed shows\")"
    }

    fn has_aliases(&self, collection: CollectionId) -> bool {
        // Independent of the current collation, which may change while the key's type stays.
        let schema = self.schemas.iter().find(|schema| schema.collection() == collection);
        schema.is_some_and(|schema| schema.types().iter().any(|ty| matches!(ty, KeyType::Text(_))))
    }

    fn watch(&self) -> &'static str {
        match self.follow {
            Follow::Changes => "binlog",
            Follow::Hub => "hub",
            Follow::Nothing => "none",
        }
    }
}

/// Tests against a real server, and their shared helpers.
#[cfg(test)]
mod tests {
    mod embedded;
    mod feed;
    mod globals;
    mod grants;
    mod harness;
    mod naming;
    mod reads;
    mod recorder;
    mod refusals;
    mod replicas;
    mod types;

    pub(crate) use hotrow_testkit::mysql as server;
}
