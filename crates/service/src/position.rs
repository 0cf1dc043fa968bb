//! Read your writes: answers that reflect every commit up to a position (contract, point 3).

use std::sync::Arc;
use std::time::Duration;

use hotrow_admission::byte_budget::AnswerReservation;
use hotrow_answer::http_error::HttpError;
use hotrow_answer::read_requirement::{NO_TIME, refusal};
use hotrow_answer::respond::Provenance;
use hotrow_cache::{Cache, ReadMode, Record};
use hotrow_gate::read::Fetcher;
use hotrow_measure::clock::Nanos;
use hotrow_source::ReadFailure;
use hotrow_telemetry::traces::WaitingRequest;
use hotrow_types::key::Key;
use hotrow_types::version::Position;
use tokio::time::Instant;

use crate::read_all::{Reading, Sought, read_all};

/// Returns an answer that needs neither the feed nor the database: the entry itself proves that it
/// reflects the position, or the feed has passed the position without removing the entry.
pub(crate) fn at_once(
    cache: &Cache<ReadFailure>,
    key: &Key,
    wanted: Position,
    now: Nanos,
) -> Option<(Record, Provenance)> {
    let (record, freshness) = cache.peek_at_least(key, &wanted, now)?;
    let provenance = Provenance::of_hit(freshness, cache.age(&record, now));
    Some((record, provenance))
}

/// Pauses between reads that do not see a delivered change yet: the first, and the longest.
const RETRY: std::ops::Range<Duration> = Duration::from_millis(1)..Duration::from_millis(50);

/// Waits for the feed to pass `wanted`, at most `position_wait`, and then reads as usual; else
/// reads the database, which must have reached it. Repeats, until the request's deadline, while a
/// delivered change is not visible.
///
/// # Errors
/// 400 for a position of another incarnation of the database, 504 for one that it has not reached.
pub(crate) async fn read_at_least(
    (fetcher, cache): (&Arc<Fetcher>, &Cache<ReadFailure>),
    (wait_max, traced): (Duration, Option<&WaitingRequest>),
    (keys, sight, columns): Sought<'_>,
    wanted: Position,
    deadline: Nanos,
) -> Result<(Vec<(Record, Provenance)>, AnswerReservation), HttpError> {
    let until = Instant::now() + deadline.since(Nanos::now());
    let mut size = fetcher.budgets.answer();
    let Some(id) = keys.first().map(Key::collection) else { return Ok((Vec::new(), size)) };
    let progress = &fetcher.of(id).progress;
    let passed = progress.passes((cache, id), wanted, until, wait_max).await.map_err(refusal)?;
    if let Some(waiting) = traced {
        waiting.trace().note_position(passed);
    }
    let mut pause = RETRY.start;
    loop {
        let answers = read_once(
            (fetcher, cache),
            (keys, sight, columns),
            wanted,
            passed,
            deadline,
            &mut size,
        )
        .await?;
        // A hit that is behind came from a fill and is never kept: only fills can be behind (Race
        // B).
        if !answers.iter().any(|(record, _)| record.is_behind()) {
            return Ok((answers, size));
        }
        if Instant::now() + pause >= until {
            return Err(NO_TIME);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RETRY.end);
    }
}

async fn read_once(
    (fetcher, cache): (&Arc<Fetcher>, &Cache<ReadFailure>),
    (keys, sight, columns): Sought<'_>,
    wanted: Position,
    passed: bool,
    deadline: Nanos,
    size: &mut AnswerReservation,
) -> Result<Vec<(Record, Provenance)>, HttpError> {
    let now = Nanos::now();
    let Some(id) = keys.first().map(Key::collection) else { return Ok(Vec::new()) };
    let mode = match sight.hides_existence() {
        true => ReadMode::Revalidate,
        false => cache.mode_at_least(id, passed, now),
    };
    let wanted = (mode == ReadMode::Revalidate).then_some(wanted);
    let reading = Reading { mode, wanted, deadline, note: &|_| {} };
    read_all((fetcher, cache), (keys, sight, columns), &reading, size).await
}
