//! MongoDB engine: reads documents by `_id` and follows a change stream.
//!
//! Every read requests a state at least as new as everything that the feed has delivered
//! (`afterClusterTime`). Therefore no read sent after the delivery of a change returns the earlier
//! document (race B of docs/consistency.md). After interruptions and elections the feed resumes at
//! its resume token; it loses its position only if the history is gone.
//!
//! Reading order: [`config`], `target` (connection strings), `server` (the deployment), `inspect`
//! and `keys` (collections and their ids), `alias` (other fields by which documents are looked up),
//! `reader`, `bson` and `json` (a read), `shared` (state from the feed to the readers); then
//! `feed`, `session`, `stream`, `delivery`, `probe` (changes), `indexes` (those of aliases); a
//! first configuration (`discover`).
//!
//! Commands sent to the server, in addition to those of the driver itself (`hello` of its monitors,
//! `killCursors`, `endSessions`, authentication):
//!
//! - At the start and in each session of the feed: `{hello: 1}` on `admin`, for `setName`,
//!   `isWritablePrimary`, `msg: "isdbgrid"` and `maxWireVersion`.
//! - At the same times: `{replSetGetConfig: 1}` on `admin` for `config.settings.replicaSetId`, or
//!   on a mongos `{find: "version", limit: 1}` on `config` for `clusterId`. Both may be refused
//!   with Unauthorized (13).
//! - At the start: `{listCollections: 1, filter: {name: {$in: […]}}}`. If the type of `_id` is not
//!   configured, also `{aggregate: c, pipeline: [{$sample: {size: 100}}, {$project: {_id: 1}}],
//!   cursor: {}}`.
//! - For a first configuration also `listCollections` without a filter, `$sample` without
//!   `$project`, and `{count: c}`.
//! - Read of one key: `{find: c, filter: {_id: v}, projection: {…}, limit: 1, singleBatch: true,
//!   maxTimeMS: n, readConcern: {level: "majority", afterClusterTime: t}}`; on a mongos `limit: 2`.
//! - Read of n keys: `{find: c, filter: {_id: {$in: [v, …]}}, projection: {…}, batchSize: n + 1,
//!   maxTimeMS: n, readConcern: {…}}`, then `getMore`.
//! - Read by an alias: the same with `filter: {field: v}`, `{field: {$in: […]}}` or, of several
//!   fields, `{$or: […]}`; `limit: 2`, `hint: "index"`, `collation: {locale: "simple"}`.
//! - Indexes of aliases, at the start and four times per `schema_poll`: `{listIndexes: c, cursor:
//!   {batchSize: 100}}`. At the start a sample of their fields, as of `_id`.
//! - Feed: `{aggregate: 1, pipeline: [{$changeStream: start}, {$match: {$or: [{"ns.coll": {$in:
//!   […]}}, {"to.coll": {$in: […]}}, {operationType: {$in: ["dropDatabase", "invalidate"]}}]}},
//!   {$project: {operationType: 1, clusterTime: 1, ns: 1, to: 1, documentKey: 1}}], cursor:
//!   {batchSize: 0}, readConcern: {level: "majority"}}`. `start` is `{startAtOperationTime: t}`,
//!   `{resumeAfter: token}` or `{startAfter: token}`. Then `{getMore: id, collection:
//!   "$cmd.aggregate", batchSize: 1000, maxTimeMS: n}`. The projection adds `fullDocument.f` and
//!   `updateDescription.updatedFields.f` for each field of an alias. Where resume tokens are opaque
//!   the stream is opened again without `$match`.
//! - Probe: `{hello: 1}` on `admin` for its `operationTime`; on a mongos `{dbStats: 1}`, which
//!   queries every shard. Where resume tokens are opaque also `{find: c, filter: {_id: 0},
//!   projection: {_id: 1}, limit: 1, singleBatch: true, readConcern: {level: "majority",
//!   afterClusterTime: t}}`.
//! - On a mongos whose stream does not advance: `{appendOplogNote: 1, data: {msg: "hotrow"}}` on
//!   `admin`; may be refused with Unauthorized.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hotrow_types::key::{CollectionId, Key, KeySchema};
use mongodb::Database;
use tokio::sync::Semaphore;

use self::config::{Config, Follow, JsonForm, Tuning};
use self::inspect::Served;
use self::server::Identity;
use self::shared::Shared;
use self::stream::{ChangeStream, Proof, Start, Watched};
use self::target::{Settings, Target};
use hotrow_source::background::Background;
use hotrow_source::database_name::DatabaseName;
use hotrow_source::{
    BoxFuture, KeysOfCollection, ReadSet, RowBudget, Source, SourceError, WriterTokens, preflight,
};
use hotrow_supervisor::Supervisor;

pub use self::discover::discover;
pub use self::error::{Finding, OpenError, PreflightErrors};
pub use self::feed::MongoFeed;
pub use self::target::TargetError;
pub use hotrow_source::hooks::{Hook, Hooks};

