//! From a miss to the database and back: carrying out turns, and waiting for their answers.

use std::sync::Arc;

use hotrow_admit::concurrency::limit::Outcome;
use hotrow_cache::flight::{Failure, Waited, Waiter};
use hotrow_cache::key::CollectionId;
use hotrow_cache::{Answers, Fetched, Record, Turn};
use hotrow_measure::clock::Nanos;
use hotrow_source::{ReadError, ReadSet, Row};

use crate::admit::breaker;
use crate::admit::concurrency::Query;
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
        tell(query, &result, now);
        let name = &shared.collection(turn.collection()).name;
        turn.complete(taken(result, count, name), now);
    }
}

/// Tells the gate how a query ended. One that cannot work says nothing about the database: a dropped table must not make the
/// limit low for all other collections.
fn tell(query: Query<'_>, result: &Result<ReadSet, ReadError>, now: Nanos) {
    let outcome = match result {
        Ok(_) => Outcome::Answered,
        Err(ReadError::Timeout { .. }) => Outcome::TimedOut,
        Err(ReadError::Unavailable { .. }) => Outcome::Failed,
        Err(ReadError::Broken { .. }) => return,
    };
    query.ended(outcome, now);
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hotrow_admit::concurrency::limit::{Config, Kind};

    use super::*;
    use crate::admit::concurrency::Gate;

    /// The limit after 50 rounds of queries, at most four at once, that all end so.
    async fn limit_after(error: &ReadError) -> usize {
        let config = Config { kind: Kind::Gradient, max: 4, tolerance: 2.0, probe_interval: Duration::from_secs(3600) };
        let gate = Gate::new(config, 1);
        for round in 0..50 {
            let mut queries = Vec::new();
            for _ in 0..gate.view().limit {
                let sent_at = Nanos(round * 1_000_000_000);
                queries.push(gate.enter().await.send(CollectionId(0), 1, Duration::ZERO, sent_at));
            }
            let now = Nanos((round + 1) * 1_000_000_000);
            queries.into_iter().for_each(|query| tell(query, &Err(error.clone()), now));
        }
        assert_eq!(gate.view().in_flight, 0);
        gate.view().limit
    }

    #[tokio::test]
    async fn a_collection_that_cannot_be_read_does_not_throttle_the_others() {
        let detail = || "as the test says".to_owned();
        assert_eq!(limit_after(&ReadError::Broken { detail: detail() }).await, 4);
        assert_eq!(limit_after(&ReadError::Unavailable { detail: detail() }).await, 1);
    }
}
