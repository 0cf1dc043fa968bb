//! Handling of one data request, from route to answer. A hit is answered at once, in a straight
//! line; a request that needs the database or the feed becomes a future.

mod authentication;
mod batches;
mod notes;
mod replacement;
pub(crate) mod serve;
mod step;
mod unseen;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use hotrow_admission::byte_budget::AnswerReservation;
use hotrow_admission::shed::Kind;
use hotrow_cache::flight::Waiter;
use hotrow_cache::{Freshness, Lookup, Presence, ReadMode, Record};
use hotrow_measure::clock::Nanos;
use hotrow_representation::header_writer::{self, HeaderWriter};
use hotrow_representation::precondition::{self, Precondition};
use hotrow_source::ReadFailure;
use hotrow_telemetry::history::hot_keys::KeySampler;
use hotrow_telemetry::lookups::{LookupKind, WorkerLookups};
use hotrow_telemetry::miss_ratio_curve::WorkerSamples;
use hotrow_telemetry::outcome::CacheOutcome;
use hotrow_telemetry::request::Notes;
use hotrow_telemetry::traces::{ReadKind, WaitingRequest};
use hotrow_types::key::{CollectionId, Key, KeyError};
use http::Method;

pub use self::step::Step;
pub(crate) use self::step::{CONFIGURATION_CHANGED, Evaluation, Pending, ReceivedIds};
use crate::access::Authenticator;
use crate::access::credential::Credential;
use crate::answer::{Answer, Outcome};
use crate::batch::parse_query;
use crate::body::Body;
use crate::budgets::COUNTED_BYTES_MIN;
use crate::connection::request::Request;
use crate::context::{ReadRequest, RequestTimes};
use crate::follow::WorkerFollowers;
use crate::http_error::HttpError;
use crate::metrics::WorkerMetrics;
use crate::narrow::view_of;
use crate::observer::Observer;
use crate::position;
use crate::read::{lead, wait};
use crate::read_requirement::{ReadRequirement, mode_of};
use crate::record_answer::{OtherBody, RecordAnswer, RecordHeads};
use crate::respond::{Provenance, capabilities, precondition_failed};
use crate::route::{METHODS, ReadTarget, Route};
use crate::scan_detector::ClientDetectors;
use crate::shared::Shared;
use crate::sight::Sight;
use crate::tracking::WorkerTracking;

/// Handler of the data requests of one worker. A request that waits keeps it alive.
pub struct Handler {
    /// Parts shared with the other threads.
    pub shared: Shared,
    /// Counters of this worker.
    pub metrics: Arc<WorkerMetrics>,
    /// Lookup counters of this worker, by collection.
    pub lookups: Arc<WorkerLookups>,
    /// Sampled lookups of this worker.
    pub(crate) samples: Rc<WorkerSamples>,
    /// Check of credentials, if there is one.
    pub(crate) authenticator: Option<Rc<Authenticator>>,
    /// Notes for operators of each request, if any are configured.
    pub(crate) observer: Option<Rc<Observer>>,
    /// Writer of the heads of most answers.
    heads: RecordHeads,
    /// Writer of other header values.
    pub(crate) header_writer: HeaderWriter,
    /// Hits since the turn began, and its beginning.
    hits_of_turn: Cell<(u64, Nanos)>,
    /// The same of commands of the Redis protocol.
    redis_hits_of_turn: Cell<(u64, Nanos)>,
    /// Lookups of the clients behind trusted proxies.
    pub(crate) client_detectors: Rc<ClientDetectors>,
    /// Sampler of hot keys, if they are on.
    pub(crate) key_sampler: Option<Rc<KeySampler>>,
    /// Followers of this worker.
    pub(crate) followers: Rc<WorkerFollowers<Self>>,
    /// Clients of this worker that keep copies, if there are clients of the Redis protocol.
    pub(crate) tracking: Option<Rc<WorkerTracking>>,
}

impl Handler {
    /// Creates the handler of a worker.
    #[must_use]
    pub fn new(shared: Shared, metrics: Arc<WorkerMetrics>, lookups: Arc<WorkerLookups>) -> Self {
        let heads = RecordHeads::new(&shared.collections);
        let authenticator = shared.access.clone().map(|access| Rc::new(Authenticator::new(access)));
        let samples = Rc::new(shared.miss_ratio_curve.worker());
        let tracking = shared.tracking.as_ref().map(WorkerTracking::new);
        Self {
            shared,
            metrics,
            lookups,
            samples,
            authenticator,
            observer: None,
            heads,
            header_writer: HeaderWriter::default(),
            hits_of_turn: Cell::default(),
            redis_hits_of_turn: Cell::default(),
            client_detectors: Rc::default(),
            key_sampler: None,
            followers: Rc::default(),
            tracking,
        }
    }

