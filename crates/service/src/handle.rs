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

use hotrow_access::caller::{Caller, Rights};
use hotrow_admission::byte_budget::AnswerReservation;
use hotrow_admission::shed::Kind;
use hotrow_answer::answer::{Answer, Outcome};
use hotrow_answer::budgets::COUNTED_BYTES_MIN;
use hotrow_answer::context::{RequestContext, RequestTimes};
use hotrow_answer::http_error::HttpError;
use hotrow_answer::metrics::{AccessOutcome, WorkerMetrics};
use hotrow_answer::read_requirement::{ReadRequirement, mode_of};
use hotrow_answer::record_answer::{RecordAnswer, RecordHeads};
use hotrow_answer::request::Request;
use hotrow_answer::respond::{Provenance, capabilities, large_record, precondition_failed};
use hotrow_answer::route::{METHODS, Route};
use hotrow_answer::scan_detector::ClientDetectors;
use hotrow_answer::sight::Sight;
use hotrow_cache::flight::Waiter;
use hotrow_cache::{Freshness, Lookup, Presence, ReadMode, Record};
use hotrow_changes::follow::WorkerFollowers;
use hotrow_gate::access::Authenticator;
use hotrow_gate::read::{lead, wait};
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
use hotrow_types::key::{CollectionId, Key};
use http::{Method, StatusCode};

