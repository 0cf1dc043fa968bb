//! `find`, `aggregate`, `getMore` and `count`, and the waits before their answers.

use std::collections::VecDeque;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use mongodb::bson::{Bson, Document, RawArrayBuf, RawDocumentBuf, doc, raw::cstr};

use super::failure::Failure;
use super::filter::filter_matches;
use super::indexes;
use super::shape::project;
use super::store::{Ns, Stored, number};
use super::stream::{Scope, Stream, name, through};
use super::value::{as_integer, canonical};
use super::wire::Request;
use super::world::{Cursor, Kind, Shared, World};
use super::writes::{by_id, parsed};

/// Documents in a first batch, by default.
const FIRST_BATCH: usize = 101;
/// Maximum size of a batch in bytes.
const BATCH_BYTES_MAX: usize = 16_000_000;
/// Default limits of waits: of a read for a time to become visible, and of a stream for an event.
const WAIT: Duration = Duration::from_secs(60);
const AWAIT: Duration = Duration::from_secs(1);

/// Answer, with its operation time unless that is the current time.
pub type Answer = Result<(RawDocumentBuf, Option<u64>), Failure>;

/// Waits until the state required by the read concern is visible. Returns the cluster time to read
/// at, and whether the read is a majority read.
fn await_concern<'a>(
    shared: &'a Shared,
    mut world: MutexGuard<'a, World>,
    request: &Request,
) -> Result<(MutexGuard<'a, World>, u64, bool), Failure> {
    let concern = request.body.get_document("readConcern").cloned().unwrap_or_default();
    // What a majority has at that time.
    let snapshot = concern.get_timestamp("atClusterTime").map(number).ok();
    let is_majority = concern.get_str("level").is_ok_and(|level| level == "majority");
    let majority = is_majority || snapshot.is_some();
    let after = concern.get_timestamp("afterClusterTime").map(number).unwrap_or_default();
    let after = snapshot.unwrap_or(after);
    if after > world.store.now() {
        let text =
            "readConcern afterClusterTime value must not be greater than the current clusterTime";
        return Err(Failure::new(72, "InvalidOptions", text));
    }
    let until = Instant::now() + max_time(request).unwrap_or(WAIT);
    while majority && world.store.visible() < after {
        let in_time;
        (world, in_time) = shared.wait(world, until);
        if !in_time || world.ended {
            return Err(Failure::new(50, "MaxTimeMSExpired", "operation exceeded time limit"));
        }
    }
    let visible = if majority { world.store.visible() } else { u64::MAX };
    let at = snapshot.unwrap_or(visible);
    Ok((world, at, majority))
}

/// Waits, for a write with a majority write concern (the default), until majority reads see it.
pub fn await_majority(shared: &Shared, request: &Request, at: u64) -> Result<(), Failure> {
    let concern =
        request.body.get_document("writeConcern").ok().and_then(|concern| concern.get("w"));
    // Within a transaction only the commit waits.
    let waits = concern.is_none_or(|w| w.as_str() == Some("majority")) && !request.unanswered;
    if !waits
        || request.name() != "commitTransaction"
            && !request.body.get_bool("autocommit").unwrap_or(true)
    {
        return Ok(());
    }
    let mut world = shared.lock();
    let until = Instant::now() + WAIT;
    while world.store.visible() < at && !world.ended {
        let in_time;
        (world, in_time) = shared.wait(world, until);
        if !in_time {
            return Err(Failure::new(
                64,
                "WriteConcernFailed",
                "waiting for replication timed out",
            ));
        }
    }
    Ok(())
}

fn max_time(request: &Request) -> Option<Duration> {
    let ms = request.body.get("maxTimeMS").and_then(as_integer).filter(|ms| *ms > 0)?;
    Some(Duration::from_millis(ms.unsigned_abs()).min(WAIT))
}