    /// Returns the handler with a sampler of hot keys.
    pub(crate) fn with_key_sampler(self, key_sampler: Option<KeySampler>) -> Self {
        Self { key_sampler: key_sampler.map(Rc::new), ..self }
    }
}

impl Handler {
    /// Begins to answer a request. `notes` is filled in as far as it gets.
    fn route(
        self: &Rc<Self>,
        request: Request<'_>,
        evaluation: Evaluation,
        notes: &mut Notes,
    ) -> Step {
        let Request { head, body, connection, now, protocol } = request;
        let arrival = RequestTimes::of_arrival(now);
        let (times, is_paid) = match evaluation {
            Evaluation::First => (arrival, false),
            Evaluation::Again(_) => (RequestTimes { now: Nanos::now(), ..arrival }, true),
        };
        let mut context = ReadRequest {
            is_paid,
            is_traced: true,
            ..ReadRequest::new(connection, head.fields(), times)
        };
        let mut columns = None;
        // Before the path is looked at: without a credential nothing is revealed, not even which
        // collections exist.
        let sender = match self.authenticate(|| Credential::of(head.fields()), &context) {
            Ok(sender) => sender,
            Err(problem) => return Step::refused(problem),
        };
        // An extension method is none of ours, and costs a copy.
        let method = Method::from_bytes(head.method()).unwrap_or(Method::TRACE);
        let (path, query) = head.path_and_query();
        let routed = self.shared.collections.router.route(&method, path, query);
        let collection = routed.as_ref().ok().and_then(Route::collection);
        *notes = Notes { caller: sender.caller, collection };
        if let Some(id) = collection {
            if let Err(problem) = self.authorise(id, &sender, &mut columns, &mut context) {
                return Step::refused(problem);
            }
            let collection = self.shared.collections.get(id);
            context.required =
                ReadRequirement::of_fields(context.headers, context.rights, collection);
        }
        let selection;
        if let (Some(id), Some(query)) = (collection, query) {
            match self.select_fields(id, query, &context) {
                Ok(selected) => {
                    selection = selected;
                    context.columns = selection.as_ref();
                }
                // As a malformed id.
                Err(problem) => {
                    return self.limited(id, 1, &context, move |_, _| Step::refused(problem));
                }
            }
        }
        match routed {
            Err(problem) => Step::refused(problem),
            Ok(Route::Capabilities) => Step::ready(capabilities(METHODS)),
            Ok(Route::Description) => {
                let roles = sender.caller.roles;
                let own = self.authenticator.as_ref();
                let columns = |id| own.and_then(|authenticator| authenticator.columns(id, roles));
                Step::ready(self.shared.description.answer(columns))
            }
            Ok(Route::Item(target, text)) => {
                let parsed = self.shared.collections.get(target.keys).schema.parse_url(text);
                let collection = self.shared.collections.get(target.of);
                context.is_purgeable =
                    !target.is_alias() && collection.is_purgeable(&parsed, (text, query.is_some()));
                self.one(target, parsed, &context)
            }
            Ok(Route::BatchGet(target, query)) => {
                let schema = &self.shared.collections.get(target.keys).schema;
                let (limits, hasher) = (&self.shared.limits, self.shared.cache.hasher());
                self.several(target, parse_query(schema, limits, hasher, query), &context)
            }
            Ok(Route::BatchPost(target)) => self.posted(target, body, evaluation, &context),
            Ok(Route::Changes(id, query)) => {
                self.follow((id, query), (protocol, sender.expires), &context)
            }
        }
    }

    /// Answers a request for one record.
    #[inline]
    pub(crate) fn one(
        self: &Rc<Self>,
        target: ReadTarget,
        parsed: Result<Key, KeyError>,
        request: &ReadRequest<'_>,
    ) -> Step {
        let admitted = self
            .check_alias_grant(target, request)
            .and_then(|()| self.check_shedding_by_head(target.of, Kind::Hit, request));
        if let Err(problem) = admitted {
            return Step::refused(problem);
        }
        self.limited(target.of, 1, request, move |handler, request| match parsed {
            Ok(alias) if target.is_alias() => handler.by_alias(alias, request),
            Ok(key) => handler.item(key, request),
            Err(error) => Step::refused(HttpError::BadId(error)),
        })
    }

