//! Dispatch of commands by name.

use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, DateTime, Document, doc, oid::ObjectId};

use super::failure::Failure;
use super::filter::filter_matches;
use super::reads::{self, Answer, reply};
use super::store::timestamp;
use super::value::as_integer;
use super::wire::{MESSAGE_BYTES_MAX, Request};
use super::world::{Cursor, Kind, Shared, World};
use super::{indexes, transactions, writes};

/// Member and connection of a command.
pub struct ConnectionContext {
    pub member: usize,
    pub connection: u64,
}

/// Returns the command's name in the rules and counts of a test: `watch` for the opening of a
/// change stream, otherwise its own.
pub fn label(request: &Request) -> &str {
    let opens = |request: &Request| {
        let first =
            request.body.get_array("pipeline").ok()?.first()?.as_document()?.keys().next()?.clone();
        Some(first == "$changeStream")
    };
    match request.name() {
        "aggregate" if opens(request) == Some(true) => "watch",
        "isMaster" | "ismaster" => "hello",
        name => name,
    }
}

pub fn execute(shared: &Shared, context: &ConnectionContext, request: &Request) -> Answer {
    let name = request.name();
    if !matches!(
        name,
        "hello"
            | "isMaster"
            | "ismaster"
            | "ping"
            | "saslStart"
            | "buildInfo"
            | "endSessions"
            | "killCursors"
    ) {
        check_primary(&shared.lock(), context, request)?;
    }
    let plain = |fields: Document| Ok((reply(&fields)?, None));
    match name {
        "find" => reads::find(shared, request),
        "aggregate" => reads::aggregate(shared, request),
        "getMore" => reads::get_more(shared, request),
        "count" => reads::count(shared, request),
        "insert" | "update" | "delete" => {
            let (done, at) =
                shared.with(|world| Ok((write(world, request)?, world.store.now())))?;
            reads::await_majority(shared, request, at)?;
            plain(done)
        }
        "commitTransaction" | "abortTransaction" => {
            let (done, at) =
                shared.with(|world| Ok((transactions::end(world, request)?, world.store.now())))?;
            reads::await_majority(shared, request, at)?;
            plain(done)
        }
        _ => plain(shared.with(|world| other(world, context, request))?),
    }
}

/// Checks that the member is the primary, unless the command reads from any member.
fn check_primary(
    world: &World,
    context: &ConnectionContext,
    request: &Request,
) -> Result<(), Failure> {
    let preference = request.body.get_document("$readPreference").and_then(|p| p.get_str("mode"));
    let anywhere = matches!(
        preference,
        Ok("secondary" | "secondaryPreferred" | "primaryPreferred" | "nearest")
    );
    if world.kind != Kind::ReplicaSet || world.primary == Some(context.member) {
        return Ok(());
    }
    match request.name() {
        "find" | "aggregate" | "getMore" | "count" if anywhere => Ok(()),
        "find" | "aggregate" | "getMore" | "count" => {
            let failure =
                Failure::new(13435, "NotPrimaryNoSecondaryOk", "not primary and secondaryOk=false");
            Err(failure.labelled(super::failure::RESUMABLE))
        }
        _ => Err(Failure::new(10107, "NotWritablePrimary", "not primary")
            .labelled("RetryableWriteError")),
    }
}

fn write(world: &mut World, request: &Request) -> Result<Document, Failure> {
    if let Some(done) = transactions::write(world, request)? {
        return Ok(done);
    }
    if let Some(done) = transactions::answer_to_retry(world, request) {
        return Ok(done);
    }
    let mut pending = writes::Pending::default();
    let reply = writes::write(&world.store, &mut pending, request)?;
    world.store.apply(pending.effects, false);
    transactions::remember(world, request, &reply);
    Ok(reply)
}