fn size(document: &Document, name: &str) -> Option<usize> {
    usize::try_from(document.get(name).and_then(as_integer)?).ok()
}

pub fn find(shared: &Shared, request: &Request) -> Answer {
    let (mut world, at, majority) = await_concern(shared, shared.lock(), request)?;
    let body = &request.body;
    let empty = Document::new();
    let part = |name: &str| body.get_document(name).unwrap_or(&empty);
    let ns = (request.database().to_owned(), body.get_str("find").unwrap_or_default().to_owned());
    indexes::check_hint(&world.store, &ns, body.get("hint"))?;
    let mut found = matching(&world, &ns, part("filter"), at)?;
    sort(&mut found, part("sort"))?;
    let limit = body.get("limit").and_then(as_integer).unwrap_or_default().unsigned_abs() as usize;
    let found = found.into_iter().skip(size(body, "skip").unwrap_or(0));
    let found = found.take(if limit == 0 { usize::MAX } else { limit });
    let shaped = found.map(|stored| match part("projection") {
        all if all.is_empty() => Ok(stored.as_ref().clone()),
        some => project(&stored, some),
    });
    let rest = shaped.collect::<Result<VecDeque<_>, _>>()?;
    let single = body.get_bool("singleBatch").unwrap_or(false);
    let reply =
        first_batch(&mut world, &ns, rest, size(body, "batchSize").unwrap_or(FIRST_BATCH), single)?;
    Ok((reply, majority.then_some(at)))
}

/// Returns the documents that match a filter, in natural order.
fn matching(world: &World, ns: &Ns, filter: &Document, at: u64) -> Result<Vec<Stored>, Failure> {
    let listed = filter.get_document("_id").and_then(|id| id.get_array("$in")).ok();
    let candidates: Vec<Stored> = match (by_id(filter), listed) {
        (Some(id), _) => world.store.at(ns, &canonical(id), at).cloned().into_iter().collect(),
        (None, Some(ids)) => {
            let mut keys: Vec<Vec<u8>> = ids.iter().map(canonical).collect();
            keys.sort();
            keys.dedup();
            keys.iter().filter_map(|key| world.store.at(ns, key, at).cloned()).collect()
        }
        _ => world.store.all_at(ns, at).into_iter().map(|(_, stored)| stored.clone()).collect(),
    };
    let only_ids = filter.len() == usize::from(filter.contains_key("_id"));
    if only_ids && (by_id(filter).is_some() || listed.is_some() || filter.is_empty()) {
        return Ok(candidates);
    }
    let mut found = Vec::new();
    for stored in candidates {
        if filter_matches(filter, &parsed(&stored)?)? {
            found.push(stored);
        }
    }
    Ok(found)
}

fn sort(found: &mut [Stored], by: &Document) -> Result<(), Failure> {
    let Some((field, direction)) = by.iter().next() else { return Ok(()) };
    let descending = as_integer(direction) == Some(-1);
    if field != "$natural" {
        let key = |stored: &Stored| {
            parsed(stored).ok().and_then(|fields| fields.get(field).map(canonical))
        };
        found.sort_by_cached_key(key);
    }
    if descending {
        found.reverse();
    }
    Ok(())
}