mod alias;
mod bson;
pub mod config;
mod delivery;
mod discover;
mod error;
mod feed;
mod indexes;
mod inspect;
mod json;
mod keys;
mod probe;
mod reader;
mod server;
mod session;
mod shared;
mod snapshot;
mod stream;
mod target;

/// Time limit of the checks at the start once a server is reached.
const CHECKS_TIMEOUT: Duration = Duration::from_secs(30);

/// Source and feed of one database.
#[derive(Debug)]
pub struct Mongo {
    /// Reads records. It answers from the start, but freshness is reported only while the feed
    /// runs.
    pub source: Arc<MongoSource>,
    /// Delivers changes; with `Follow::Nothing` it only reports another deployment. Run it on a
    /// thread of its own.
    pub feed: MongoFeed,
}

/// Source that reads records through the driver's pool of connections.
pub struct MongoSource {
    shared: Arc<Shared>,
    database: Database,
    served: Arc<[Served]>,
    schemas: Arc<[KeySchema]>,
    form: JsonForm,
    is_watched: bool,
    read_timeout: Duration,
    permits: Semaphore,
    hooks: Hooks,
    name: DatabaseName,
    /// Of the deployment at the start.
    wire_version: i32,
    /// Drives the connections.
    _background: Background,
}

impl fmt::Debug for MongoSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MongoSource").field("schemas", &self.schemas).finish_non_exhaustive()
    }
}

impl MongoSource {
    /// Returns the number of ignored changes since the start: changes of documents whose `_id` is
    /// of another type than the collection's ids, so that no URL names them.
    pub fn ignored_changes_total(&self) -> u64 {
        self.shared.ignored.load(Ordering::Relaxed)
    }

    /// Makes reads omit `afterClusterTime` from now on, which disables the safeguard against race
    /// B. For tests only.
    #[cfg(any(test, feature = "failpoints"))]
    pub fn disable_causality(&self) {
        self.shared.disable_causality();
    }
}

/// Connects to the deployment and runs all checks. Blocks; it may take the connection time-out and
/// half a minute more. Without a feed a standalone server is accepted, and answers carry no
/// positions. The thread that drives the connections runs under `supervisor`.
///
/// # Errors
/// Returns all problems in one [`OpenError`].
pub fn open(config: Config, hooks: Hooks, supervisor: &Supervisor) -> Result<Mongo, OpenError> {
    let (reader_target, feed_target) = preflight::targets(&config.server, Target::parse)?;
    let config = Arc::new(config);
    let source = open_source(&config, &reader_target, &feed_target, hooks, supervisor)?;
    let feed = MongoFeed {
        tuning: Tuning::new(&config),
        shared: Arc::clone(&source.shared),
        served: Arc::clone(&source.served),
        schemas: Arc::clone(&source.schemas),
        config,
        target: feed_target,
    };
    Ok(Mongo { source: Arc::new(source), feed })
}

fn open_source(
    config: &Arc<Config>,
    reader_target: &Target,
    feed_target: &Target,
    hooks: Hooks,
    supervisor: &Supervisor,
) -> Result<MongoSource, OpenError> {
    let background = Background::start("mongodb", supervisor)?;
    let (database, identity, served, wire_version) = {
        let reader_target = reader_target.clone();
        let feed_target = feed_target.clone();
        let config = Arc::clone(config);
        background.run(async move {
            let limit = config.server.connect_timeout.saturating_add(CHECKS_TIMEOUT);
            let checks = Box::pin(check(&config, &reader_target, &feed_target));
            preflight::within(limit, checks).await
        })?
    };
    let schemas: Arc<[KeySchema]> = served.iter().map(Served::schema).collect();
    let (namespace, collections) = (database.name().to_owned(), &config.server.collections);
    let name = DatabaseName::new(("mongodb", "find"), Some(namespace), collections);
    let shared = Shared::new(identity);
    for own in &served {
        if let Some(alias) = &own.alias {
            shared.set_index(own.id, Ok(alias.index.clone()));
        }
    }
    Ok(MongoSource {
        shared: Arc::new(shared),
        database,
        served: served.into(),
        schemas,
        form: config.json,
        is_watched: config.server.follow == Follow::Changes,
        read_timeout: config.server.read_timeout,
        permits: Semaphore::new(config.server.reads_in_flight.clamp(1, Semaphore::MAX_PERMITS)),
        hooks,
        name,
        wire_version,
        _background: background,
    })
}

