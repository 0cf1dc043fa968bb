//! PostgreSQL engine: reads through a pool of connections and a feed by logical replication.
//!
//! Each read returns rows together with the snapshot in which they were read and the end of the
//! log, so that every answer carries the position it reflects. docs/postgres.md lists what the
//! database must allow and what that costs.
//!
//! Reading order:
//! - reaching a server: [`config`], `target`, `tls`, `stream`; a session and the server's identity:
//!   `connect`, `server`;
//! - the tables and the checks at the start: `inspect`, `checks`; of a first configuration:
//!   `discover`;
//! - a read: `key_text`, `plan`, `pool`, `reader`, `json`; state shared by feed and readers:
//!   `shared`; a read of a standby: `standby`; its queries: `snapshot`;
//! - the feed: `feed`, `link` (from a connection to a replication slot), `kept_slot` (one that
//!   outlives its sessions), `session`, `gap`, `delivery`, `probe`;
//! - the protocol: `wire`, [`pgoutput`]; the catalogue: `survey` with its fingerprint,
//!   `publication`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hotrow_types::key::{Collation, CollectionId, Key, KeySchema, KeyType};
use hotrow_types::version::Position;

use hotrow_measure::clock::Nanos;

use self::config::{CollectionConfig, Config, Follow, Tuning};
use self::inspect::{Privileges, Table};
use self::pool::{Connection, Connector, Pool};
use self::shared::Shared;
use self::standby::Standbys;
use self::target::Target;
use hotrow_source::background::Background;
use hotrow_source::database_name::DatabaseName;
use hotrow_source::field_schema::FieldSchema;
use hotrow_source::standby::{StandbyRead, StandbyRefusal, StandbyView};
use hotrow_source::{
    BoxFuture, KeysOfCollection, ReadSet, RowBudget, Source, SourceError, WriterTokens,
    catalog_watermark, preflight,
};
use hotrow_supervisor::Supervisor;
use tokio_postgres::Client;

pub use self::discover::{apply, default_keys, discover};
pub use self::feed::PostgresFeed;
pub use self::stream::ConnectError;
pub use self::target::TargetError;
pub use self::tls::TlsSetupError;
pub use hotrow_source::hooks::{Hook, Hooks};
pub use hotrow_source::preflight::{Finding, PreflightErrors};

mod checks;
pub mod config;
mod connect;
mod delivery;
mod discover;
mod error;
mod feed;
mod gap;
mod inspect;
mod json;
mod kept_slot;
mod key_text;
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
mod snapshot;
mod standby;
mod stream;
mod survey;
mod target;
mod tls;
mod visibility;
mod wire;

/// Reason that a database cannot be served.
pub type OpenError = preflight::OpenError<TargetError, ConnectError>;

/// Time limit of the checks at the start, once a server is reached.
const CHECKS_TIMEOUT: Duration = Duration::from_secs(30);

/// One database.
#[derive(Debug)]
pub struct Postgres {
    /// Reads records. It answers from the start; freshness is known only while the feed runs.
    pub source: Arc<PostgresSource>,
    /// Delivers changes; run it on a thread of its own.
    pub feed: PostgresFeed,
}