    /// Answers a request for the record with a key.
    fn item(self: &Rc<Self>, key: Key, request: &ReadRequest<'_>) -> Step {
        let id = key.collection();
        let now = request.times.now;
        let subject = self.scan_subject(request);
        self.requested_one(&key, mode_of(request.required, subject), now);
        let mode = match request.required {
            Ok(ReadRequirement::None) => subject.mode(),
            Ok(ReadRequirement::New) => ReadMode::Revalidate,
            Ok(ReadRequirement::AtLeast(wanted)) => {
                return self.item_at_least(key, wanted, request);
            }
            Err(problem) => return Step::refused(problem.clone()),
        };
        let cache = &self.shared.cache;
        // Computed only when memory does not answer: a hit does not need it.
        let mut deadline = now;
        let mut size = None;
        let admit = || {
            deadline = self.admit_reads(id, mode, 1, request)?;
            // Before the read is queued: rows without room are not read.
            size = Some(self.shared.budgets.answer_of_rows(id, 1)?);
            Ok(deadline)
        };
        let lookup = match cache.lookup_if(&key, mode, now, admit) {
            Ok(lookup) => lookup,
            Err(problem @ HttpError::BadHeader(_)) => return Step::refused(problem),
            Err(problem) => {
                self.lookups.count(id.0, LookupKind::Refused);
                return self.refused(&key, mode, request, problem);
            }
        };
        if let Lookup::Hit(record, _) | Lookup::Negative(record, _) = &lookup
            && request.sight.must_read_again(record)
        {
            return self.item_again(key, (mode, subject), request);
        }
        self.looked_up(subject, id, mode, &lookup);
        match lookup {
            Lookup::Hit(record, quality) | Lookup::Negative(record, quality) => {
                if self.may_refresh(id, quality, now) && cache.refresh(&key) {
                    lead(&self.shared.fetcher, id);
                }
                if quality == Freshness::Fresh {
                    self.shared.consistency_check.offer(&key, &record);
                }
                let provenance = Provenance::of_hit(quality, cache.age(&record, now));
                Step::Now(self.answer(record, provenance, request, None))
            }
            Lookup::Coalesced(waiter) => {
                let read = (waiter, deadline, size);
                self.item_later(key, mode, read, CacheOutcome::Coalesced, request)
            }
            Lookup::Miss(waiter) => {
                lead(&self.shared.fetcher, id);
                let read = (waiter, deadline, size);
                self.item_later(key, mode, read, CacheOutcome::Miss, request)
            }
            Lookup::Bypass(waiter) => {
                lead(&self.shared.fetcher, id);
                let read = (waiter, deadline, size);
                self.item_later(key, mode, read, CacheOutcome::Bypass, request)
            }
            Lookup::Refused(refusal) => self.refused(&key, mode, request, (&refusal).into()),
        }
    }

    /// Answers a key that is not read: with a stale record, or with the refusal.
    pub(crate) fn refused(
        &self,
        key: &Key,
        mode: ReadMode,
        request: &ReadRequest<'_>,
        problem: HttpError,
    ) -> Step {
        let now = request.times.now;
        match self.stale_if_error(key, mode, request.sight, now) {
            Some(record) => Step::Now(self.answer_stale(record, request, now)),
            None => Step::refused(problem),
        }
    }

    pub(crate) fn item_later(
        self: &Rc<Self>,
        key: Key,
        mode: ReadMode,
        (waiter, deadline, size): (Waiter<ReadFailure>, Nanos, Option<AnswerReservation>),
        outcome: CacheOutcome,
        request: &ReadRequest<'_>,
    ) -> Step {
        let outcome = if mode == ReadMode::Revalidate { CacheOutcome::Bypass } else { outcome };
        let arrived = Nanos::now();
        let place = match self.shared.admission.inflight.enter(mode == ReadMode::Revalidate) {
            Ok(place) => place,
            Err(problem) => return Step::refused(problem),
        };
        let handler = Rc::clone(self);
        let logged = self.shared.fetcher.query_log.enter(&key, request.headers);
        let waiting = self.shared.fetcher.trace(request, &[&key], mode.into());
        let request = request.to_pending();
        Step::later(waiting.as_ref().map(WaitingRequest::slot), async move {
            let _place = (place, logged, waiting);
            let request = request.context();
            let result = handler.wait_for(key.collection(), waiter, deadline).await;
            handler.waited(arrived, &result);
            let now = Nanos::now();
            match result {
                Ok(record) => {
                    let age = handler.shared.cache.age(&record, now);
                    handler.answer(record, Provenance { outcome, age }, &request, size)
                }
                Err(problem) => match handler.stale_if_error(&key, mode, request.sight, now) {
                    Some(record) => handler.answer_stale(record, &request, now),
                    None => Answer::refused(problem),
                },
            }
        })
    }

