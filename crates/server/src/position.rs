//! Read your writes: answers that reflect every commit up to a position (contract, point 3).

use std::sync::Arc;
use std::time::Duration;

use hotrow_cache::key::Key;
use hotrow_cache::version::Position;
use hotrow_cache::{Lookup, Quality, Record, Wish};
use hotrow_measure::clock::Nanos;
use http::HeaderValue;
use tokio::time::Instant;

use crate::metrics::CacheOutcome;
use crate::problem::Problem;
use crate::read::{lead, wait};
use crate::respond::Provenance;
use crate::shared::{Collection, Shared};

const NO_TIME: Problem = Problem::Timeout("the database has not reached the wanted position");

/// The position that a request wants.
///
/// # Errors
/// 400 where the collection does not grant it, or the text is no position.
pub(crate) fn wanted(collection: &Collection, value: &HeaderValue) -> Result<Position, Problem> {
    if !collection.allow_min_position {
        return Err(Problem::BadHeader("this collection does not grant Hotrow-Min-Position (allow_min_position)"));
    }
    let text = value.to_str().map_err(|_| BAD)?;
    Position::parse(text).map_err(|_| BAD)
}

const BAD: Problem = Problem::BadHeader(
    "Hotrow-Min-Position is no position: 16 hexadecimal digits, a hyphen and a decimal number, as in an earlier Hotrow-Position",
);

/// An answer that needs neither the feed nor the database: the entry itself proves that it reflects the position, or the
/// feed has already passed the position and left the entry standing.
pub(crate) fn at_once(shared: &Arc<Shared>, key: &Key, wanted: Position, now: Nanos) -> Option<(Record, Provenance)> {
    let passed = shared.cache.applied().is_some_and(|applied| applied.reaches(&wanted));
    // `peek`, so that nothing is queued that nobody waits for.
    let (record, quality) = shared.cache.peek(key, now)?;
    let reached = passed || record.reflects().is_some_and(|position| position.reaches(&wanted));
    // A stale answer may be of before a loss, whatever the feed has passed since.
    (reached && quality == Quality::Fresh)
        .then(|| (record.clone(), Provenance::of_hit(quality, shared.cache.age(&record, now))))
}

/// Pauses between reads that do not see a delivered change yet: the first, and the longest.
const RETRY: std::ops::Range<Duration> = Duration::from_millis(1)..Duration::from_millis(50);

/// Waits for the feed to pass `wanted`, at most `position_wait`, and then answers by the ordinary way; else reads the
/// database, which must have reached it. Reads again, until the request's deadline, while a delivered change is not visible.
///
/// # Errors
/// 400 for a position of another incarnation of the database, 504 for one that it has not reached.
pub(crate) async fn read_at_least(
    shared: &Arc<Shared>,
    keys: &[Key],
    wanted: Position,
    deadline: Nanos,
) -> Result<Vec<(Record, Provenance)>, Problem> {
    let until = Instant::now() + deadline.since(Nanos::now());
    let passed = feed_passes(shared, wanted, until).await?;
    let mut pause = RETRY.start;
    loop {
        let answers = read_once(shared, keys, wanted, passed, (deadline, until)).await?;
        // A hit that is behind was a fill's answer once, and is never kept: only fills can be (Race B).
        if !answers.iter().any(|(record, _)| record.is_behind()) {
            return Ok(answers);
        }
        if Instant::now() + pause >= until {
            return Err(NO_TIME);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RETRY.end);
    }
}

async fn read_once(
    shared: &Arc<Shared>,
    keys: &[Key],
    wanted: Position,
    passed: bool,
    (deadline, until): (Nanos, Instant),
) -> Result<Vec<(Record, Provenance)>, Problem> {
    let now = Nanos::now();
    // While the feed is behind, the ordinary way may end in an entry of before a loss, marked as stale.
    let passed = passed && shared.cache.is_current(now);
    let wish = if passed { Wish::Any } else { Wish::New };
    let admit = |cold| shared.breaker.admit(cold, now).map(|()| deadline);
    let lookups = shared.cache.lookup_batch_if(keys, wish, now, admit)?;
    if let Some(key) = keys.first() {
        lead(shared, key.collection());
    }
    let mut answers = Vec::with_capacity(keys.len());
    for (key, lookup) in keys.iter().zip(lookups) {
        let (waiter, outcome) = match lookup {
            Lookup::Hit(record, quality) | Lookup::Negative(record, quality) => {
                let provenance = Provenance::of_hit(quality, shared.cache.age(&record, now));
                answers.push((record, provenance));
                continue;
            }
            Lookup::Wait(waiter) => (waiter, CacheOutcome::Wait),
            Lookup::Fill(waiter) => (waiter, CacheOutcome::Miss),
            Lookup::Bypass(waiter) => (waiter, CacheOutcome::Bypass),
            Lookup::Refused(refusal) => return Err((&refusal).into()),
        };
        let outcome = if passed { outcome } else { CacheOutcome::Bypass };
        let result = tokio::time::timeout_at(until, wait(shared, key.collection(), waiter)).await;
        let record = result.map_err(|_| NO_TIME)?.map_err(|failure| Problem::from(&failure))?;
        if !passed {
            check_reached(&record, wanted)?;
        }
        let age = shared.cache.age(&record, Nanos::now());
        answers.push((record, Provenance { outcome, age }));
    }
    Ok(answers)
}

/// Whether the feed passes the position in time.
async fn feed_passes(shared: &Arc<Shared>, wanted: Position, until: Instant) -> Result<bool, Problem> {
    let deadline = until.min(Instant::now() + shared.limits.position_wait);
    loop {
        let moved = shared.feed_moved.notified();
        tokio::pin!(moved);
        // Registered before the look, so that a move in between is not missed.
        moved.as_mut().enable();
        match shared.cache.applied() {
            Some(applied) if applied.incarnation != wanted.incarnation => return Err(OTHER_LOG),
            Some(applied) if applied.reaches(&wanted) => return Ok(true),
            Some(_) | None => {}
        }
        if tokio::time::timeout_at(deadline, moved).await.is_err() {
            return Ok(false);
        }
    }
}

const OTHER_LOG: Problem =
    Problem::BadHeader("Hotrow-Min-Position belongs to another database, or to one that was replaced");

fn check_reached(record: &Record, wanted: Position) -> Result<(), Problem> {
    match record.position() {
        None => Err(Problem::BadHeader("this database is served without a change log, so it has no positions")),
        Some(position) if position.incarnation != wanted.incarnation => Err(OTHER_LOG),
        Some(position) if position.reaches(&wanted) => Ok(()),
        Some(_) => Err(NO_TIME),
    }
}