fn other(
    world: &mut World,
    context: &ConnectionContext,
    request: &Request,
) -> Result<Document, Failure> {
    let body = &request.body;
    let database = request.database();
    let ns = |name: &str| (database.to_owned(), body.get_str(name).unwrap_or_default().to_owned());
    let ok = || doc! { "ok": 1.0 };
    Ok(match request.name() {
        "hello" | "isMaster" | "ismaster" => hello(world, context),
        "ping" | "endSessions" | "refreshSessions" => ok(),
        // With any password.
        "saslStart" if body.get_str("mechanism").is_ok_and(|name| name == "PLAIN") => {
            let payload = Binary { subtype: BinarySubtype::Generic, bytes: Vec::new() };
            doc! { "conversationId": 1, "done": true, "payload": payload, "ok": 1.0 }
        }
        "buildInfo" => {
            let parts: Vec<i32> =
                world.version.split('.').filter_map(|part| part.parse().ok()).chain([0]).collect();
            doc! {
                "version": &world.version, "versionArray": parts, "modules": [], "bits": 64,
                "maxBsonObjectSize": 16_777_216, "ok": 1.0,
            }
        }
        "replSetGetConfig" | "replSetGetStatus" if world.kind != Kind::ReplicaSet => {
            return Err(Failure::new(76, "NoReplicationEnabled", "not running with --replSet"));
        }
        "replSetGetConfig" => {
            let members: Vec<Document> = (0_i32..)
                .zip(&world.hosts)
                .map(|(id, host)| doc! { "_id": id, "host": host })
                .collect();
            let settings = doc! { "replicaSetId": world.id };
            let config = doc! {
                "_id": &world.set_name, "version": 1, "term": world.term, "members": members,
                "settings": settings,
            };
            doc! { "config": config, "ok": 1.0 }
        }
        "replSetGetStatus" => status(world, context),
        "dbStats" => doc! { "db": database, "ok": 1.0 },
        "getParameter" => doc! { "featureCompatibilityVersion": { "version": "7.0" }, "ok": 1.0 },
        "appendOplogNote" => {
            world.store.tick();
            ok()
        }
        "create" => {
            let name = ns("create");
            if world.store.collection(&name).is_some() {
                return Err(Failure::new(48, "NamespaceExists", "Collection already exists"));
            }
            let own = [
                "create",
                "$db",
                "lsid",
                "$clusterTime",
                "writeConcern",
                "txnNumber",
                "$readPreference",
            ];
            let options = body.iter().filter(|(name, _)| !own.contains(&name.as_str()));
            world.store.create(
                &name,
                options.map(|(name, value)| (name.clone(), value.clone())).collect(),
            );
            ok()
        }
        "createIndexes" => indexes::create(&mut world.store, &ns("createIndexes"), body)?,
        "dropIndexes" => indexes::drop(&mut world.store, &ns("dropIndexes"), body)?,
        "listIndexes" => indexes::list(&world.store, &ns("listIndexes"))?,
        "collMod" => indexes::modify(&mut world.store, &ns("collMod"), body)?,
        "drop" => {
            if !world.store.drop_collection(&ns("drop")) {
                return Err(Failure::new(26, "NamespaceNotFound", "ns not found"));
            }
            ok()
        }
        "dropDatabase" => {
            world.store.drop_database(database);
            doc! { "dropped": database, "ok": 1.0 }
        }
        "renameCollection" => rename(world, body)?,
        "listCollections" => list_collections(world, request)?,
        "listDatabases" => doc! { "databases": [], "totalSize": 0_i64, "ok": 1.0 },
        "killCursors" => {
            let ids = body.get_array("cursors").cloned().unwrap_or_default();
            let killed: Vec<_> = ids
                .into_iter()
                .filter(|id| as_integer(id).is_some_and(|id| world.cursors.remove(&id).is_some()))
                .collect();
            doc! {
                "cursorsKilled": killed, "cursorsNotFound": [], "cursorsAlive": [],
                "cursorsUnknown": [], "ok": 1.0,
            }
        }
        "saslStart" => {
            return Err(Failure::new(18, "AuthenticationFailed", "Authentication failed."));
        }
        other => {
            return Err(Failure::new(
                59,
                "CommandNotFound",
                &format!("no such command: '{other}'"),
            ));
        }
    })
}

