//! MongoDB: read by `_id`, followed by a change stream.
//!
//! Every read asks for a state at least as new as all that the feed has delivered (`afterClusterTime`), so that no read
//! which is sent after a change was delivered brings the document of before (Race B). The feed goes on after
//! interruptions and elections where it was, by its resume token; only a history that is gone is a loss.
//!
//! Reading order: [`config`], `target` (connection strings), `server` (which deployment), `inspect` and `keys` (what a
//! collection and its ids are), `reader`, `bson` and `json` (a read), `shared` (what the feed tells the readers); then
//! `feed`, `session`, `stream`, `delivery`, `probe` (changes).
//!
//! What is sent to the server, beside what the driver sends by itself (`hello` of its monitors, `killCursors`,
//! `endSessions`, authentication):
//!
//! | when | command |
//! |---|---|
//! | start, each session of the feed | `{hello: 1}` on `admin`: `setName`, `isWritablePrimary`, `msg: "isdbgrid"`, `maxWireVersion` |
//! | the same | `{replSetGetConfig: 1}` on `admin` (`config.settings.replicaSetId`), on a mongos `{find: "version", limit: 1}` on `config` (`clusterId`); both may be refused with Unauthorized (13) |
//! | start | `{listCollections: 1, filter: {name: {$in: […]}}}`; `{aggregate: c, pipeline: [{$sample: {size: 100}}, {$project: {_id: 1}}], cursor: {}}` where the type of `_id` is not configured |
//! | read of one key | `{find: c, filter: {_id: v}, projection: {…}, limit: 1, singleBatch: true, maxTimeMS: n, readConcern: {level: "majority", afterClusterTime: t}}`; on a mongos `limit: 2` |
//! | read of n keys | `{find: c, filter: {_id: {$in: [v, …]}}, projection: {…}, batchSize: n + 1, maxTimeMS: n, readConcern: {…}}`, then `getMore` |
//! | feed | `{aggregate: 1, pipeline: [{$changeStream: {startAtOperationTime: t} or {resumeAfter: token} or {startAfter: token}}, {$match: {$or: [{"ns.coll": {$in: […]}}, {"to.coll": {$in: […]}}, {operationType: {$in: ["dropDatabase", "invalidate"]}}]}}, {$project: {operationType: 1, clusterTime: 1, ns: 1, to: 1, documentKey: 1}}], cursor: {batchSize: 0}, readConcern: {level: "majority"}}`, then `{getMore: id, collection: "$cmd.aggregate", batchSize: 1000, maxTimeMS: n}` |
//! | probe | `{hello: 1}` on `admin` (its `operationTime`); on a mongos `{dbStats: 1}`, which asks every shard |
//! | a mongos whose stream stands still | `{appendOplogNote: 1, data: {msg: "hotrow"}}` on `admin`; may be refused with Unauthorized |

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hotrow_cache::key::{CollectionId, Key, KeySchema};
use mongodb::Database;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use self::config::{Config, Follow, JsonForm};
use self::inspect::Served;
use self::server::Identity;
use self::shared::Shared;
use self::stream::{ChangeStream, Start};
use self::target::{Settings, Target};
use self::tuning::Tuning;
use crate::background::Background;
use crate::{BoxFuture, ReadError, ReadSet, Source};

pub use self::error::{Finding, Findings, OpenError};
pub use self::feed::MongoFeed;
pub use self::target::TargetError;
pub use crate::hooks::{Hook, Hooks};

mod bson;
pub mod config;
mod delivery;
mod error;
mod feed;
mod inspect;
mod json;
mod keys;
mod probe;
mod reader;
mod server;
mod session;
mod shared;
mod stream;
mod target;
mod tuning;

/// How long the checks at the start may take once a server is reached.
const CHECKS_TIMEOUT: Duration = Duration::from_secs(30);

/// One database.
#[derive(Debug)]
pub struct Mongo {
    /// Reads records. It answers from the start, but freshness is told only while the feed runs.
    pub source: Arc<MongoSource>,
    /// Delivers changes, or where none are followed tells only of another deployment; run it once.
    pub feed: MongoFeed,
}

/// Reads records through the driver's pool of connections.
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
    /// Drives the connections.
    _background: Background,
}

impl fmt::Debug for MongoSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MongoSource").field("schemas", &self.schemas).finish_non_exhaustive()
    }
}

impl MongoSource {
    /// Changes that the feed has seen of documents whose `_id` is of another type than the collection's ids, so that
    /// no URL names them; counted since the start.
    #[must_use]
    pub fn ignored_changes_total(&self) -> u64 {
        self.shared.ignored.load(Ordering::Relaxed)
    }

    /// From now on reads do not ask for what the feed has delivered: the fix of Race B is out, for tests only.
    #[cfg(any(test, feature = "sabotage"))]
    pub fn take_out_causality(&self) {
        self.shared.take_out_causality();
    }
}

