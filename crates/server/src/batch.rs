//! Several records in one request. A batch is no snapshot: each record meets the contract on its
//! own.

mod ids;
mod list;
mod render;

use std::rc::Rc;

use hotrow_admission::byte_budget::{AnswerRefused, AnswerReservation};
use hotrow_cache::{Lookup, ReadMode, Record};
use hotrow_measure::clock::Nanos;
use hotrow_source::ReadFailure;
use hotrow_types::key::{CollectionId, Key};
use hotrow_types::version::Position;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response};

use crate::answer::Outcome;
use crate::body::Body;
use crate::budgets::{self, COUNTED_BYTES_MIN};
use crate::connection::request::RequestBody;
use crate::context::{ConnectionContext, PendingRequest, RequestContext, RequestTimes};
use crate::handle::{Handler, Step};
use crate::http_error::HttpError;
use crate::lookups::{LookupKind, mode_of};
use crate::metrics::CacheOutcome;
use crate::position;
use crate::precondition;
use crate::read::{PendingReads, lead};
use crate::read_requirement::ReadRequirement;
use crate::respond::{HOTROW_POSITION, Provenance, describe};
use crate::scan_detector::ScanSubject;
use crate::shared::Shared;
use crate::sight::{Sight, SightBuf, absent_position};

pub(crate) use self::ids::{Ids, parse_query};
#[cfg(any(test, fuzzing))]
pub(crate) use self::list::parse_body;

impl Handler {
    pub(crate) async fn batch_post(
        self: &Rc<Self>,
        id: CollectionId,
        body: RequestBody,
        request: PendingRequest,
    ) -> Outcome {
        let arrived = request.times.arrived;
        let received =
            crate::receive::body(body, self.shared.limits.body_bytes, &self.shared.budgets.bodies)
                .await;
        let schema = &self.shared.collections.get(id).schema;
        let parsed = match received {
            Ok(body) => list::parse_body_in_turns(schema, &self.shared.limits, body.bytes()).await,
            Err(problem) => Err(problem),
        };
        // The body's time is the client's: only its own deadline header counts from the arrival.
        let complete = Nanos::now();
        let times = RequestTimes { arrived, complete, now: complete };
        let request = PendingRequest { times, ..request };
        match self.limited_batch(id, parsed, &request.context()) {
            Step::Now(outcome) => outcome,
            Step::Later(future) => future.await,
        }
    }

