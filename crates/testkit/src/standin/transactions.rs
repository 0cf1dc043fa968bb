//! Transactions of several documents. Writes are kept until the commit, which applies them all at
//! one cluster time. Reads within a transaction are not supported.

use mongodb::bson::{Document, doc};

use super::failure::Failure;
use super::wire::Request;
use super::world::{TRANSACTIONS_MAX, World};
use super::writes::{self, Pending};

/// Executes a write within a transaction; `None` if it belongs to none.
pub fn write(world: &mut World, request: &Request) -> Result<Option<Document>, Failure> {
    let Some((session, number)) = named(request) else { return Ok(None) };
    if request.body.get_bool("startTransaction").unwrap_or(false) {
        if world.transactions.len() >= TRANSACTIONS_MAX {
            return Err(Failure::bad_value("too many transactions"));
        }
        world.transactions.insert(session.clone(), (number, Pending::default()));
    }
    let mut pending = match world.transactions.remove(&session) {
        Some((stored, pending)) if stored == number => pending,
        _ => return Err(none()),
    };
    let written = writes::write(&world.store, &mut pending, request);
    // As on a real server, an error ends the transaction.
    let failed = written.as_ref().map_or(true, |reply| reply.contains_key("writeErrors"));
    if !failed {
        world.transactions.insert(session, (number, pending));
    }
    written.map(Some)
}

/// Commits or aborts.
pub fn end(world: &mut World, request: &Request) -> Result<Document, Failure> {
    let (session, number) = named(request).ok_or_else(none)?;
    match world.transactions.remove(&session) {
        Some((stored, pending)) if stored == number => {
            if request.name() == "commitTransaction" {
                if !pending.effects.is_empty() {
                    world.store.apply(pending.effects, true);
                }
                keep(world, session, number, doc! { "ok": 1.0 });
            }
            Ok(doc! { "ok": 1.0 })
        }
        // A retry, because the answer was lost.
        None if request.name() == "commitTransaction"
            && earlier_answer(world, &session, number).is_some() =>
        {
            Ok(doc! { "ok": 1.0 })
        }
        _ => Err(none()),
    }
}

/// Returns the answer to a write that is sent again because its answer was lost.
pub fn answer_to_retry(world: &World, request: &Request) -> Option<Document> {
    let (session, number) = retryable(request)?;
    earlier_answer(world, &session, number)
}

/// Stores the answer to a write that may be sent again.
pub fn remember(world: &mut World, request: &Request, reply: &Document) {
    if let Some((session, number)) = retryable(request) {
        keep(world, session, number, reply.clone());
    }
}

fn keep(world: &mut World, session: Vec<u8>, number: i64, reply: Document) {
    if world.answered_writes.len() >= TRANSACTIONS_MAX {
        world.answered_writes.pop_first();
    }
    world.answered_writes.insert(session, (number, reply));
}

fn earlier_answer(world: &World, session: &[u8], number: i64) -> Option<Document> {
    world
        .answered_writes
        .get(session)
        .filter(|(stored, _)| *stored == number)
        .map(|(_, reply)| reply.clone())
}

fn none() -> Failure {
    Failure::new(251, "NoSuchTransaction", "there is no such transaction")
        .labelled("TransientTransactionError")
}

/// Returns the session and the transaction number of a command.
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
