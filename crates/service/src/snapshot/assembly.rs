//! A snapshot that memory does not have at once: records are taken, the feed is awaited, and what
//! has changed is read again; in the end one read transaction.
//!
//! The keys are registered first. Each record shows nothing past its position, so once the feed has
//! applied the log up to the largest of these, the records without a change in between are those of
//! the applied point. A record that lacks a delivered change is read again like a changed one.

use hotrow_admission::byte_budget::AnswerReservation;
use hotrow_answer::context::ReadRequest;
use hotrow_answer::http_error::HttpError;
use hotrow_answer::metrics::SnapshotWay;
use hotrow_answer::read_requirement::{NO_TIME, refusal};
use hotrow_answer::respond::Provenance;
use hotrow_cache::{NotReached, ReadMode, Record, SnapshotKeys};
use hotrow_gate::snapshot::read_transaction;
use hotrow_measure::clock::Nanos;
use hotrow_source::ReadFailure;
use hotrow_telemetry::outcome::CacheOutcome;
use hotrow_types::key::{CollectionId, Key};
use hotrow_types::source::SourceId;
use hotrow_types::version::Position;
use tokio::time::Instant;

use super::part::{Found, Part, Taken};
use crate::read_all::{Reading, read_all};
use crate::reads::Reads;
use crate::retry::Retry;

/// Times that changed records are read again before the database is asked for all of them at once.
const REREADS_MAX: usize = 2;

const REPLACED: HttpError = HttpError::Unavailable(
    "the database was replaced while the snapshot was read; send the request again",
);
const NOT_VISIBLE: HttpError = HttpError::Timeout(
    "a change that the log has was not visible in the database before the deadline",
);

/// What a snapshot has to meet.
pub(super) struct Demand {
    pub(super) source: SourceId,
    pub(super) mode: ReadMode,
    /// Least point of the snapshot.
    pub(super) floor: Option<Position>,
    pub(super) deadline: Nanos,
}

/// A snapshot in the making.
pub(super) struct Assembly<'a> {
    reads: &'a Reads,
    parts: &'a [Part],
    demand: Demand,
    request: &'a ReadRequest<'a>,
    keys: SnapshotKeys<ReadFailure>,
    /// By part and place.
    taken: Vec<Vec<Option<Taken>>>,
    /// Reservation of the answer, for what has been taken.
    size: AnswerReservation,
}

impl<'a> Assembly<'a> {
    /// Registers the keys.
    pub(super) fn new(
        reads: &'a Reads,
        parts: &'a [Part],
        demand: Demand,
        request: &'a ReadRequest<'a>,
    ) -> Self {
        let keys = reads.cache.register_snapshot(parts.iter().map(|part| (part.id, part.keys())));
        let taken = parts.iter().map(|part| part.keys().iter().map(|_| None).collect()).collect();
        let size = reads.budgets.answer();
        Self { reads, parts, demand, request, keys, taken, size }
    }

    /// Returns the snapshot, and how it came about.
    ///
    /// # Errors
    /// The refusal of a read; 504 when the feed or the database has not come far enough before the
    /// deadline.
    pub(super) async fn run(mut self) -> Result<(Found, SnapshotWay), HttpError> {
        if let Some(floor) = self.demand.floor
            && !self.await_feed(floor).await.map_err(refusal)?
        {
            return Err(NO_TIME);
        }
        let all = |part: &Part| (0..part.keys().len()).collect();
        let mut missing: Vec<Vec<usize>> = self.parts.iter().map(all).collect();
        for round in 0..=REREADS_MAX {
            let Some(point) = self.take(&missing, round).await? else { break };
            if !self.await_feed(point).await.map_err(|_| REPLACED)? {
                return Err(NO_TIME);
            }
            let applied = self.reads.cache.applied(self.demand.source);
            missing = self.keys.take_changed();
            self.add_hidden(&mut missing);
            // The feed may have been lost since.
            let applied = applied.filter(|applied| applied.reaches(&point));
            if let Some(point) = applied.filter(|_| missing.iter().all(Vec::is_empty)) {
                let way = if round == 0 { SnapshotWay::Awaited } else { SnapshotWay::Reread };
                return Ok((self.found(point), way));
            }
        }
        let point = self.transaction().await?;
        Ok((self.found(point), SnapshotWay::Transaction))
    }

    fn found(self, point: Position) -> Found {
        let records = self.taken.into_iter().map(|part| part.into_iter().flatten().collect());
        Found { records: records.collect(), point, size: self.size }
    }

    /// Reserves what the sender sees of the records that have been taken.
    fn reserve(&mut self) -> Result<(), HttpError> {
        let budgets = &self.reads.budgets;
        let mut bytes = 0;
        let mut ids = 0;
        for (part, taken) in self.parts.iter().zip(&self.taken) {
            let sight = part.view.sight.as_sight();
            bytes += taken.iter().flatten().map(|(record, _)| sight.bytes(record)).sum::<u64>();
            ids += taken.len();
        }
        self.size.restart();
        self.size.add_known(bytes, 0).map_err(|refused| budgets.refused(&refused, ids))
    }

