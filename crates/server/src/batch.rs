//! Several records in one request. A batch is no snapshot: each record meets the contract on its
//! own.

mod answers;
mod by_alias;
mod ids;
mod list;
mod number;
pub(crate) mod render;
mod seen;

use std::borrow::Borrow;
use std::rc::Rc;

use hotrow_cache::{Lookup, ReadMode, Record};
use hotrow_measure::clock::Nanos;
use hotrow_representation::precondition;
use hotrow_source::ReadFailure;
use hotrow_telemetry::lookups::{LookupCounts, LookupKind};
use hotrow_telemetry::outcome::CacheOutcome;
use hotrow_telemetry::traces::{ReadKind, TraceSlot, WaitingRequest};
use hotrow_types::key::{CollectionId, Key, KeySchema};
use hotrow_types::version::Position;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response};

use self::answers::{Answers, View};
pub(crate) use self::ids::{Ids, parse_query};
#[cfg(any(test, fuzzing))]
pub(crate) use self::list::parse_body;
use self::render::BatchParts;
pub(crate) use self::render::Item;
use crate::answer::{Answer, Outcome};
use crate::body::Body;
use crate::budgets::{self, COUNTED_BYTES_MIN};
use crate::connection::request::RequestBody;
use crate::context::{ConnectionContext, PendingRequest, RequestContext, RequestTimes};
use crate::handle::{Handler, ReceivedIds, Step};
use crate::http_error::HttpError;
use crate::position;
use crate::read::{PendingReads, lead};
use crate::read_requirement::{ReadRequirement, mode_of};
use crate::respond::{HOTROW_POSITION, NO_STORE, Provenance, describe};
use crate::scan_detector::ScanSubject;
use crate::shared::Shared;
use crate::sight::Sight;

impl Handler {
    /// Parses the ids of a batch by GET.
    pub(crate) fn parse_ids(
        &self,
        schema: &KeySchema,
        query: Option<&str>,
    ) -> Result<Ids, HttpError> {
        parse_query(schema, &self.shared.limits, self.shared.cache.hasher(), query)
    }

    pub(crate) async fn batch_post(
        self: &Rc<Self>,
        (id, ids_of): (CollectionId, CollectionId),
        body: RequestBody,
        request: PendingRequest,
        (ids, trace): &(ReceivedIds, Option<TraceSlot>),
    ) -> Outcome {
        let arrived = request.times.arrived;
        let received =
            crate::receive::body(body, self.shared.limits.body_bytes, &self.shared.budgets.bodies)
                .await;
        let schema = &self.shared.collections.get(ids_of).schema;
        let parsed = match received {
            Ok(body) => {
                let (limits, hasher) = (&self.shared.limits, self.shared.cache.hasher());
                list::parse_body_in_turns(schema, limits, hasher, body.bytes()).await
            }
            Err(problem) => Err(problem),
        };
        let parsed = parsed.map(|parsed| Rc::clone(ids.get_or_init(|| Rc::new(parsed))));
        // The body's time is the client's: only its own deadline header counts from the arrival.
        let complete = Nanos::now();
        let times = RequestTimes { arrived, complete, now: complete };
        let request = PendingRequest { times, ..request };
        self.limited_batch(id, parsed, &request.context()).rest(trace.as_ref()).await
    }