/// Reaches the deployment and checks everything that is needed. Blocks; it may take the connection time-out and half a
/// minute more. Where no changes are followed, a standalone server is good enough, and answers carry no positions.
///
/// # Errors
/// Everything that is wrong, in one [`OpenError`].
pub fn open(config: Config, hooks: Hooks) -> Result<Mongo, OpenError> {
    let target = |setting, url: &str| Target::parse(url).map_err(|error| OpenError::Target { setting, error });
    let readers = target("url", &config.url)?;
    let for_feed = config.feed_url.as_ref().map_or_else(|| Ok(readers.clone()), |url| target("feed_url", url))?;
    let config = Arc::new(config);
    let source = open_source(&config, &readers, &for_feed, hooks)?;
    let feed = MongoFeed {
        tuning: Tuning::new(&config),
        shared: Arc::clone(&source.shared),
        served: Arc::clone(&source.served),
        schemas: Arc::clone(&source.schemas),
        config,
        target: for_feed,
    };
    Ok(Mongo { source: Arc::new(source), feed })
}

fn open_source(
    config: &Arc<Config>,
    readers: &Target,
    for_feed: &Target,
    hooks: Hooks,
) -> Result<MongoSource, OpenError> {
    let background = Background::start("mongodb")?;
    let (database, identity, served) = {
        let (readers, for_feed, config) = (readers.clone(), for_feed.clone(), Arc::clone(config));
        background.run(async move {
            let limit = config.connect_timeout.saturating_add(CHECKS_TIMEOUT);
            let checked = timeout(limit, Box::pin(check(&config, &readers, &for_feed))).await;
            checked.map_err(|_| OpenError::Failed { detail: "they took too long".into() })?
        })?
    };
    let schemas: Arc<[KeySchema]> = served.iter().map(Served::schema).collect();
    Ok(MongoSource {
        shared: Arc::new(Shared::new(identity)),
        database,
        served: served.into(),
        schemas,
        form: config.json,
        is_watched: config.follow == Follow::Changes,
        read_timeout: config.read_timeout,
        permits: Semaphore::new(config.reads_in_flight.clamp(1, Semaphore::MAX_PERMITS)),
        hooks,
        _background: background,
    })
}

/// Looks at everything before it complains.
async fn check(
    config: &Config,
    readers: &Target,
    for_feed: &Target,
) -> Result<(Database, Identity, Vec<Served>), OpenError> {
    let failed = |e: mongodb::error::Error| OpenError::of(&e);
    let connections_max = u32::try_from(config.reads_in_flight).unwrap_or(u32::MAX).max(1);
    let settings = Settings { connections_max, connect_timeout: config.connect_timeout };
    let database = feed::connect(readers, "hotrow", settings).await.map_err(failed)?;
    let greeting = server::greet(database.client()).await.map_err(failed)?;
    let identity = server::identify(database.client(), &greeting).await.map_err(failed)?;
    let mut findings: Vec<Finding> = server::check(&greeting).into_iter().collect();
    let mut served = Vec::new();
    for collection in inspect::collections(&database, &config.collections).await.map_err(failed)? {
        match collection {
            Ok(collection) => served.push(collection),
            Err(more) => findings.extend(more),
        }
    }
    if config.follow == Follow::Changes {
        match server::check_watched(&greeting) {
            Some(finding) => findings.push(finding),
            None => findings.extend(check_feed(config, for_feed, &identity, greeting.applied_at).await),
        }
    }
    if findings.is_empty() { Ok((database, identity, served)) } else { Err(OpenError::Findings(Findings(findings))) }
}

/// What keeps the feed from running: it is tried.
async fn check_feed(config: &Config, target: &Target, readers: &Identity, at: Option<u64>) -> Option<Finding> {
    let cannot = |what: &str, e: &mongodb::error::Error, mend: String| {
        Some(Finding::new(format!("the feed cannot {what}: {}", error::text(e)), mend))
    };
    let attempt = async {
        let database = feed::connect(target, "hotrow feed", feed::settings(config)).await?;
        let greeting = server::greet(database.client()).await?;
        Ok((server::identify(database.client(), &greeting).await?, database))
    };
    let (identity, database) = match attempt.await {
        Ok(reached) => reached,
        Err(e) => return cannot("connect", &e, "correct `feed_url` (or `url`)".into()),
    };
    if !identity.is_same(readers) || target.database != database.name() {
        let what = format!("`feed_url` leads to {identity}, and `url` to {readers}");
        return Some(Finding::new(what, "let both lead to one deployment"));
    }
    let names: Vec<&str> = config.collections.iter().map(|c| c.table.as_str()).collect();
    let start = Start::Time(at.unwrap_or(1));
    match ChangeStream::open(&database, &names, &start, Duration::from_millis(1)).await {
        Ok(_) => None,
        Err(e) => cannot("open a change stream", &e, inspect::grant(database.name())),
    }
}

impl Source for MongoSource {
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
        self.shared.deployment().map_err(|why| why.to_string())?;
        self.shared.outage()
    }

    fn watch(&self) -> &'static str {
        if self.is_watched { "change stream" } else { "none" }
    }
}

#[cfg(test)]
mod tests;
