//! From a miss to the database and back: carrying out turns, and waiting for their answers.

use std::sync::Arc;

use hotrow_admit::concurrency::limit::Outcome;
use hotrow_cache::flight::{Failure, Waited, Waiter};
use hotrow_cache::key::CollectionId;
use hotrow_cache::{Answers, Fetched, Record, Turn};
use hotrow_measure::clock::Nanos;
use hotrow_source::{ReadError, ReadSet, Row};

use crate::admit::breaker;
use crate::shared::Shared;
use crate::trouble::Trouble;

/// Sends the queries that wait for the collection, if a turn is free, on this worker's runtime.
pub(crate) fn lead(shared: &Arc<Shared>, collection: CollectionId) {
    if let Some(turn) = shared.cache.turn(collection) {
        tokio::spawn(carry_out(shared.clone(), turn));
    }
}

async fn carry_out(shared: Arc<Shared>, mut turn: Turn<Trouble>) {
    loop {
        let pass = shared.gate.enter().await;
        let now = Nanos::now();
        let permit = match breaker::ask(&shared, now) {
            Ok(permit) => permit,
            // What is queued after this finds nobody at work, and leads for itself.
            Err(trouble) => return breaker::give_up(&shared, turn.collection(), trouble),
        };
        let Some(keys) = turn.next_query(now) else { return };
        let count = keys.len();
        let query = pass.send(turn.collection(), count, turn.waited(), now);
        let result = shared.source.read(turn.collection(), keys).await;
        let now = Nanos::now();
        permit.tell(&result, now);
        query.ended(outcome(&result), now);
        let name = &shared.collection(turn.collection()).name;
        turn.complete(taken(result, count, name), now);
    }
}

fn outcome(result: &Result<ReadSet, ReadError>) -> Outcome {
    match result {
        Ok(_) => Outcome::Answered,
        Err(ReadError::Timeout { .. }) => Outcome::TimedOut,
        Err(ReadError::Unavailable { .. } | ReadError::Broken { .. }) => Outcome::Failed,
    }
}

/// Turns what the source says into what the cache takes; causes go to the log here, and nowhere else.
fn taken(result: Result<ReadSet, ReadError>, keys: usize, collection: &str) -> Result<Answers<Trouble>, Trouble> {
    let read = result.map_err(|error| {
        crate::throttle::QUERY_FAILED.warn(|suppressed| {
            tracing::warn!(collection, keys, suppressed, %error, "query failed");
        });
        Trouble::from(&error)
    })?;
    let rows = read.rows.into_iter().map(|row| match row {
        Row::Found(body) => Fetched::Found(body),
        Row::Missing => Fetched::Missing,
        Row::Passing(body) => Fetched::Passing(body),
        Row::Unreadable(cause) => {
            crate::throttle::ROW_UNREADABLE.warn(|suppressed| {
                tracing::warn!(collection, suppressed, cause, "record cannot be turned into JSON");
            });
            Fetched::Failed(Trouble::Unreadable)
        }
    });
    Ok(Answers { version: read.version, position: read.position, rows: rows.collect() })
}

/// Waits for a read that was joined or queued; takes over when its reader was cancelled.
pub(crate) async fn wait(
    shared: &Arc<Shared>,
    collection: CollectionId,
    mut waiter: Waiter<Trouble>,
) -> Result<Record, Failure<Trouble>> {
    loop {
        match (&mut waiter).await {
            Waited::Done(result) => return result,
            Waited::Lead => lead(shared, collection),
        }
    }
}