    pub(crate) fn batch(
        self: &Rc<Self>,
        id: CollectionId,
        ids: Ids,
        request: &RequestContext<'_>,
    ) -> Step {
        let now = request.times.now;
        if precondition::excludes_untagged(request.headers) {
            return Step::problem(&HttpError::PreconditionFailed(
                "a batch has no entity tag that If-Match could name",
            ));
        }
        let subject = self.scan_subject(request);
        let required = self.mode(id, request);
        let sampled_mode = mode_of(&required, subject);
        let mode = match required {
            Ok(ReadRequirement::None) => subject.mode(),
            Ok(ReadRequirement::New) => ReadMode::Revalidate,
            Ok(ReadRequirement::AtLeast(wanted)) => {
                return self.batch_at_least(id, ids, wanted, request);
            }
            Err(problem) => return Step::Now((problem.response().into(), CacheOutcome::None)),
        };
        let cache = &self.shared.cache;
        self.requested(&ids.keys, sampled_mode, now);
        let budgets = &self.shared.budgets;
        let sight = request.sight;
        let mut answers = self.answers(&ids, budgets.answer(), sight.to_buf());
        let mut unseen = Vec::new();
        // Counted and refreshed when the batch is admitted: otherwise its lookups are made again.
        let mut kinds = Vec::with_capacity(ids.keys.len());
        let mut expired = Vec::new();
        let found = |place, record: Record, freshness| {
            if sight.must_read_again(&record) {
                return unseen.push(place);
            }
            kinds.push(LookupKind::of_memory(&record, freshness));
            if self.may_refresh(freshness, now) {
                expired.push(place);
            }
            let provenance = Provenance::of_hit(freshness, cache.age(&record, now));
            answers.put(place, record, provenance);
        };
        let mut deadline = now;
        let mut size = None;
        let mut rows = 0;
        let mut admit = |cold| {
            deadline = self.admit_reads(id, mode, cold, request)?;
            rows += cold;
            // Before anything is queued: rows without room are not read.
            size = None;
            size = Some(budgets.answer_of_rows(id, rows)?);
            Ok(deadline)
        };
        let others = cache.lookup_batch_with(&ids.keys, mode, now, found, &mut admit);
        let others = others.and_then(|others| {
            // Queued beside the cold keys, before a query is sent.
            let again = self.lookup_again(&ids, &unseen, now, &mut admit)?;
            Ok(others.into_iter().chain(again))
        });
        let others = match others {
            Ok(others) => others,
            Err(problem @ HttpError::BadHeader(_)) => return Step::problem(&problem),
            Err(problem) => {
                return Step::Now(self.batch_refused(id, &ids, mode, (request, subject), &problem));
            }
        };
        if let Some(size) = size {
            answers.size = size;
        }
        kinds.into_iter().for_each(|kind| self.count_lookup(subject, id, kind));
        let mut refresh = false;
        for place in expired {
            refresh |= cache.refresh(&ids.keys[place]);
        }
        let mut waiters = Vec::new();
        for (place, lookup) in others {
            self.looked_up(subject, id, mode, &lookup);
            match lookup {
                // Stored between the two looks at memory.
                Lookup::Hit(record, freshness) | Lookup::Negative(record, freshness) => {
                    refresh |= self.may_refresh(freshness, now) && cache.refresh(&ids.keys[place]);
                    let provenance = Provenance::of_hit(freshness, cache.age(&record, now));
                    answers.put(place, record, provenance);
                }
                Lookup::Coalesced(waiter) => {
                    waiters.push(((place, CacheOutcome::Coalesced), waiter))
                }
                Lookup::Miss(waiter) => waiters.push(((place, CacheOutcome::Miss), waiter)),
                Lookup::Bypass(waiter) => waiters.push(((place, CacheOutcome::Bypass), waiter)),
                Lookup::Refused(refusal) => match self.stale(&ids.keys[place], mode, sight, now) {
                    Some((record, provenance)) => answers.put(place, record, provenance),
                    None => {
                        return Step::Now((
                            HttpError::from(&refusal).response().into(),
                            CacheOutcome::None,
                        ));
                    }
                },
            }
        }
        if let Err(refused) = answers.reserve_found(budgets.row_bytes(id)) {
            return Step::problem(&budgets.refused(&refused, ids.keys.len()));
        }
        if refresh || !waiters.is_empty() {
            lead(&self.shared.fetcher, id);
        }
        if waiters.is_empty() {
            return Step::Now(self.render(request.connection, id, &ids, answers));
        }
        let first = waiters.first().map(|((place, _), _)| &ids.keys[*place]);
        let trace = first.and_then(|key| self.shared.fetcher.query_log.enter(key, request.headers));
        let reads = (PendingReads::new(waiters).traced(trace), deadline);
        self.batch_later(request.connection, id, ids, mode, answers, reads)
    }

    /// Answers a batch whose cold keys are not read: with records from memory and stale ones, or
    /// with the refusal.
    fn batch_refused(
        &self,
        id: CollectionId,
        ids: &Ids,
        mode: ReadMode,
        (request, subject): (&RequestContext<'_>, ScanSubject<'_>),
        problem: &HttpError,
    ) -> Outcome {
        let now = request.times.now;
        let sight = request.sight;
        let mut answers = self.answers(ids, self.shared.budgets.answer(), sight.to_buf());
        let mut all = true;
        for (place, key) in ids.keys.iter().enumerate() {
            let held = match self.held((subject, sight), key, mode, now) {
                Some(held) => Some(held),
                None => {
                    self.lookups.count(id.0, LookupKind::Refused);
                    self.stale(key, mode, sight, now)
                }
            };
            all &= held.is_some();
            held.into_iter()
                .for_each(|(record, provenance)| answers.put(place, record, provenance));
        }
        if all {
            self.render(request.connection, id, ids, answers)
        } else {
            (problem.response().into(), CacheOutcome::None)
        }
    }

    /// Returns the answer of memory, without a read; counted as a lookup.
    fn held(
        &self,
        (subject, sight): (ScanSubject<'_>, Sight<'_>),
        key: &Key,
        mode: ReadMode,
        now: Nanos,
    ) -> Option<(Record, Provenance)> {
        let cache = &self.shared.cache;
        let (record, quality) =
            (mode != ReadMode::Revalidate).then(|| cache.peek(key, now)).flatten()?;
        if sight.must_read_again(&record) {
            return None;
        }
        let provenance = Provenance::of_hit(quality, cache.age(&record, now));
        let kind = LookupKind::of_memory(&record, quality);
        self.count_lookup(subject, key.collection(), kind);
        Some((record, provenance))
    }