/// Runs all checks before it reports findings.
async fn check(
    config: &Config,
    reader_target: &Target,
    feed_target: &Target,
) -> Result<(Database, Identity, Vec<Served>, i32), OpenError> {
    let failed = |e: mongodb::error::Error| error::open_error(&e);
    let connections_max = u32::try_from(config.server.reads_in_flight).unwrap_or(u32::MAX).max(1);
    let settings = Settings { connections_max, connect_timeout: config.server.connect_timeout };
    let database = feed::connect(reader_target, "hotrow", settings).await.map_err(failed)?;
    let greeting = server::greet(database.client()).await.map_err(failed)?;
    let identity = server::identify(database.client(), &greeting).await.map_err(failed)?;
    let mut findings: Vec<Finding> = server::check(&greeting).into_iter().collect();
    let mut served = Vec::new();
    let (specs, follow) = (&config.server.collections, config.server.follow);
    for collection in inspect::collections(&database, specs, follow).await.map_err(failed)? {
        match collection {
            Ok(collection) => served.push(collection),
            Err(more) => findings.extend(more),
        }
    }
    if follow == Follow::Changes {
        match server::check_watched(&greeting) {
            Some(finding) => findings.push(finding),
            None => findings
                .extend(check_feed(config, feed_target, &identity, greeting.applied_at).await),
        }
    }
    OpenError::unless_found(findings, (database, identity, served, greeting.wire_version))
}

/// Remedy for a deployment whose change stream cannot be followed.
const WITHOUT_FEED: &str = "set `feed = \"none\"`: then records are as old as their time to live \
    allows";

/// Returns the finding that keeps the feed from running, by trying to open its stream.
async fn check_feed(
    config: &Config,
    target: &Target,
    reader_identity: &Identity,
    at: Option<u64>,
) -> Option<Finding> {
    let cannot = |what: &str, why: &str, remedy: String| {
        Some(Finding::new(format!("the feed cannot {what}: {why}"), remedy))
    };
    let attempt = async {
        let database = feed::connect(target, "hotrow feed", feed::settings(config)).await?;
        let greeting = server::greet(database.client()).await?;
        Ok((server::identify(database.client(), &greeting).await?, database))
    };
    let (identity, database) = match attempt.await {
        Ok(reached) => reached,
        Err(e) => {
            return cannot("connect", &error::text(&e), "correct `feed_url` (or `url`)".into());
        }
    };
    if !identity.is_same(reader_identity) || target.database != database.name() {
        let what = format!("`feed_url` leads to {identity}, and `url` to {reader_identity}");
        return Some(Finding::new(what, "let both lead to one deployment"));
    }
    let watched = Watched::of(&config.server.collections);
    let at = at.unwrap_or(1);
    let start = Start::Time(at);
    let opening = ChangeStream::open(&database, &watched, &start, Duration::from_millis(1));
    let first = match opening.await {
        Ok((_, first)) => first,
        Err(ended) => {
            return cannot("open a change stream", ended.detail(), inspect::grant(database.name()));
        }
    };
    match Proof::of(first.token().as_ref(), at, &identity.kind) {
        Ok(_) => None,
        Err(why) => cannot("follow the change stream", why, WITHOUT_FEED.into()),
    }
}

impl Source for MongoSource {
    fn read_within(
        &self,
        collection: CollectionId,
        keys: Vec<Key>,
        rows: Arc<RowBudget>,
    ) -> BoxFuture<'_, Result<ReadSet, SourceError>> {
        Box::pin(async move { self.read_keys(&[(collection, keys)], false, &rows).await })
    }

    fn read_snapshot(
        &self,
        parts: Vec<KeysOfCollection>,
        rows: Arc<RowBudget>,
    ) -> BoxFuture<'_, Result<ReadSet, SourceError>> {
        Box::pin(async move { self.read_keys(&parts, true, &rows).await })
    }

    fn snapshot_refusal(&self) -> Option<&'static str> {
        (self.wire_version < snapshot::WIRE_VERSION_MIN).then_some(snapshot::TOO_OLD)
    }

    fn schemas(&self) -> &[KeySchema] {
        &self.schemas
    }

    fn writer_tokens(&self) -> WriterTokens {
        WriterTokens::Optimes
    }

    fn queries_total(&self) -> u64 {
        self.shared.queries.load(Ordering::Relaxed)
    }

    fn health(&self) -> Result<(), String> {
        self.shared.deployment().map_err(|why| why.to_string())?;
        self.shared.outage.health()
    }

    fn database(&self) -> DatabaseName {
        self.name.clone()
    }

    fn unseen_changes(&self) -> &'static str {
        "rolled-back writes with a write concern below majority (docs/mongodb.md)"
    }

    fn watch(&self) -> &'static str {
        if self.is_watched { "change stream" } else { "none" }
    }
}

/// Tests against a stand-in: a fake MongoDB server in this process. With `HOTROW_TEST_MONGODB_URL`
/// in the environment they run against that real deployment instead, except tests that need a
/// fault.
#[cfg(test)]
mod tests {
    mod aliases;
    mod failures;
    mod feed;
    mod harness;
    mod opaque;
    mod races;
    mod reads;
    mod refusals;

    use hotrow_testkit::mongo;
    use hotrow_testkit::standin;
}