    fn item_at_least(
        self: &Rc<Self>,
        key: Key,
        wanted: hotrow_types::version::Position,
        request: &ReadRequest<'_>,
    ) -> Step {
        let id = key.collection();
        let now = request.times.now;
        if !request.sight.hides_existence()
            && let Some((record, provenance)) =
                position::at_once(&self.shared.cache, &key, wanted, now)
        {
            return Step::Now(self.answer(record, provenance, request, None));
        }
        if let Err(problem) = self.check_shedding(id, Kind::Bypass, request.headers) {
            return Step::refused(problem);
        }
        let (deadline, place) = match self.shared.admission.admit_privileged(request) {
            Ok(admitted) => admitted,
            Err(problem) => return Step::refused(problem),
        };
        let handler = Rc::clone(self);
        let fetcher = &self.shared.fetcher;
        let waiting = fetcher.trace(request, &[&key], ReadKind::MinPosition);
        let request = request.to_pending();
        Step::later(waiting.as_ref().map(WaitingRequest::slot), async move {
            let _place = place;
            let keys = [key];
            let Shared { fetcher, cache, limits, .. } = &handler.shared;
            let wait = (limits.position_wait, waiting.as_ref());
            let context = request.context();
            let sought = (&keys[..], context.sight, context.columns);
            match position::read_at_least((fetcher, cache), wait, sought, wanted, deadline).await {
                Ok((mut answers, size)) => match answers.pop() {
                    Some((record, provenance)) => {
                        handler.answer(record, provenance, &request.context(), Some(size))
                    }
                    None => Answer::refused(HttpError::Unreadable),
                },
                Err(problem) => Answer::refused(problem),
            }
        })
    }

    /// Waits for a read until the request's deadline.
    pub(crate) async fn wait_for(
        &self,
        collection: CollectionId,
        waiter: Waiter<ReadFailure>,
        deadline: Nanos,
    ) -> Result<Record, HttpError> {
        match tokio::time::timeout(
            deadline.since(Nanos::now()),
            wait(&self.shared.fetcher, collection, waiter),
        )
        .await
        {
            Ok(result) => result.map_err(|failure| HttpError::from(&failure)),
            Err(_) => Err(HttpError::Timeout("the database did not answer in time")),
        }
    }

    /// Answers with a record. `size`: its reservation from before the read, if it was read.
    pub(crate) fn answer(
        &self,
        record: Record,
        provenance: Provenance,
        request: &ReadRequest<'_>,
        size: Option<AnswerReservation>,
    ) -> Outcome {
        if !request.sight.sees(&record) {
            return self.absent(&record, provenance.outcome);
        }
        request.connection.collect(&record, provenance.outcome);
        let is_found = record.presence() == Presence::Found;
        let collection = self.shared.collections.get(record.collection());
        let (form, view) = match request.columns {
            Some(columns) if is_found => view_of(record, columns),
            _ => {
                let compression = collection.compression.as_ref();
                (self.shared.compressor.form(record, compression, request.headers), None)
            }
        };
        let hash = view.as_ref().map_or_else(|| form.record().body_hash(), |view| view.hash);
        let condition = if precondition::has_any(request.headers) {
            let etag = header_writer::etag(hash);
            precondition::evaluate(request.headers, is_found.then_some(&etag), form.coding())
        } else {
            Precondition::Holds
        };
        let purges = (request.is_purgeable, &*self.shared.cache);
        let sharing = collection.sharing(form.record(), provenance.outcome, purges);
        let answer = |form, instead, is_known| {
            let answer =
                RecordAnswer { form, provenance, instead, is_known, sharing, rate_limit: None };
            (Answer::Record(answer), provenance.outcome)
        };
        match condition {
            Precondition::Fails => {
                let hash = is_found.then_some(hash);
                let response =
                    precondition_failed(form.record(), hash, provenance, &self.header_writer);
                (response.into(), provenance.outcome)
            }
            // A view has one form.
            Precondition::NotModified(_) if view.is_some() => answer(form, view, true),
            Precondition::NotModified(named) => answer(form.named(named), None, true),
            Precondition::Holds => {
                let bytes = view.as_ref().map_or(form.bytes().len(), |view| view.body.len());
                if (bytes as u64) < COUNTED_BYTES_MIN {
                    return answer(form, view, false);
                }
                let body = view.map_or_else(|| Body::Record(form.clone()), |view| view.body);
                match self.shared.budgets.hold(body, size, request.connection) {
                    Ok(body) => answer(form, Some(Box::new(OtherBody { body, hash })), false),
                    Err(refused) => Answer::refused(refused),
                }
            }
        }
    }

    /// Returns a stale record that the sender sees, unless the request revalidates.
    pub(crate) fn stale_if_error(
        &self,
        key: &Key,
        mode: ReadMode,
        sight: Sight<'_>,
        now: Nanos,
    ) -> Option<Record> {
        if mode == ReadMode::Revalidate {
            return None;
        }
        self.shared.cache.stale_if_error(key, now).filter(|record| sight.sees(record))
    }

    fn answer_stale(&self, record: Record, request: &ReadRequest<'_>, now: Nanos) -> Outcome {
        let age = self.shared.cache.age(&record, now);
        self.answer(record, Provenance { outcome: CacheOutcome::Stale, age }, request, None)
    }
}
