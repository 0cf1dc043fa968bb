//! Read your writes: answers that reflect every commit up to a position (contract, point 3).

use std::sync::Arc;
use std::time::Duration;

use hotrow_admission::byte_budget::AnswerReservation;
use hotrow_cache::{Cache, NotReached, ReadMode, Record, StandbyBound};
use hotrow_measure::clock::Nanos;
use hotrow_source::ReadFailure;
use hotrow_telemetry::traces::WaitingRequest;
use hotrow_types::key::{CollectionId, Key};
use hotrow_types::source::SourceId;
use hotrow_types::version::Position;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::collections::Collection;
use crate::http_error::HttpError;
use crate::read::Fetcher;
use crate::read_all::{Reading, Sought, read_all};
use crate::respond::Provenance;

pub(crate) const NO_TIME: HttpError =
    HttpError::Timeout("the database has not reached the requested position");

/// Parses the requested position.
///
/// # Errors
/// 400 if the collection does not permit it, or the text is not a position.
pub(crate) fn wanted(collection: &Collection, value: &[u8]) -> Result<Position, HttpError> {
    if !collection.allow_min_position {
        return Err(HttpError::BadHeader(
            "this collection does not permit Hotrow-Min-Position (allow_min_position)",
        ));
    }
    let text = std::str::from_utf8(value).map_err(|_| BAD)?;
    Position::parse(text).map_err(|_| BAD)
}

const BAD: HttpError = HttpError::BadHeader(
    "Hotrow-Min-Position is not a position: 16 hexadecimal digits, a hyphen and a decimal number, \
     as in an earlier Hotrow-Position",
);

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

/// Progress of the feed, for requests that wait for a position.
#[derive(Debug, Default)]
pub(crate) struct FeedProgress {
    /// Notified whenever the feed progresses.
    moved: Notify,
}

impl FeedProgress {
    /// Wakes the requests that wait, after the cache has applied changes.
    pub(crate) fn moved(&self) {
        self.moved.notify_waiters();
    }

    /// Waits until the feed has delivered what a standby's answer may show. Returns a point past
    /// all of it; `None` after `wait_max`.
    pub(crate) async fn delivered_through(
        &self,
        (cache, source): (&Cache<ReadFailure>, SourceId),
        floor: Position,
        bound: StandbyBound,
        wait_max: Duration,
    ) -> Option<Position> {
        let deadline = Instant::now() + wait_max;
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            // Registered before the check, so that progress in between is not missed.
            moved.as_mut().enable();
            let through = cache.delivered_through(source, floor, bound);
            if through.is_some() || tokio::time::timeout_at(deadline, moved).await.is_err() {
                return through;
            }
        }
    }

    /// Returns whether the feed passes the position within `wait_max`, and before `until`.
    async fn passes(
        &self,
        (cache, collection): (&Cache<ReadFailure>, CollectionId),
        wanted: Position,
        until: Instant,
        wait_max: Duration,
    ) -> Result<bool, HttpError> {
        let deadline = until.min(Instant::now() + wait_max);
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            // Registered before the check, so that progress in between is not missed.
            moved.as_mut().enable();
            if cache.has_passed(collection, &wanted).map_err(refusal)? {
                return Ok(true);
            }
            if tokio::time::timeout_at(deadline, moved).await.is_err() {
                return Ok(false);
            }
        }
    }
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
    let passed = progress.passes((cache, id), wanted, until, wait_max).await?;
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

const OTHER_LOG: HttpError = HttpError::BadHeader(
    "Hotrow-Min-Position belongs to another database, or to one that was replaced",
);

pub(crate) fn refusal(not_reached: NotReached) -> HttpError {
    match not_reached {
        NotReached::OtherLog => OTHER_LOG,
        NotReached::NoPositions => HttpError::BadHeader(
            "this database is served without a change log, so it has no positions",
        ),
        NotReached::Beyond => NO_TIME,
    }
}