/// Executes `aggregate` of a change stream or of documents.
pub fn aggregate(shared: &Shared, request: &Request) -> Answer {
    let stages: Vec<Document> = request
        .body
        .get_array("pipeline")
        .map(Vec::as_slice)
        .unwrap_or_default()
        .iter()
        .filter_map(|s| s.as_document().cloned())
        .collect();
    let database = request.database().to_owned();
    let collection = request.body.get_str("aggregate").ok();
    let cursor = request.body.get_document("cursor").cloned().unwrap_or_default();
    if stages.first().is_some_and(|stage| name(stage) == "$changeStream") {
        let scope = match collection {
            Some(name) => Scope::Collection((database.clone(), name.to_owned())),
            None => Scope::Database(database.clone()),
        };
        let ns = (database, collection.unwrap_or("$cmd.aggregate").to_owned());
        return watch(&mut shared.lock(), &ns, scope, &stages, size(&cursor, "batchSize"));
    }
    let (mut world, at, majority) = await_concern(shared, shared.lock(), request)?;
    let ns = (database, collection.unwrap_or_default().to_owned());
    let mut documents: Vec<RawDocumentBuf> = world
        .store
        .all_at(&ns, at)
        .into_iter()
        .map(|(_, stored)| stored.as_ref().clone())
        .collect();
    for stage in &stages {
        let (name, operand) =
            stage.iter().next().ok_or_else(|| Failure::bad_value("a stage without name"))?;
        documents = staged(name, operand, documents)?;
    }
    let reply = first_batch(
        &mut world,
        &ns,
        documents.into(),
        size(&cursor, "batchSize").unwrap_or(FIRST_BATCH),
        false,
    )?;
    Ok((reply, majority.then_some(at)))
}

/// Passes all documents through one stage.
fn staged(
    name: &str,
    operand: &Bson,
    documents: Vec<RawDocumentBuf>,
) -> Result<Vec<RawDocumentBuf>, Failure> {
    let counted = |field: &str, n: usize| {
        RawDocumentBuf::try_from(&doc! { field: n as i32 }).into_iter().collect()
    };
    let number = as_integer(operand).and_then(|n| usize::try_from(n).ok());
    Ok(match name {
        "$match" | "$project" | "$unset" => {
            let through = documents.into_iter().map(|raw| through(name, operand, raw));
            through.filter_map(Result::transpose).collect::<Result<_, _>>()?
        }
        "$sample" => {
            let sample_size =
                operand.as_document().and_then(|sample| size(sample, "size")).unwrap_or(1).max(1);
            // Spread evenly, so that the sample depends on the documents only.
            let step = (documents.len() / sample_size).max(1);
            documents.into_iter().step_by(step).take(sample_size).collect()
        }
        "$limit" => documents.into_iter().take(number.unwrap_or(0)).collect(),
        "$skip" => documents.into_iter().skip(number.unwrap_or(0)).collect(),
        "$count" => counted(operand.as_str().unwrap_or("count"), documents.len()),
        // The stage with which drivers count.
        "$group" => counted("n", documents.len()),
        other => {
            return Err(Failure::new(
                40324,
                "Location40324",
                &format!("Unrecognized pipeline stage name: '{other}'"),
            ));
        }
    })
}

fn watch(
    world: &mut World,
    ns: &Ns,
    scope: Scope,
    stages: &[Document],
    size: Option<usize>,
) -> Answer {
    if world.kind == Kind::Standalone {
        let text = "The $changeStream stage is only supported on replica sets";
        return Err(Failure::new(40573, "Location40573", text));
    }
    let mut stream = Box::new(Stream::open(&mut world.store, scope, stages)?);
    let batch = stream.next_batch(&mut world.store, size)?;
    let token = stream.token();
    let id = if stream.is_closed() {
        0
    } else {
        world.keep(Cursor::Stream { ns: ns.clone(), stream })?
    };
    Ok((cursor_reply("firstBatch", id, ns, &batch, Some(&token))?, None))
}