    /// Takes the records at these places from memory, from a read in flight, or from a new one.
    /// Returns the point past which no record shows anything; `None`: their bounds are unknown.
    async fn take(
        &mut self,
        places: &[Vec<usize>],
        round: usize,
    ) -> Result<Option<Position>, HttpError> {
        let cache = &self.reads.cache;
        for ((part, places), taken) in self.parts.iter().zip(places).zip(&mut self.taken) {
            if places.is_empty() {
                continue;
            }
            // A record that was read again after a change is new. A strict snapshot stays strict: a
            // standby may show a commit that the next strict answer would lack.
            let is_forced = part.view.sight.as_sight().hides_existence();
            let mode = match (round, self.demand.mode) {
                _ if is_forced => ReadMode::Revalidate,
                (0, mode) | (_, mode @ ReadMode::Strict(_)) => mode,
                _ => ReadMode::Normal,
            };
            let demand = (self.demand.deadline, self.request);
            let read = read_places(self.reads, part, places, mode, demand).await?;
            // No change ends the lease of a read by another spelling, or marks it.
            let is_hit = |(_, how): &Taken| how.outcome == CacheOutcome::Hit;
            if cache.has_several_spellings(part.id) && !read.iter().all(is_hit) {
                return Ok(None);
            }
            for (place, read) in places.iter().zip(read) {
                taken[*place] = Some(read);
            }
        }
        self.reserve()?;
        let mut largest = self.demand.floor;
        for (record, _) in self.taken.iter().flatten().flatten() {
            let Some(shown) = record.position() else { return Ok(None) };
            match largest {
                Some(largest) if largest.incarnation != shown.incarnation => return Ok(None),
                Some(largest) if largest.reaches(&shown) => {}
                Some(_) | None => largest = Some(shown),
            }
        }
        Ok(largest)
    }

    /// Adds the places of records that lack a delivered change.
    fn add_hidden(&self, missing: &mut [Vec<usize>]) {
        for (places, taken) in missing.iter_mut().zip(&self.taken) {
            let is_behind = |taken: &Option<Taken>| taken.as_ref().is_none_or(|t| t.0.is_behind());
            let hidden = taken.iter().enumerate().filter(|(_, taken)| is_behind(taken));
            let hidden: Vec<usize> =
                hidden.map(|(place, _)| place).filter(|place| !places.contains(place)).collect();
            places.extend(hidden);
        }
    }

    /// Reads all records in one transaction, until it lacks no change up to its point.
    async fn transaction(&mut self) -> Result<Position, HttpError> {
        let Reads { fetcher, cache, .. } = self.reads;
        let deadline = self.demand.deadline;
        let mut retry = Retry::until(Instant::now() + deadline.since(Nanos::now()));
        loop {
            let parts: Vec<(CollectionId, &[Key])> =
                self.parts.iter().map(|part| (part.id, part.keys())).collect();
            self.keys.transaction_sent();
            let read = read_transaction(fetcher, &parts, deadline).await?;
            if !self.await_feed(read.end).await.map_err(|_| REPLACED)? {
                return Err(NO_TIME);
            }
            let is_late = self.demand.floor.is_some_and(|floor| !read.end.reaches(&floor));
            if !self.keys.lacks(&read.version, &read.end) && !is_late {
                let now = Nanos::now();
                let taken = |record: Record| {
                    let age = cache.age(&record, now);
                    Some((record, Provenance { outcome: CacheOutcome::Bypass, age }))
                };
                let records = read.records.into_iter();
                self.taken = records.map(|part| part.into_iter().map(taken).collect()).collect();
                self.reserve()?;
                return Ok(read.end);
            }
            if !retry.pause().await {
                return Err(NOT_VISIBLE);
            }
        }
    }

    /// Returns whether the feed passes the point before the deadline.
    async fn await_feed(&self, point: Position) -> Result<bool, NotReached> {
        let Reads { fetcher, cache, .. } = self.reads;
        let Some(first) = self.parts.first().map(|part| part.id) else { return Ok(true) };
        let left = self.demand.deadline.since(Nanos::now());
        let progress = &fetcher.of(first).progress;
        progress.passes((cache, first), point, Instant::now() + left, left).await
    }
}

/// Looks up the keys at these places of a part. What memory has past its TTL or by policy is read.
async fn read_places(
    reads: &Reads,
    part: &Part,
    places: &[usize],
    mode: ReadMode,
    (deadline, request): (Nanos, &ReadRequest<'_>),
) -> Result<Vec<Taken>, HttpError> {
    let Reads { fetcher, cache, lookups, .. } = reads;
    let columns = part.view.columns.as_ref();
    let mut taken = Vec::new();
    let mut rest: Vec<usize> = (0..places.len()).collect();
    for mode in [mode, ReadMode::Revalidate] {
        let keys: Vec<Key> = rest.iter().map(|at| part.keys()[places[*at]].clone()).collect();
        let subject = lookups.scan_subject(request);
        let note = |lookup: &_| lookups.looked_up(subject, part.id, mode, lookup);
        let reading = Reading { mode, wanted: None, deadline, note: &note };
        let sought = (&keys[..], part.view.sight.as_sight(), columns);
        let mut size = fetcher.budgets.answer();
        let read = read_all((fetcher, cache), sought, &reading, &mut size).await?;
        if taken.is_empty() {
            taken = read;
        } else {
            rest.iter().zip(read).for_each(|(at, read)| taken[*at] = read);
        }
        rest = (0..taken.len()).filter(|at| taken[*at].1.outcome == CacheOutcome::Stale).collect();
        if rest.is_empty() {
            break;
        }
    }
    Ok(taken)
}