    pub(crate) fn batch(
        self: &Rc<Self>,
        id: CollectionId,
        ids_kept: impl Borrow<Ids> + 'static,
        request: &RequestContext<'_>,
    ) -> Step {
        let ids = ids_kept.borrow();
        let now = request.times.now;
        if precondition::excludes_untagged(request.headers) {
            return Step::problem(&HttpError::PreconditionFailed(
                "a batch has no entity tag that If-Match could name",
            ));
        }
        if ids.keys.first().is_some_and(|key| key.collection() != id) {
            return self.batch_by_alias(id, ids_kept, request);
        }
        let subject = self.scan_subject(request);
        let required = ReadRequirement::of(request, self.shared.collections.get(id));
        let sampled_mode = mode_of(&required, subject);
        let mode = match required {
            Ok(ReadRequirement::None) => subject.mode(),
            Ok(ReadRequirement::New) => ReadMode::Revalidate,
            Ok(ReadRequirement::AtLeast(wanted)) => {
                return self.batch_at_least(id, ids_kept, wanted, request);
            }
            Err(problem) => return Step::Now((problem.response().into(), CacheOutcome::None)),
        };
        let cache = &self.shared.cache;
        self.requested(&ids.keys, &ids.hashes, sampled_mode, now);
        let budgets = &self.shared.budgets;
        let sight = request.sight;
        let mut answers = self.answers(ids, budgets.answer(), View::of(request));
        let mut unseen = Vec::new();
        // Counted and refreshed when the batch is admitted: otherwise its lookups are made again.
        let mut kinds = LookupCounts::default();
        let mut expired = Vec::new();
        let ages = cache.ages(id, now);
        let found = |place, record: Record, freshness| {
            if sight.must_read_again(&record) {
                return unseen.push(place);
            }
            kinds.add(LookupKind::of_memory(&record, freshness));
            if self.may_refresh(id, freshness, now) {
                expired.push(place);
            }
            let provenance = Provenance::of_hit(freshness, ages.of(&record));
            let _bytes = answers.put(place, record, provenance);
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
        let others = cache.lookup_batch_with(&ids.keys, &ids.hashes, mode, now, found, &mut admit);
        let others = others.and_then(|others| {
            // Queued beside the cold keys, before a query is sent.
            let again = self.lookup_again(ids, &unseen, now, &mut admit)?;
            Ok(others.into_iter().chain(again))
        });
        let others = match others {
            Ok(others) => others,
            Err(problem @ HttpError::BadHeader(_)) => return Step::problem(&problem),
            Err(problem) => {
                return Step::Now(self.batch_refused(id, ids, mode, (request, subject), &problem));
            }
        };
        if let Some(size) = size {
            answers.size = size;
        }
        kinds.each(|kind, times| self.count_lookups(subject, id, kind, times));
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
                    refresh |=
                        self.may_refresh(id, freshness, now) && cache.refresh(&ids.keys[place]);
                    let provenance = Provenance::of_hit(freshness, cache.age(&record, now));
                    let _bytes = answers.put(place, record, provenance);
                }
                Lookup::Coalesced(waiter) => {
                    waiters.push(((place, CacheOutcome::Coalesced), waiter))
                }
                Lookup::Miss(waiter) => waiters.push(((place, CacheOutcome::Miss), waiter)),
                Lookup::Bypass(waiter) => waiters.push(((place, CacheOutcome::Bypass), waiter)),
                Lookup::Refused(refusal) => match self.stale(&ids.keys[place], mode, sight, now) {
                    Some((record, provenance)) => _ = answers.put(place, record, provenance),
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
            return Step::Now(self.render(request.connection, id, ids, answers));
        }
        let fetcher = &self.shared.fetcher;
        let cold: Vec<&Key> = waiters.iter().map(|((place, _), _)| &ids.keys[*place]).collect();
        let logged = cold.first().and_then(|key| fetcher.query_log.enter(key, request.headers));
        let waiting = fetcher.trace(request, &cold, mode.into());
        let reads = (PendingReads::new(waiters).traced(logged, waiting), deadline);
        self.batch_later(request.connection, id, ids_kept, mode, answers, reads)
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
        let mut answers = self.answers(ids, self.shared.budgets.answer(), View::of(request));
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
                .for_each(|(record, provenance)| _ = answers.put(place, record, provenance));
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
        ids: impl Borrow<Ids> + 'static,
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
        Step::later(reads.trace_slot(), async move {
            let _place = place;
            let ids = ids.borrow();
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
                        let bytes = answers.put(place, record, Provenance { outcome, age });
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
                        match handler.stale(
                            &ids.keys[place],
                            mode,
                            answers.view.sight.as_sight(),
                            now,
                        ) {
                            Some((record, provenance)) => {
                                _ = answers.put(place, record, provenance)
                            }
                            None => return (problem.response().into(), CacheOutcome::None),
                        }
                    }
                }
            }
            handler.render(&connection, id, ids, answers)
        })
    }

    fn batch_at_least(
        self: &Rc<Self>,
        id: CollectionId,
        ids: impl Borrow<Ids> + 'static,
        wanted: Position,
        request: &RequestContext<'_>,
    ) -> Step {
        let (deadline, place) = match self.shared.admission.admit_privileged(request) {
            Ok(admitted) => admitted,
            Err(problem) => return Step::Now((problem.response().into(), CacheOutcome::None)),
        };
        let handler = Rc::clone(self);
        let connection = Rc::clone(request.connection);
        let view = View::of(request);
        let keys: Vec<&Key> = ids.borrow().keys.iter().collect();
        let fetcher = &self.shared.fetcher;
        let waiting = fetcher.trace(request, &keys, ReadKind::MinPosition);
        Step::later(waiting.as_ref().map(WaitingRequest::slot), async move {
            let _place = place;
            let ids = ids.borrow();
            let Shared { fetcher, cache, limits, .. } = &handler.shared;
            let wait = (limits.position_wait, waiting.as_ref());
            let sought = (&ids.keys[..], view.sight.as_sight(), view.columns.as_ref());
            match position::read_at_least((fetcher, cache), wait, sought, wanted, deadline).await {
                Err(problem) => (problem.response().into(), CacheOutcome::None),
                Ok((found, size)) => {
                    let mut answers = handler.answers(ids, size, view);
                    found
                        .into_iter()
                        .enumerate()
                        .for_each(|(i, (record, how))| _ = answers.put(i, record, how));
                    handler.render(&connection, id, ids, answers)
                }
            }
        })
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
        let Answers { items, unanswered, worst, token, size, is_described, read_at, .. } = answers;
        if unanswered > 0 {
            // It would be reported as missing.
            return (HttpError::Unreadable.response().into(), CacheOutcome::None);
        }
        if connection.is_redis {
            return (Answer::Items(Box::new(BatchParts { items, size })), worst.outcome);
        }
        let Ok(segments) = render::render(ids, &items) else {
            return (budgets::NO_ROOM.response().into(), CacheOutcome::None);
        };
        // From here on the answer alone holds the records, and releases each when it is written.
        drop(items);
        let bytes = segments.len() as u64;
        let size = if bytes < COUNTED_BYTES_MIN { size.none() } else { size.finish(bytes) };
        let mut response = match size {
            Ok(reservation) => {
                Response::new(Body::held(segments, reservation, &connection.activity))
            }
            Err(refused) => {
                let problem = self.shared.budgets.refused(&refused, ids.keys.len());
                return (problem.response().into(), CacheOutcome::None);
            }
        };
        self.note_read(&mut response, read_at);
        let headers = response.headers_mut();
        headers.reserve(8);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let collection = self.shared.collections.get(id);
        // No purge reaches a batch.
        let is_kept = collection.surrogate_keys.is_none();
        let directives = if is_kept { collection.cache_control.clone() } else { NO_STORE };
        headers.insert(CACHE_CONTROL, directives);
        let position = token.position().map(|position| self.header_writer.position(position));
        if is_described {
            describe(headers, worst, position);
        } else if let Some(position) = position {
            headers.insert(HOTROW_POSITION, position);
        }
        (response.into(), worst.outcome)
    }
}
