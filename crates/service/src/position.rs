//! Answers that reflect every commit up to a position (contract, point 3), or every commit that had
//! returned when the request was received (point 6).

use std::sync::Arc;
use std::time::Duration;

use hotrow_admission::byte_budget::AnswerReservation;
use hotrow_admission::shed::Kind;
use hotrow_answer::context::ReadRequest;
use hotrow_answer::http_error::HttpError;
use hotrow_answer::read_requirement::{LeastPosition, NO_TIME, refusal};
use hotrow_answer::respond::Provenance;
use hotrow_cache::{Cache, ReadMode, Record};
use hotrow_gate::admission::InflightGuard;
use hotrow_gate::read::Fetcher;
use hotrow_measure::clock::Nanos;
use hotrow_source::ReadFailure;
use hotrow_source::looks::LookEnd;
use hotrow_telemetry::traces::WaitingRequest;
use hotrow_types::key::{CollectionId, Key};
use hotrow_types::version::Position;
use tokio::time::Instant;

use crate::read_all::{Reading, Sought, read_all};
use crate::reads::Reads;

/// Records, or their absence, in the order of the keys.
type Found = Vec<(Record, Provenance)>;

/// Returns an answer that needs neither the feed nor the database: the entry itself proves that it
/// reflects the position, or the feed has passed the position without removing the entry.
pub(crate) fn at_once(
    cache: &Cache<ReadFailure>,
    key: &Key,
    wanted: LeastPosition,
    now: Nanos,
) -> Option<(Record, Provenance)> {
    let LeastPosition::At(wanted) = wanted else { return None };
    let (record, freshness) = cache.peek_at_least(key, &wanted, now)?;
    let provenance = Provenance::of_hit(freshness, cache.age(&record, now));
    Some((record, provenance))
}

/// Admits a request that waits for the feed. Returns its deadline, and its place among the requests
/// in flight. A strict one is mostly answered from memory, and is no heavier than a miss.
///
/// # Errors
/// [`HttpError::Shed`], [`HttpError::BadHeader`], or no place is left.
pub(crate) fn admit(
    reads: &Reads,
    id: CollectionId,
    wanted: LeastPosition,
    request: &ReadRequest<'_>,
) -> Result<(Nanos, InflightGuard), HttpError> {
    let shared = &reads.admission.shared;
    match wanted {
        LeastPosition::At(_) => {
            reads.admission.check_shedding(id, Kind::Bypass, request.headers)?;
            shared.admit_privileged(request)
        }
        LeastPosition::Now => {
            reads.admission.check_shedding(id, Kind::Miss, request.headers)?;
            Ok((shared.deadline(request)?, shared.inflight.enter(false)?))
        }
    }
}

/// Pauses between reads that do not see a delivered change yet: the first, and the longest.
const RETRY: std::ops::Range<Duration> = Duration::from_millis(1)..Duration::from_millis(50);

/// Waits for the feed to pass `wanted`, at most `position_wait`, and then reads as usual; else
/// reads the database, which must have reached it. `keys` are of one collection.
///
/// # Errors
/// 400 for a position of another incarnation of the database, 504 for one that it has not reached.
pub(crate) async fn read_at_least(
    (fetcher, cache): (&Arc<Fetcher>, &Cache<ReadFailure>),
    (wait_max, traced): (Duration, Option<&WaitingRequest>),
    sought: Sought<'_>,
    wanted: LeastPosition,
    deadline: Nanos,
) -> Result<(Found, AnswerReservation), HttpError> {
    let until = Instant::now() + deadline.since(Nanos::now());
    let mut size = fetcher.budgets.answer();
    let Some(id) = sought.0.first().map(Key::collection) else { return Ok((Vec::new(), size)) };
    let wanted = match wanted {
        LeastPosition::At(wanted) => wanted,
        LeastPosition::Now => {
            let mode = strict_mode(fetcher, id, until, wait_max).await?;
            traced.into_iter().for_each(|waiting| waiting.trace().note_position(is_passed(mode)));
            let found =
                read_strictly((fetcher, cache), sought, (mode, deadline), &mut size).await?;
            return Ok((found, size));
        }
    };
    let progress = &fetcher.of(id).progress;
    let passed = progress.passes((cache, id), wanted, until, wait_max).await.map_err(refusal)?;
    if let Some(waiting) = traced {
        waiting.trace().note_position(passed);
    }
    let mut pause = RETRY.start;
    loop {
        let answers =
            read_once((fetcher, cache), sought, (wanted, passed), deadline, &mut size).await?;
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
    sought: Sought<'_>,
    (wanted, passed): (Position, bool),
    deadline: Nanos,
    size: &mut AnswerReservation,
) -> Result<Found, HttpError> {
    let (keys, sight, _) = sought;
    let Some(id) = keys.first().map(Key::collection) else { return Ok(Vec::new()) };
    let mode = match sight.hides_existence() {
        true => ReadMode::Revalidate,
        false => cache.mode_at_least(id, passed, Nanos::now()),
    };
    let wanted = (mode == ReadMode::Revalidate).then_some(wanted);
    let reading = Reading { mode, wanted, deadline, note: &|_| {} };
    read_all((fetcher, cache), sought, &reading, size).await
}

/// Waits until the feed has passed a look that is sent from now on, at most `wait_max`. Returns the
/// mode of the lookups: memory may answer, or only a read that begins now.
///
/// # Errors
/// 400: the database allows no strict answers.
pub(crate) async fn strict_mode(
    fetcher: &Fetcher,
    id: CollectionId,
    until: Instant,
    wait_max: Duration,
) -> Result<ReadMode, HttpError> {
    let wait = fetcher.of(id).looks.wait(Nanos::now());
    match tokio::time::timeout_at(until.min(Instant::now() + wait_max), wait).await {
        Ok(LookEnd::Passed(since)) => Ok(ReadMode::Strict(since)),
        Ok(LookEnd::NotFollowed) | Err(_) => Ok(ReadMode::Revalidate),
        Ok(LookEnd::Refused(why)) => Err(HttpError::BadHeader(why)),
    }
}

fn is_passed(mode: ReadMode) -> bool {
    matches!(mode, ReadMode::Strict(_))
}

/// Looks up keys in a mode of [`strict_mode`].
async fn read_strictly(
    (fetcher, cache): (&Arc<Fetcher>, &Cache<ReadFailure>),
    sought: Sought<'_>,
    (mode, deadline): (ReadMode, Nanos),
    size: &mut AnswerReservation,
) -> Result<Found, HttpError> {
    let reading = Reading { mode, wanted: None, deadline, note: &|_| {} };
    let found = read_all((fetcher, cache), sought, &reading, size).await?;
    let (_, sight, _) = sought;
    if !is_passed(mode) || !found.iter().any(|(record, _)| sight.must_read_again(record)) {
        return Ok(found);
    }
    let reading = Reading { mode: ReadMode::Revalidate, ..reading };
    read_all((fetcher, cache), sought, &reading, size).await
}