    fn batch_later(
        self: &Rc<Self>,
        connection: &Rc<ConnectionContext>,
        id: CollectionId,
        ids: Ids,
        mode: ReadMode,
        mut answers: Answers,
        (mut reads, deadline): (PendingReads<(usize, CacheOutcome)>, Nanos),
    ) -> Step {
        let place = match self.shared.admission.inflight.enter(mode == ReadMode::Revalidate) {
            Ok(place) => place,
            Err(problem) => return Step::Now((problem.response().into(), CacheOutcome::None)),
        };
        let handler = Rc::clone(self);
        let connection = Rc::clone(connection);
        let arrived = Nanos::now();
        Step::Later(Box::pin(async move {
            let _place = place;
            let budgets = &handler.shared.budgets;
            while let Some(((place, outcome), waited)) =
                reads.next(&handler.shared.fetcher, id, deadline).await
            {
                let now = Nanos::now();
                let outcome =
                    if mode == ReadMode::Revalidate { CacheOutcome::Bypass } else { outcome };
                handler.waited(arrived, &waited);
                match waited {
                    Ok(record) => {
                        let age = handler.shared.cache.age(&record, now);
                        let bytes = answers.sight.as_sight().bytes(&record);
                        answers.put(place, record, Provenance { outcome, age });
                        if let Err(refused) = answers.size.add_row(bytes, budgets.row_bytes(id)) {
                            // Keys queued for this batch alone are not read, and its query in
                            // flight is cancelled.
                            return (
                                budgets.refused(&refused, ids.keys.len()).response().into(),
                                CacheOutcome::None,
                            );
                        }
                    }
                    Err(problem) => {
                        match handler.stale(&ids.keys[place], mode, answers.sight.as_sight(), now) {
                            Some((record, provenance)) => answers.put(place, record, provenance),
                            None => return (problem.response().into(), CacheOutcome::None),
                        }
                    }
                }
            }
            handler.render(&connection, id, &ids, answers)
        }))
    }

    fn batch_at_least(
        self: &Rc<Self>,
        id: CollectionId,
        ids: Ids,
        wanted: Position,
        request: &RequestContext<'_>,
    ) -> Step {
        let (deadline, place) = match self.shared.admission.admit_privileged(request) {
            Ok(admitted) => admitted,
            Err(problem) => return Step::Now((problem.response().into(), CacheOutcome::None)),
        };
        let handler = Rc::clone(self);
        let connection = Rc::clone(request.connection);
        let sight = request.sight.to_buf();
        Step::Later(Box::pin(async move {
            let _place = place;
            let Shared { fetcher, feed_progress, .. } = &handler.shared;
            let sought = (&ids.keys[..], sight.as_sight());
            match position::read_at_least(fetcher, feed_progress, sought, wanted, deadline).await {
                Err(problem) => (problem.response().into(), CacheOutcome::None),
                Ok((found, size)) => {
                    let mut answers = handler.answers(&ids, size, sight);
                    found
                        .into_iter()
                        .enumerate()
                        .for_each(|(i, (record, how))| answers.put(i, record, how));
                    handler.render(&connection, id, &ids, answers)
                }
            }
        }))
    }

    /// Returns room for the answers of a batch.
    fn answers(&self, ids: &Ids, size: AnswerReservation, sight: SightBuf) -> Answers {
        let is_limited = sight.is_limited();
        Answers {
            records: vec![None; ids.keys.len()],
            unanswered: ids.keys.len(),
            applied: is_limited.then(|| self.shared.cache.applied()).flatten(),
            worst: Provenance { outcome: CacheOutcome::Hit, age: std::time::Duration::ZERO },
            is_described: !is_limited,
            token: Token::None,
            bytes: 0,
            sight,
            size,
        }
    }

    /// Looks up the keys at these places past memory: see [`Sight::must_read_again`].
    fn lookup_again(
        &self,
        ids: &Ids,
        places: &[usize],
        now: Nanos,
        admit: impl FnOnce(usize) -> Result<Nanos, HttpError>,
    ) -> Result<Vec<(usize, Lookup<ReadFailure>)>, HttpError> {
        let keys: Vec<Key> = places.iter().map(|place| ids.keys[*place].clone()).collect();
        let lookups = self.shared.cache.lookup_batch_if(&keys, ReadMode::Revalidate, now, admit)?;
        Ok(places.iter().copied().zip(lookups).collect())
    }

    fn stale(
        &self,
        key: &Key,
        mode: ReadMode,
        sight: Sight<'_>,
        now: Nanos,
    ) -> Option<(Record, Provenance)> {
        let record = self.stale_if_error(key, mode, sight, now)?;
        let age = self.shared.cache.age(&record, now);
        Some((record, Provenance { outcome: CacheOutcome::Stale, age }))
    }