/// Reads records through a pool of connections.
pub struct PostgresSource {
    shared: Arc<Shared>,
    pool: Arc<Pool>,
    schemas: Arc<[KeySchema]>,
    specs: Vec<CollectionConfig>,
    read_timeout: Duration,
    follow: Follow,
    hooks: Hooks,
    name: DatabaseName,
    standbys: Standbys,
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

/// Connects to the database and checks all preconditions. Blocks for up to the connection time-out
/// of each host plus half a minute. The thread that drives the connections runs under `supervisor`.
///
/// # Errors
/// All problems found, in one [`OpenError`].
pub fn open(config: Config, hooks: Hooks, supervisor: &Supervisor) -> Result<Postgres, OpenError> {
    let (readers, mut for_feed) = preflight::targets(&config.server, Target::parse)?;
    let standbys = standby::targets(&config.server.read_urls)
        .map_err(|error| OpenError::Target { setting: "read_urls", error })?;
    // Distinguishes the feed's session from those of the readers in pg_stat_activity.
    for_feed.application_name.get_or_insert_with(|| "hotrow feed".to_owned());
    let config = Arc::new(config);
    let background = Background::start("postgres", supervisor)?;
    let settings = config.server.session(config.server.read_timeout);
    let check_sent_at = Nanos::now();
    let (session, tables) = {
        let target = readers.clone();
        let feed_target = for_feed.clone();
        let config = Arc::clone(&config);
        background.run(async move {
            let session =
                connect::primary(&target, settings, None).await.map_err(OpenError::Unreachable)?;
            let checks = async {
                // A check may take longer than a read: the catalogue of a busy server is slow.
                set(
                    &session.client,
                    &format!("SET statement_timeout = {}", CHECKS_TIMEOUT.as_millis()),
                )
                .await?;
                let tables = check(&session, &config, &feed_target).await?;
                set(&session.client, "RESET statement_timeout").await?;
                Ok::<_, OpenError>(tables)
            };
            let tables = preflight::within(CHECKS_TIMEOUT, checks).await?;
            Ok::<_, OpenError>((session, tables))
        })?
    };
    for (table, spec) in tables.iter().zip(&config.server.collections) {
        inspect::note_missing_parents(&spec.name, &table.embedded);
    }
    let schemas: Arc<[KeySchema]> = tables.iter().map(Table::key_schema).collect();
    let shape_age_max =
        catalog_watermark::shape_age_max(config.server.schema_poll, config.server.max_staleness);
    let shared = Arc::new(Shared::new(Arc::clone(&schemas), shape_age_max));
    shared.publish(session.identity, &tables.into_iter().map(Ok).collect::<Vec<_>>());
    shared.confirm_shapes(check_sent_at);
    let (namespace, collections) = (readers.dbname.clone(), &config.server.collections);
    let name = DatabaseName::new(("postgresql", "SELECT"), Some(namespace), collections);
    let standbys = Standbys::start(standbys, &config, settings, &shared, &background);
    let connector =
        Connector { target: readers, settings, shared: Arc::clone(&shared), is_standby: false };
    let first = Connection::new(session);
    let pool = Pool::start(connector, first, config.server.reads_in_flight, &background);
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
        specs: config.server.collections.clone(),
        read_timeout: config.server.read_timeout,
        follow: config.server.follow,
        hooks,
        name,
        standbys,
        _background: background,
    };
    Ok(Postgres { source: Arc::new(source), feed })
}

/// Runs a statement that changes the session.
async fn set(client: &Client, sql: &str) -> Result<(), OpenError> {
    let done = client.batch_execute(sql).await;
    done.map_err(|e| OpenError::Failed { detail: error::full_text(&e) })
}

/// Runs all checks before it returns an error.
async fn check(
    session: &connect::Session,
    config: &Config,
    for_feed: &Target,
) -> Result<Vec<Table>, OpenError> {
    let failed = |e: tokio_postgres::Error| OpenError::Failed { detail: error::full_text(&e) };
    let mut findings = Vec::new();
    let specs = &config.server.collections;
    let (privileges, follow) = (Privileges::Checked, config.server.follow);
    let inspected = inspect::tables(&session.client, specs, privileges, follow).await;
    let inspected = inspected.map_err(failed)?;
    let tables: Vec<Table> = preflight::served(inspected, &mut findings);
    let findings = checks::feed(config, for_feed, &session.identity, findings).await?;
    OpenError::unless_found(findings, tables)
}

impl Source for PostgresSource {
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

    fn read_standby(
        &self,
        collection: CollectionId,
        keys: Vec<Key>,
        rows: Arc<RowBudget>,
        floor: Position,
    ) -> BoxFuture<'_, Result<StandbyRead, StandbyRefusal>> {
        Box::pin(async move { self.read_of_standby(collection, &keys, &rows, floor).await })
    }

    fn standbys(&self) -> Vec<StandbyView> {
        self.standbys.views()
    }

    fn schemas(&self) -> &[KeySchema] {
        &self.schemas
    }

    fn fields(&self, CollectionId(id): CollectionId) -> Option<Arc<[FieldSchema]>> {
        let plan = self.shared.published.plan().ok()?;
        plan.collections.get(usize::from(id))?.as_ref().ok().map(|read| Arc::clone(&read.schemas))
    }

    fn writer_tokens(&self) -> WriterTokens {
        WriterTokens::Lsns
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
        "row-level security; settings, collations and functions of extensions that change how a \
         value prints \
         (docs/postgres.md, \"What no feed shows\")"
    }

    fn has_aliases(&self, collection: CollectionId) -> bool {
        let schema = self.schemas.get(usize::from(collection.0));
        schema.is_some_and(|schema| schema.types().contains(&KeyType::Text(Collation::Database)))
    }

    fn watch(&self) -> &'static str {
        match self.follow {
            Follow::Hub => "hub",
            Follow::Changes | Follow::Nothing => "replication",
        }
    }
}

/// Tests against real servers, each private to its test, and their helpers.
#[cfg(test)]
mod tests {
    mod bench;
    pub(crate) mod certs;
    mod failures;
    mod feed;
    mod harness;
    mod key_types;
    mod reads;
    mod recorder;
    mod refusals;
    mod servers;
    mod standbys;
    mod types;
    mod wire;

    pub(crate) use hotrow_testkit::postgres as server;
}
