//! Identity and properties of the deployment.

use std::fmt;

use mongodb::bson::{Bson, Document, doc};
use mongodb::error::Error;
use mongodb::{Client, Database};
use ring::digest::{SHA256, digest};

use super::bson::Timestamp;
use super::error;
use hotrow_source::preflight::Finding;

/// Identity of a deployment. It stays the same as long as positions of different sessions are
/// comparable: through elections, restarts and changes of members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) kind: DeploymentKind,
    /// The deployment's own random id, if the account may read it.
    pub(crate) id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeploymentKind {
    /// Replica set with its name.
    ReplicaSet(String),
    /// Sharded cluster behind a mongos.
    Sharded,
    /// Standalone server: no oplog, so no change stream and no cluster time.
    Standalone,
}

impl Identity {
    /// Returns whether both are one deployment, as far as both accounts may know.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.kind == other.kind && (self.id == other.id || self.id.is_none() || other.id.is_none())
    }

    /// Returns the incarnation for positions of this deployment.
    pub(crate) fn incarnation(&self) -> u64 {
        let hash = digest(&SHA256, self.to_string().as_bytes());
        // A SHA-256 has 32 bytes.
        hash.as_ref().first_chunk::<8>().map_or(0, |front| u64::from_be_bytes(*front))
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            DeploymentKind::ReplicaSet(name) => write!(f, "replica set `{name}`")?,
            DeploymentKind::Sharded => write!(f, "a sharded cluster")?,
            DeploymentKind::Standalone => write!(f, "a standalone server")?,
        }
        match &self.id {
            Some(id) => write!(f, " ({id})"),
            None => Ok(()),
        }
    }
}

/// Answer to a `hello`.
#[derive(Clone, Debug)]
pub(crate) struct Greeting {
    pub(crate) kind: DeploymentKind,
    pub(crate) is_primary: bool,
    /// Newest operation that the server has applied, as the number in a position.
    pub(crate) applied_at: Option<u64>,
    pub(crate) wire_version: i32,
}

/// Sends a `hello` to the server that reads would use.
pub(crate) async fn greet(client: &Client) -> Result<Greeting, Error> {
    let hello = client.database("admin").run_command(doc! { "hello": 1 }).await?;
    let kind = match (hello.get_str("setName"), hello.get_str("msg")) {
        (Ok(name), _) => DeploymentKind::ReplicaSet(name.to_owned()),
        (_, Ok("isdbgrid")) => DeploymentKind::Sharded,
        _ => DeploymentKind::Standalone,
    };
    Ok(Greeting {
        kind,
        is_primary: hello.get_bool("isWritablePrimary").unwrap_or(false),
        applied_at: operation_time(&hello),
        wire_version: hello.get_i32("maxWireVersion").unwrap_or_default(),
    })
}

/// Returns the end of the log, which includes every operation acknowledged before the question was
/// sent. On a replica set this is the primary's newest operation. A mongos queries every shard,
/// because it knows only the operations that passed through it.
pub(crate) async fn log_end(
    database: &Database,
    kind: &DeploymentKind,
) -> Result<Option<u64>, Error> {
    match kind {
        DeploymentKind::Sharded => {
            Ok(operation_time(&database.run_command(doc! { "dbStats": 1 }).await?))
        }
        DeploymentKind::ReplicaSet(_) | DeploymentKind::Standalone => {
            let greeting = greet(database.client()).await?;
            Ok(greeting.applied_at.filter(|_| greeting.is_primary))
        }
    }
}

fn operation_time(answer: &Document) -> Option<u64> {
    let time = answer.get_timestamp("operationTime").ok()?;
    Some(Timestamp { seconds: time.time, increment: time.increment }.at())
}

/// Returns the identity of the deployment that sent the greeting, without its own id if the account
/// may not read it.
///
/// # Errors
/// Returns errors of the driver other than a refusal.
pub(crate) async fn identify(client: &Client, greeting: &Greeting) -> Result<Identity, Error> {
    let answer = match &greeting.kind {
        DeploymentKind::ReplicaSet(_) => {
            client.database("admin").run_command(doc! { "replSetGetConfig": 1 }).await
        }
        DeploymentKind::Sharded => {
            client.database("config").run_command(doc! { "find": "version", "limit": 1 }).await
        }
        DeploymentKind::Standalone => {
            return Ok(Identity { kind: DeploymentKind::Standalone, id: None });
        }
    };
    let id = match answer {
        Ok(document) => own_id(&document),
        // Any refusal is an answer.
        Err(e) if error::code(&e).is_some() => None,
        Err(e) => return Err(e),
    };
    Ok(Identity { kind: greeting.kind.clone(), id })
}

fn own_id(answer: &Document) -> Option<String> {
    let settings = answer.get_document("config").and_then(|c| c.get_document("settings"));
    let of_set = settings.ok().and_then(|s| s.get("replicaSetId"));
    let batch = || {
        answer
            .get_document("cursor")
            .and_then(|c| c.get_array("firstBatch"))
            .ok()?
            .first()?
            .as_document()
    };
    let id = of_set.or_else(|| batch()?.get("clusterId"))?;
    match id {
        Bson::ObjectId(id) => Some(id.to_hex()),
        _ => None,
    }
}

/// Returns the finding that keeps such a server from being read, with or without a feed. The driver
/// itself refuses versions before 4.4.
pub(crate) fn check(greeting: &Greeting) -> Option<Finding> {
    (matches!(greeting.kind, DeploymentKind::ReplicaSet(_)) && !greeting.is_primary).then(|| {
        Finding::new(
            "the server is a secondary: changes show there later than they happen",
            "name the primary, or leave `directConnection` out and name the set (`replicaSet=…`)",
        )
    })
}

/// Returns the finding that keeps such a server from being followed.
pub(crate) fn check_watched(greeting: &Greeting) -> Option<Finding> {
    (greeting.kind == DeploymentKind::Standalone).then(|| {
        Finding::new(
            "the server is a standalone, which has no oplog and so no change stream",
            "start mongod with `--replSet rs0` and run `rs.initiate()` once: \
             one member is enough;\n\
             or set `feed = \"none\"`: then records are as old as their time to live allows",
        )
    })
}