    fn render(
        &self,
        connection: &ConnectionContext,
        id: CollectionId,
        ids: &Ids,
        answers: Answers,
    ) -> Outcome {
        let Answers { records, unanswered, worst, token, size, is_described, .. } = answers;
        if unanswered > 0 {
            // It would be reported as missing.
            return (HttpError::Unreadable.response().into(), CacheOutcome::None);
        }
        let Ok(segments) = render::render(ids, &records) else {
            return (budgets::NO_ROOM.response().into(), CacheOutcome::None);
        };
        let read_at = records.iter().flatten().map(Record::read_at).max();
        // From here on the answer alone holds the records, and releases each when it is written.
        drop(records);
        let bytes = segments.len() as u64;
        let size = if bytes < COUNTED_BYTES_MIN { size.none() } else { size.finish(bytes) };
        let mut response = match size {
            Ok(reservation) => Response::new(Body::held(segments, reservation, connection)),
            Err(refused) => {
                let problem = self.shared.budgets.refused(&refused, ids.keys.len());
                return (problem.response().into(), CacheOutcome::None);
            }
        };
        self.note_read(&mut response, read_at);
        let headers = response.headers_mut();
        headers.reserve(8);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, self.shared.collections.get(id).cache_control.clone());
        let position = token.position().map(|position| self.header_writer.position(position));
        if is_described {
            describe(headers, worst, position);
        } else if let Some(position) = position {
            headers.insert(HOTROW_POSITION, position);
        }
        (response.into(), worst.outcome)
    }
}

/// Answers found so far, with the worst provenance and the largest position.
struct Answers {
    /// `None`: absent, or unanswered so far.
    records: Vec<Option<Record>>,
    /// Number of keys without an answer so far.
    unanswered: usize,
    sight: SightBuf,
    /// Point that the feed had passed, where the sender does not see all records.
    applied: Option<Position>,
    worst: Provenance,
    /// Whether `worst` is part of the answer: where the sender does not see all records, it is that
    /// of the visible ones.
    is_described: bool,
    token: Token,
    /// Bytes of the records.
    bytes: u64,
    /// Reservation of the answer in the budget.
    size: AnswerReservation,
}

/// Token of several records: the largest of theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    None,
    Largest(Position),
    /// Two logs, because one has just been replaced. No point of either covers the other's records.
    Mixed,
}

impl Token {
    fn take_in(&mut self, position: Option<Position>) {
        let Some(position) = position else { return };
        *self = match *self {
            Self::None => Self::Largest(position),
            Self::Largest(largest) if largest.incarnation != position.incarnation => Self::Mixed,
            Self::Largest(largest) if position.reaches(&largest) => Self::Largest(position),
            unchanged => unchanged,
        };
    }

    fn position(self) -> Option<Position> {
        match self {
            Self::Largest(position) => Some(position),
            Self::None | Self::Mixed => None,
        }
    }
}

impl Answers {
    fn put(&mut self, place: usize, record: Record, how: Provenance) {
        self.unanswered = self.unanswered.saturating_sub(1);
        if !self.sight.as_sight().sees(&record) {
            return self.token.take_in(absent_position(self.applied, record.position()));
        }
        self.is_described = true;
        self.bytes += record.body().len() as u64;
        if how.outcome.badness() > self.worst.outcome.badness() {
            self.worst.outcome = how.outcome;
        }
        self.worst.age = self.worst.age.max(how.age);
        self.token.take_in(record.position());
        self.records[place] = Some(record);
    }

    /// Reserves the size of the hits. The cache may drop these records while the answer still holds
    /// them.
    fn reserve_found(&mut self, row_bytes: u64) -> Result<(), AnswerRefused> {
        if self.bytes < COUNTED_BYTES_MIN {
            Ok(())
        } else {
            self.size.add_known(self.bytes, row_bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_covers_every_record_or_is_none() {
        let p = |incarnation, at| Some(Position { incarnation, at });
        let of = |all: &[Option<Position>]| {
            let mut token = Token::None;
            all.iter().for_each(|position| token.take_in(*position));
            token.position()
        };
        assert_eq!(of(&[None]), None);
        assert_eq!(of(&[p(1, 3), p(1, 5), None, p(1, 4)]), p(1, 5));
        assert_eq!(
            of(&[p(1, 112), p(2, 9), p(1, 33)]),
            None,
            "a point of one log says nothing about the other"
        );
    }
}