pub use self::step::Step;
pub(crate) use self::step::{CONFIGURATION_CHANGED, Evaluation, Pending, ReceivedIds};
use crate::observer::Observer;
use crate::position;
use crate::shared::Shared;
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
    pub fn with_key_sampler(self, key_sampler: Option<KeySampler>) -> Self {
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
        let mut context = RequestContext {
            connection,
            headers: head.fields(),
            times,
            caller: Caller::default(),
            rights: Rights::ALL,
            sight: Sight::All,
            columns: None,
            is_paid,
            is_purgeable: false,
            is_traced: true,
        };
        let columns;
        // Before the path is looked at: without a credential nothing is revealed, not even which
        // collections exist.
        let sender = match self.authenticate(&context) {
            Ok(sender) => sender,
            Err(problem) => return Step::problem(&problem),
        };
        // An extension method is none of ours, and costs a copy.
        let method = Method::from_bytes(head.method()).unwrap_or(Method::TRACE);
        let (path, query) = head.path_and_query();
        let routed = self.shared.collections.router.route(&method, path, query);
        let collection = routed.as_ref().ok().and_then(Route::collection);
        *notes = Notes { caller: sender.caller, collection };
        if let (Some(authenticator), Some(id)) = (&self.authenticator, collection) {
            context.caller = sender.caller;
            match authenticator.rights(id, sender.caller.roles) {
                Ok((rights, own)) => {
                    context.rights = rights;
                    columns = own;
                    context.columns = columns.as_ref();
                }
                Err(problem) => {
                    self.metrics.access.count(AccessOutcome::Forbidden);
                    return Step::problem(&problem);
                }
            }
            let tenancy = self.shared.collections.get(id).tenancy;
            context.sight = Sight::new(tenancy, &sender.tenants);
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
                    return self.limited(id, 1, &context, move |_, _| Step::problem(&problem));
                }
            }
        }
        match routed {
            Err(problem) => Step::problem(&problem),
            Ok(Route::Capabilities) => Step::ready(capabilities(METHODS)),
            Ok(Route::Description) => {
                let roles = sender.caller.roles;
                let own = self.authenticator.as_ref();
                let columns = |id| own.and_then(|authenticator| authenticator.columns(id, roles));
                Step::ready(self.shared.description.answer(columns))
            }
            Ok(Route::Item(id, text)) => {
                if let Err(problem) = self.check_shedding_by_head(id, Kind::Hit, &context) {
                    return Step::problem(&problem);
                }
                let parsed = self.shared.collections.get(id).schema.parse_url(text);
                let collection = self.shared.collections.get(id);
                context.is_purgeable = collection.is_purgeable(&parsed, (text, query.is_some()));
                self.limited(id, 1, &context, |handler, context| match parsed {
                    Ok(key) => handler.item(key, context),
                    Err(error) => Step::problem(&HttpError::BadId(error)),
                })
            }
            Ok(Route::BatchGet(id, query)) => {
                let parsed = self.parse_ids(&self.shared.collections.get(id).schema, query);
                self.limited_batch(id, parsed, &context)
            }
            Ok(Route::BatchPost(id)) => self.posted((id, id), body, evaluation, &context),
            Ok(Route::Changes(id, query)) => {
                self.follow((id, query), (protocol, sender.expires), &context)
            }
            Ok(Route::ByAlias(route, targets)) => {
                self.route_by_alias(route, targets, (body, evaluation), &context)
            }
        }
    }

    /// Answers a request for one record.
    pub(crate) fn item(self: &Rc<Self>, key: Key, request: &RequestContext<'_>) -> Step {
        let id = key.collection();
        let now = request.times.now;
        let subject = self.scan_subject(request);
        let required = ReadRequirement::of(request, self.shared.collections.get(id));
        self.requested_one(&key, mode_of(&required, subject), now);
        let mode = match required {
            Ok(ReadRequirement::None) => subject.mode(),
            Ok(ReadRequirement::New) => ReadMode::Revalidate,
            Ok(ReadRequirement::AtLeast(wanted)) => {
                return self.item_at_least(key, wanted, request);
            }
            Err(problem) => return Step::problem(&problem),
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
            Err(problem @ HttpError::BadHeader(_)) => return Step::problem(&problem),
            Err(problem) => {
                self.lookups.count(id.0, LookupKind::Refused);
                return self.refused(&key, mode, request, &problem);
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
            Lookup::Refused(refusal) => self.refused(&key, mode, request, &(&refusal).into()),
        }
    }

    /// Answers a key that is not read: with a stale record, or with the refusal.
    pub(crate) fn refused(
        &self,
        key: &Key,
        mode: ReadMode,
        request: &RequestContext<'_>,
        problem: &HttpError,
    ) -> Step {
        let now = request.times.now;
        match self.stale_if_error(key, mode, request.sight, now) {
            Some(record) => Step::Now(self.answer_stale(record, request, now)),
            None => Step::problem(problem),
        }
    }

    pub(crate) fn item_later(
        self: &Rc<Self>,
        key: Key,
        mode: ReadMode,
        (waiter, deadline, size): (Waiter<ReadFailure>, Nanos, Option<AnswerReservation>),
        outcome: CacheOutcome,
        request: &RequestContext<'_>,
    ) -> Step {
        let outcome = if mode == ReadMode::Revalidate { CacheOutcome::Bypass } else { outcome };
        let arrived = Nanos::now();
        let place = match self.shared.admission.inflight.enter(mode == ReadMode::Revalidate) {
            Ok(place) => place,
            Err(problem) => return Step::problem(&problem),
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
                    None => (problem.response().into(), CacheOutcome::None),
                },
            }
        })
    }

    fn item_at_least(
        self: &Rc<Self>,
        key: Key,
        wanted: hotrow_types::version::Position,
        request: &RequestContext<'_>,
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
            return Step::problem(&problem);
        }
        let (deadline, place) = match self.shared.admission.admit_privileged(request) {
            Ok(admitted) => admitted,
            Err(problem) => return Step::problem(&problem),
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
                    None => (HttpError::Unreadable.response().into(), CacheOutcome::None),
                },
                Err(problem) => (problem.response().into(), CacheOutcome::None),
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
        request: &RequestContext<'_>,
        size: Option<AnswerReservation>,
    ) -> Outcome {
        if !request.sight.sees(&record) {
            return self.absent(&record, provenance.outcome);
        }
        request.connection.collect(&record, provenance.outcome);
        let is_found = record.presence() == Presence::Found;
        if let Some(columns) = request.columns
            && is_found
        {
            return self.narrow(&record, columns, provenance, (request, size));
        }
        let collection = self.shared.collections.get(record.collection());
        let compression = collection.compression.as_ref();
        let form = self.shared.compressor.form(record, compression, request.headers);
        let condition = if precondition::has_any(request.headers) {
            let etag = header_writer::etag(form.record().body_hash());
            precondition::evaluate(request.headers, is_found.then_some(&etag), form.coding())
        } else {
            Precondition::Holds
        };
        let (form, is_known) = match condition {
            Precondition::Fails => {
                let hash = is_found.then(|| form.record().body_hash());
                let response =
                    precondition_failed(form.record(), hash, provenance, &self.header_writer);
                return (response.into(), provenance.outcome);
            }
            Precondition::NotModified(named) => (form.named(named), true),
            Precondition::Holds => (form, false),
        };
        let purges = (request.is_purgeable, &*self.shared.cache);
        let sharing = collection.sharing(form.record(), provenance.outcome, purges);
        if is_known || (form.bytes().len() as u64) < COUNTED_BYTES_MIN {
            let answer = RecordAnswer { form, provenance, is_known, sharing, rate_limit: None };
            return (Answer::Record(answer), provenance.outcome);
        }
        let read_at = form.record().read_at();
        let shared = (provenance, sharing);
        let mut response = large_record(form, shared, collection, &self.header_writer);
        self.note_read(&mut response, Some(read_at));
        let response = self.shared.budgets.hold(response, size, request.connection);
        let is_refused = response.status().is_server_error()
            || response.status() == StatusCode::PAYLOAD_TOO_LARGE;
        let outcome = if is_refused { CacheOutcome::None } else { provenance.outcome };
        (response.into(), outcome)
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

    fn answer_stale(&self, record: Record, request: &RequestContext<'_>, now: Nanos) -> Outcome {
        let age = self.shared.cache.age(&record, now);
        self.answer(record, Provenance { outcome: CacheOutcome::Stale, age }, request, None)
    }
}