pub fn get_more(shared: &Shared, request: &Request) -> Answer {
    let id = request.body.get("getMore").and_then(as_integer).unwrap_or_default();
    let size = size(&request.body, "batchSize").filter(|size| *size > 0);
    let until = Instant::now() + max_time(request).unwrap_or(AWAIT);
    let mut world = shared.lock();
    let term = world.term;
    loop {
        if world.ended || world.term != term {
            let text = "operation was interrupted because all connections to this member were \
                        closed or it is no longer primary";
            return Err(Failure::new(11602, "InterruptedDueToReplStateChange", text)
                .labelled(super::failure::RESUMABLE));
        }
        // Removed from the map while it is processed.
        match world.cursors.remove(&id) {
            None => {
                return Err(Failure::new(
                    43,
                    "CursorNotFound",
                    &format!("cursor id {id} not found"),
                ));
            }
            Some(Cursor::Documents { ns, mut rest }) => {
                let batch = take(&mut rest, size.unwrap_or(usize::MAX));
                let next = if rest.is_empty() { 0 } else { id };
                if next != 0 {
                    world.cursors.insert(id, Cursor::Documents { ns: ns.clone(), rest });
                }
                return Ok((cursor_reply("nextBatch", next, &ns, &batch, None)?, None));
            }
            Some(Cursor::Stream { ns, mut stream }) => {
                let batch = stream.next_batch(&mut world.store, size)?;
                let next = if stream.is_closed() { 0 } else { id };
                let token = stream.token();
                let done = !batch.is_empty() || next == 0 || Instant::now() >= until;
                if next != 0 {
                    world.cursors.insert(id, Cursor::Stream { ns: ns.clone(), stream });
                }
                if done {
                    return Ok((cursor_reply("nextBatch", next, &ns, &batch, Some(&token))?, None));
                }
            }
        }
        (world, _) = shared.wait(world, until);
    }
}

pub fn count(shared: &Shared, request: &Request) -> Answer {
    let (world, at, majority) = await_concern(shared, shared.lock(), request)?;
    let ns = (
        request.database().to_owned(),
        request.body.get_str("count").unwrap_or_default().to_owned(),
    );
    let filter = request.body.get_document("query").cloned().unwrap_or_default();
    let n = matching(&world, &ns, &filter, at)?.len();
    Ok((reply(&doc! { "n": n as i32, "ok": 1.0 })?, majority.then_some(at)))
}

fn first_batch(
    world: &mut World,
    ns: &Ns,
    mut rest: VecDeque<RawDocumentBuf>,
    size: usize,
    single: bool,
) -> Result<RawDocumentBuf, Failure> {
    let batch = take(&mut rest, size);
    let id = if rest.is_empty() || single {
        0
    } else {
        world.keep(Cursor::Documents { ns: ns.clone(), rest })?
    };
    cursor_reply("firstBatch", id, ns, &batch, None)
}

fn take(rest: &mut VecDeque<RawDocumentBuf>, size: usize) -> Vec<RawDocumentBuf> {
    let mut batch = Vec::new();
    let mut bytes = 0;
    while batch.len() < size {
        let Some(next) = rest.front().map(|raw| raw.as_bytes().len()) else { break };
        bytes += next;
        if bytes > BATCH_BYTES_MAX && !batch.is_empty() {
            break;
        }
        batch.extend(rest.pop_front());
    }
    batch
}

fn cursor_reply(
    name: &str,
    id: i64,
    ns: &Ns,
    batch: &[RawDocumentBuf],
    token: Option<&Document>,
) -> Result<RawDocumentBuf, Failure> {
    let mut documents = RawArrayBuf::new();
    batch.iter().for_each(|raw| documents.push(raw));
    let mut cursor = RawDocumentBuf::new();
    cursor.append(
        if name == "firstBatch" { cstr!("firstBatch") } else { cstr!("nextBatch") },
        &documents,
    );
    if let Some(token) = token {
        cursor.append(cstr!("postBatchResumeToken"), &reply(token)?);
    }
    cursor.append(cstr!("id"), id);
    cursor.append(cstr!("ns"), format!("{}.{}", ns.0, ns.1));
    let mut document = RawDocumentBuf::new();
    document.append(cstr!("cursor"), &cursor);
    document.append(cstr!("ok"), 1.0);
    Ok(document)
}

/// Converts a document to its raw form.
pub fn reply(fields: &Document) -> Result<RawDocumentBuf, Failure> {
    RawDocumentBuf::try_from(fields).map_err(|e| Failure::bad_value(&e.to_string()))
}