fn hello(world: &mut World, context: &ConnectionContext) -> Document {
    let now = world.store.now();
    let primary = world.kind != Kind::ReplicaSet || world.primary == Some(context.member);
    let mut reply = doc! { "helloOk": true, "isWritablePrimary": primary, "ismaster": primary };
    match world.kind {
        Kind::ReplicaSet => {
            let date = DateTime::from_millis(((now >> 32) * 1000) as i64);
            let op = doc! { "ts": timestamp(now), "t": world.term };
            reply.extend(doc! {
                "setName": &world.set_name, "setVersion": 1, "secondary": !primary,
                "hosts": world.hosts.clone(),
                "me": &world.hosts[context.member],
                "lastWrite": {
                    "opTime": op.clone(), "lastWriteDate": date,
                    "majorityOpTime": op, "majorityWriteDate": date,
                },
            });
            if let Some(primary) = world.primary {
                reply.insert("primary", &world.hosts[primary]);
            }
            if primary {
                reply.insert("electionId", election(world.term));
            }
        }
        Kind::Mongos => _ = reply.insert("msg", "isdbgrid"),
        Kind::Standalone => {}
    }
    reply.extend(doc! {
        "maxBsonObjectSize": 16_777_216, "maxMessageSizeBytes": MESSAGE_BYTES_MAX as i32,
        "maxWriteBatchSize": 100_000, "localTime": DateTime::now(),
        "logicalSessionTimeoutMinutes": 30, "connectionId": context.connection as i64,
        "minWireVersion": 0, "maxWireVersion": world.wire_version, "readOnly": false, "ok": 1.0,
    });
    reply
}

/// Returns the id of an election; as on a real server, later elections have larger ids.
fn election(term: i64) -> ObjectId {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff]);
    bytes[4..].copy_from_slice(&term.to_be_bytes());
    ObjectId::from_bytes(bytes)
}

fn status(world: &mut World, context: &ConnectionContext) -> Document {
    let op = doc! { "ts": timestamp(world.store.now()), "t": world.term };
    let majority = doc! { "ts": timestamp(world.store.visible()), "t": world.term };
    let primary = world.primary;
    let members: Vec<Document> = world
        .hosts
        .iter()
        .enumerate()
        .map(|(n, host)| {
            let state = if primary == Some(n) { "PRIMARY" } else { "SECONDARY" };
            doc! { "_id": n as i32, "name": host, "stateStr": state, "self": n == context.member }
        })
        .collect();
    doc! {
        "set": &world.set_name, "date": DateTime::now(),
        "myState": if primary == Some(context.member) { 1 } else { 2 },
        "term": world.term, "optimes": { "lastCommittedOpTime": majority, "appliedOpTime": op },
        "members": members, "ok": 1.0,
    }
}

fn rename(world: &mut World, body: &Document) -> Result<Document, Failure> {
    let split = |name: &str| {
        let (database, collection) = body.get_str(name).ok()?.split_once('.')?;
        Some((database.to_owned(), collection.to_owned()))
    };
    let names = split("renameCollection").zip(split("to"));
    let (from, to) =
        names.ok_or_else(|| Failure::new(73, "InvalidNamespace", "a name without a database"))?;
    if world.store.collection(&to).is_some() && !body.get_bool("dropTarget").unwrap_or(false) {
        return Err(Failure::new(48, "NamespaceExists", "target namespace exists"));
    }
    if !world.store.rename(&from, &to) {
        return Err(Failure::new(26, "NamespaceNotFound", "Source collection does not exist"));
    }
    Ok(doc! { "ok": 1.0 })
}

fn list_collections(world: &mut World, request: &Request) -> Result<Document, Failure> {
    let filter = request.body.get_document("filter").cloned().unwrap_or_default();
    let mut batch = Vec::new();
    for (name, collection) in world.store.collections(request.database()) {
        let kind = match &collection.options {
            options if options.contains_key("viewOn") => "view",
            options if options.contains_key("timeseries") => "timeseries",
            _ => "collection",
        };
        let uuid = mongodb::bson::Uuid::from_bytes(collection.uuid);
        let mut listed = doc! { "name": name, "type": kind, "options": collection.options.clone() };
        if kind == "collection" {
            listed.insert("info", doc! { "readOnly": false, "uuid": uuid });
            listed.insert("idIndex", doc! { "v": 2, "key": { "_id": 1 }, "name": "_id_" });
        } else {
            listed.insert("info", doc! { "readOnly": kind == "view" });
        }
        if filter_matches(&filter, &listed)? {
            batch.push(listed);
        }
    }
    let ns = format!("{}.$cmd.listCollections", request.database());
    Ok(doc! { "cursor": { "id": 0_i64, "ns": ns, "firstBatch": batch }, "ok": 1.0 })
}

pub fn streams(world: &World) -> usize {
    world.cursors.values().filter(|cursor| matches!(cursor, Cursor::Stream { .. })).count()
}
