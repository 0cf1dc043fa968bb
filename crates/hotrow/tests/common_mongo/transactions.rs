//! Transactions of several documents: writes are kept until the commit, which makes them all at one cluster time. Reads
//! within a transaction are not known here.

use mongodb::bson::{Document, doc};

use super::failure::Failure;
use super::wire::Request;
use super::world::{TRANSACTIONS_MAX, World};
use super::writes::{self, Pending};

/// A write within a transaction; `None`: it is in none.
pub(super) fn write(world: &mut World, request: &Request) -> Result<Option<Document>, Failure> {
    let Some((session, number)) = named(request) else { return Ok(None) };
    if request.body.get_bool("startTransaction").unwrap_or(false) {
        if world.transactions.len() >= TRANSACTIONS_MAX {
            return Err(Failure::bad_value("too many transactions"));
        }
        world.transactions.insert(session.clone(), (number, Pending::default()));
    }
    let mut pending = match world.transactions.remove(&session) {
        Some((own, pending)) if own == number => pending,
        _ => return Err(none()),
    };
    let written = writes::write(&world.store, &mut pending, request);
    // As in a server, an error ends the transaction.
    let failed = written.as_ref().map_or(true, |reply| reply.contains_key("writeErrors"));
    if !failed {
        world.transactions.insert(session, (number, pending));
    }
    written.map(Some)
}

/// Commits or aborts.
pub(super) fn end(world: &mut World, request: &Request) -> Result<Document, Failure> {
    let (session, number) = named(request).ok_or_else(none)?;
    match world.transactions.remove(&session) {
        Some((own, pending)) if own == number => {
            if request.name() == "commitTransaction" {
                if !pending.effects.is_empty() {
                    world.store.apply(pending.effects, true);
                }
                keep(world, session, number, doc! { "ok": 1.0 });
            }
            Ok(doc! { "ok": 1.0 })
        }
        // Sent again, for its answer was lost.
        None if request.name() == "commitTransaction" && made(world, &session, number).is_some() => {
            Ok(doc! { "ok": 1.0 })
        }
        _ => Err(none()),
    }
}

/// What was answered to a write that is sent again because its answer was lost.
pub(super) fn made_before(world: &World, request: &Request) -> Option<Document> {
    let (session, number) = retryable(request)?;
    made(world, &session, number)
}

/// Remembers the answer to a write that may be sent again.
pub(super) fn remember(world: &mut World, request: &Request, reply: &Document) {
    if let Some((session, number)) = retryable(request) {
        keep(world, session, number, reply.clone());
    }
}

fn keep(world: &mut World, session: Vec<u8>, number: i64, reply: Document) {
    if world.made.len() >= TRANSACTIONS_MAX {
        world.made.pop_first();
    }
    world.made.insert(session, (number, reply));
}

fn made(world: &World, session: &[u8], number: i64) -> Option<Document> {
    world.made.get(session).filter(|(own, _)| *own == number).map(|(_, reply)| reply.clone())
}

fn none() -> Failure {
    Failure::new(251, "NoSuchTransaction", "there is no such transaction").labelled("TransientTransactionError")
}

/// The session and the transaction that a command is of.
fn named(request: &Request) -> Option<(Vec<u8>, i64)> {
    if request.body.get_bool("autocommit").unwrap_or(true) {
        return None;
    }
    retryable(request)
}

fn retryable(request: &Request) -> Option<(Vec<u8>, i64)> {
    let session = request.body.get_document("lsid").ok()?.to_vec().ok()?;
    Some((session, request.body.get("txnNumber").and_then(super::value::as_integer)?))
}
