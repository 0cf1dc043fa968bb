//! Which deployment it is, and what it can.

use std::fmt;

use mongodb::bson::{Bson, Document, doc};
use mongodb::error::Error;
use mongodb::{Client, Database};
use ring::digest::{SHA256, digest};

use super::bson::Timestamp;
use super::error;
use crate::findings::Finding;

/// What stays the same as long as positions of one session mean the same in another: through elections, restarts and
/// changes of members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) kind: Kind,
    /// The deployment's own random id, where the account may read it.
    pub(crate) id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The set's name.
    ReplicaSet(String),
    /// Behind a mongos.
    Sharded,
    /// No oplog, so no change stream and no cluster time.
    Standalone,
}

impl Identity {
    /// Whether the two are one deployment, as far as both accounts can tell.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.kind == other.kind && (self.id == other.id || self.id.is_none() || other.id.is_none())
    }

    /// The number that positions carry.
    pub(crate) fn incarnation(&self) -> u64 {
        let hash = digest(&SHA256, self.to_string().as_bytes());
        // A SHA-256 has 32 bytes.
        hash.as_ref().first_chunk::<8>().map_or(0, |front| u64::from_be_bytes(*front))
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::ReplicaSet(name) => write!(f, "replica set `{name}`")?,
            Kind::Sharded => write!(f, "a sharded cluster")?,
            Kind::Standalone => write!(f, "a standalone server")?,
        }
        match &self.id {
            Some(id) => write!(f, " ({id})"),
            None => Ok(()),
        }
    }
}

/// What a `hello` tells.
#[derive(Clone, Debug)]
pub(crate) struct Greeting {
    pub(crate) kind: Kind,
    pub(crate) is_primary: bool,
    /// The newest operation that the server has applied, as a position has it.
    pub(crate) applied_at: Option<u64>,
}

/// Asks the server that would be read who it is.
///
/// # Errors
/// Of the driver.
pub(crate) async fn greet(client: &Client) -> Result<Greeting, Error> {
    let hello = client.database("admin").run_command(doc! { "hello": 1 }).await?;
    let kind = match (hello.get_str("setName"), hello.get_str("msg")) {
        (Ok(name), _) => Kind::ReplicaSet(name.to_owned()),
        (_, Ok("isdbgrid")) => Kind::Sharded,
        _ => Kind::Standalone,
    };
    Ok(Greeting {
        kind,
        is_primary: hello.get_bool("isWritablePrimary").unwrap_or(false),
        applied_at: operation_time(&hello),
    })
}

/// Where the log ends, with everything before it that was acknowledged when the question was sent: on a replica set the
/// primary's newest operation; a mongos has to ask every shard, for it knows only what went through it.
///
/// # Errors
/// Of the driver.
pub(crate) async fn log_end(database: &Database, kind: &Kind) -> Result<Option<u64>, Error> {
    match kind {
        Kind::Sharded => Ok(operation_time(&database.run_command(doc! { "dbStats": 1 }).await?)),
        Kind::ReplicaSet(_) | Kind::Standalone => {
            let greeting = greet(database.client()).await?;
            Ok(greeting.applied_at.filter(|_| greeting.is_primary))
        }
    }
}

fn operation_time(answer: &Document) -> Option<u64> {
    let time = answer.get_timestamp("operationTime").ok()?;
    Some(Timestamp { seconds: time.time, increment: time.increment }.at())
}

/// The deployment that has greeted so. Its own id is left out where the account may not read it.
///
/// # Errors
/// Of the driver, but for a refusal.
pub(crate) async fn identify(client: &Client, greeting: &Greeting) -> Result<Identity, Error> {
    let asked = match &greeting.kind {
        Kind::ReplicaSet(_) => client.database("admin").run_command(doc! { "replSetGetConfig": 1 }).await,
        Kind::Sharded => client.database("config").run_command(doc! { "find": "version", "limit": 1 }).await,
        Kind::Standalone => return Ok(Identity { kind: Kind::Standalone, id: None }),
    };
    let id = match asked {
        Ok(answer) => own_id(&answer),
        // Whatever it refuses with, it has answered.
        Err(e) if error::code(&e).is_some() => None,
        Err(e) => return Err(e),
    };
    Ok(Identity { kind: greeting.kind.clone(), id })
}

fn own_id(answer: &Document) -> Option<String> {
    let settings = answer.get_document("config").and_then(|c| c.get_document("settings"));
    let of_set = settings.ok().and_then(|s| s.get("replicaSetId"));
    let batch = || answer.get_document("cursor").and_then(|c| c.get_array("firstBatch")).ok()?.first()?.as_document();
    let id = of_set.or_else(|| batch()?.get("clusterId"))?;
    match id {
        Bson::ObjectId(id) => Some(id.to_hex()),
        _ => None,
    }
}

/// What keeps such a server from being read, whether or not it is watched. Versions before 4.4 the driver refuses.
pub(crate) fn check(greeting: &Greeting) -> Option<Finding> {
    (matches!(greeting.kind, Kind::ReplicaSet(_)) && !greeting.is_primary).then(|| {
        Finding::new(
            "the server is a secondary: changes show there later than they happen",
            "name the primary, or leave `directConnection` out and name the set (`replicaSet=…`)",
        )
    })
}

/// What keeps it from being watched.
pub(crate) fn check_watched(greeting: &Greeting) -> Option<Finding> {
    (greeting.kind == Kind::Standalone).then(|| {
        Finding::new(
            "the server is a standalone, which has no oplog and so no change stream",
            "start mongod with `--replSet rs0` and run `rs.initiate()` once: one member is enough;\n\
             or set `feed = \"none\"`: then records are as old as their time to live allows",
        )
    })
}
