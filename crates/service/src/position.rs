//! Answers that reflect every commit up to a position (contract, point 3), or every commit that had
//! returned when the request was received (point 6).

use std::sync::Arc;
use std::time::Duration;

use hotrow_admission::byte_budget::AnswerReservation;
use hotrow_admission::shed::Kind;
use hotrow_answer::context::ReadRequest;
use hotrow_answer::http_error::HttpError;
use hotrow_answer::read_requirement::{
    LeastPosition, NEW_LOG, NO_POSITION_YET, NO_TIME, OTHER_TOKEN, refusal,
};
use hotrow_answer::respond::Provenance;
use hotrow_cache::{Cache, LookupError, ReadMode, Record};
use hotrow_gate::admission::InflightGuard;
use hotrow_gate::read::{Fetcher, SourceReads};
use hotrow_measure::clock::Nanos;
use hotrow_source::looks::LookEnd;
use hotrow_source::{ReadFailure, WriterTokens};
use hotrow_telemetry::traces::WaitingRequest;
use hotrow_types::key::{CollectionId, Key};
use hotrow_types::version::Position;
use hotrow_types::writer_token::WriterToken;
use tokio::time::{Instant, timeout_at};

use crate::admission::request::RequestAdmission;
use crate::read_all::{Reading, Sought, read_all};
use crate::retry::Retry;

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
    // Other requirements wait for the database.
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
    admission: &RequestAdmission,
    id: CollectionId,
    wanted: LeastPosition,
    request: &ReadRequest<'_>,
) -> Result<(Nanos, InflightGuard), HttpError> {
    let shared = &admission.shared;
    match wanted {
        LeastPosition::At(_) | LeastPosition::Token(_) => {
            admission.check_shedding(id, Kind::Bypass, request.headers)?;
            shared.admit_privileged(request)
        }
        LeastPosition::Now => {
            admission.check_shedding(id, Kind::Miss, request.headers)?;
            Ok((shared.deadline(request)?, shared.inflight.enter(false)?))
        }
    }
}

/// Times up to which a request waits.
#[derive(Clone, Copy)]
pub(crate) struct Deadlines {
    /// Deadline of the request.
    pub(crate) until: Instant,
    /// Longest wait for the feed.
    pub(crate) wait_max: Duration,
}

impl Deadlines {
    fn of_wait(self) -> Instant {
        self.until.min(Instant::now() + self.wait_max)
    }
}

/// Returns the position that a writer's token means. `None`: it means a transaction that the server
/// has committed by now, so that a strict answer reflects it.
///
/// # Errors
/// 400 for a token of another kind of database, 503 while the log is new or unknown, 504 for a
/// transaction that the server has not committed.
pub(crate) async fn position_of(
    (fetcher, cache): (&Fetcher, &Cache<ReadFailure>),
    id: CollectionId,
    token: WriterToken,
    deadlines: Deadlines,
) -> Result<Option<Position>, HttpError> {
    let reads = fetcher.of(id);
    let at = match (reads.source.writer_tokens(), token) {
        (WriterTokens::Lsns, WriterToken::Lsn(at))
        | (WriterTokens::Optimes, WriterToken::Optime(at)) => at,
        (WriterTokens::MariaDbGtids, WriterToken::MariaDbGtid { .. })
        | (WriterTokens::MySqlGtids, WriterToken::MySqlGtid(_)) => {
            await_committed(reads, token, deadlines.until).await?;
            return Ok(None);
        }
        _ => return Err(OTHER_TOKEN),
    };
    let applied = cache.applied(reads.id).ok_or(NO_POSITION_YET)?;
    if reads.progress.is_new_log(Nanos::now(), deadlines.wait_max) {
        return Err(NEW_LOG);
    }
    Ok(Some(Position { incarnation: applied.incarnation, at }))
}

/// Waits until the server that is read has committed a transaction.
async fn await_committed(
    reads: &SourceReads,
    token: WriterToken,
    until: Instant,
) -> Result<(), HttpError> {
    let mut retry = Retry::until(until);
    loop {
        match timeout_at(until, reads.source.has_committed(token)).await {
            Ok(Ok(true)) => return Ok(()),
            Ok(Ok(false)) => {}
            Ok(Err(e)) => return Err(HttpError::from(&LookupError::Source(ReadFailure::from(&e)))),
            Err(_) => return Err(NO_TIME),
        }
        if !retry.pause().await {
            return Err(NO_TIME);
        }
    }
}

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
    let deadlines = Deadlines { until, wait_max };
    let wanted = match wanted {
        LeastPosition::At(wanted) => Some(wanted),
        LeastPosition::Token(token) => position_of((fetcher, cache), id, token, deadlines).await?,
        LeastPosition::Now => None,
    };
    let wanted = match wanted {
        Some(wanted) => wanted,
        None => {
            let mode = strict_mode(fetcher, id, deadlines).await?;
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
    let mut retry = Retry::until(until);
    loop {
        let answers =
            read_once((fetcher, cache), sought, (wanted, passed), deadline, &mut size).await?;
        // A hit that is behind came from a fill and is never kept: only fills can be behind (Race
        // B).
        if !answers.iter().any(|(record, _)| record.is_behind()) {
            return Ok((answers, size));
        }
        if !retry.pause().await {
            return Err(NO_TIME);
        }
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
    deadlines: Deadlines,
) -> Result<ReadMode, HttpError> {
    let wait = fetcher.of(id).looks.wait(Nanos::now());
    match timeout_at(deadlines.of_wait(), wait).await {
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
