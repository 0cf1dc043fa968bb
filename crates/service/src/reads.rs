//! Reads of one worker: a hit is answered at once, in a straight line; a request that needs the
//! database or the feed becomes a future.

use std::rc::Rc;
use std::sync::Arc;

use hotrow_admission::byte_budget::AnswerReservation;
use hotrow_answer::answer::Answer;
use hotrow_answer::budgets::Budgets;
use hotrow_answer::collections::Collections;
use hotrow_answer::context::ReadRequest;
use hotrow_answer::http_error::HttpError;
use hotrow_answer::metrics::WorkerMetrics;
use hotrow_answer::read_requirement::{LeastPosition, ReadRequirement, mode_of};
use hotrow_answer::respond::Provenance;
use hotrow_cache::flight::Waiter;
use hotrow_cache::{Cache, Freshness, Lookup, ReadMode, Record};
use hotrow_gate::read::{Fetcher, lead, wait};
use hotrow_measure::clock::Nanos;
use hotrow_source::ReadFailure;
use hotrow_telemetry::outcome::CacheOutcome;
use hotrow_telemetry::traces::{ReadKind, WaitingRequest};
use hotrow_types::key::{CollectionId, Key};

use crate::admission::request::RequestAdmission;
use crate::answer_builder::AnswerBuilder;
use crate::authorisation::Authorisation;
use crate::consistency_check::ConsistencyCheck;
use crate::lookups::{LookupCounters, LookupRecorder};
use crate::position;
use crate::shared::Shared;
use crate::step::Step;
use hotrow_config::Limits;

/// Reads of one worker, under the settings in force. A request that waits keeps them alive.
pub(crate) struct Reads {
    pub(crate) cache: Arc<Cache<ReadFailure>>,
    pub(crate) collections: Arc<Collections>,
    pub(crate) fetcher: Arc<Fetcher>,
    pub(crate) budgets: Arc<Budgets>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) consistency_check: Arc<ConsistencyCheck>,
    pub(crate) has_server_timing: bool,
    pub(crate) authorisation: Rc<Authorisation>,
    pub(crate) admission: RequestAdmission,
    pub(crate) lookups: LookupRecorder,
    pub(crate) answers: AnswerBuilder,
    pub(crate) metrics: Arc<WorkerMetrics>,
}

impl Reads {
    pub(crate) fn new(
        shared: &Shared,
        metrics: &Arc<WorkerMetrics>,
        authorisation: &Rc<Authorisation>,
        counters: LookupCounters,
    ) -> Rc<Self> {
        Rc::new(Self {
            cache: Arc::clone(&shared.cache),
            collections: Arc::clone(&shared.collections),
            fetcher: Arc::clone(&shared.fetcher),
            budgets: Arc::clone(&shared.budgets),
            limits: Arc::clone(&shared.limits),
            consistency_check: Arc::clone(&shared.consistency_check),
            has_server_timing: shared.has_server_timing,
            authorisation: Rc::clone(authorisation),
            admission: RequestAdmission::new(shared, metrics),
            lookups: LookupRecorder::new(shared, metrics, counters),
            answers: AnswerBuilder::new(shared),
            metrics: Arc::clone(metrics),
        })
    }

    /// Answers a request for the record with a key.
    pub(crate) fn item(self: &Rc<Self>, key: Key, request: &ReadRequest<'_>) -> Step {
        let id = key.collection();
        let now = request.times.now;
        let subject = self.lookups.scan_subject(request);
        self.lookups.requested_one(&key, mode_of(request.required, subject), now);
        let mode = match request.required {
            Ok(ReadRequirement::None) => subject.mode(),
            Ok(ReadRequirement::New) => ReadMode::Revalidate,
            Ok(ReadRequirement::AtLeast(wanted)) => {
                return self.item_at_least(key, wanted, request);
            }
            Err(problem) => return Step::refused(problem.clone()),
        };
        let cache = &self.cache;
        // Computed only when memory does not answer: a hit does not need it.
        let mut deadline = now;
        let mut size = None;
        let mut lookup_mode = mode;
        let lookup = loop {
            let admit = || {
                deadline = self.admission.admit_reads(id, mode, 1, request)?;
                // Before the read is queued: rows without room are not read.
                size = Some(self.budgets.answer_of_rows(id, 1)?);
                Ok(deadline)
            };
            match cache.lookup_if(&key, lookup_mode, now, admit) {
                // In all other respects the request counts as one whose key is not in memory.
                Ok(Lookup::Hit(record, _) | Lookup::Negative(record, _))
                    if lookup_mode != ReadMode::Revalidate
                        && request.sight.must_read_again(&record) =>
                {
                    lookup_mode = ReadMode::Revalidate;
                }
                Ok(lookup) => break lookup,
                Err(problem @ HttpError::BadHeader(_)) => return Step::refused(problem),
                Err(problem) => {
                    self.lookups.refused(id);
                    return self.refused(&key, mode, request, problem);
                }
            }
        };
        self.lookups.looked_up(subject, id, mode, &lookup);
        let (waiter, outcome) = match lookup {
            Lookup::Hit(record, quality) | Lookup::Negative(record, quality) => {
                if self.admission.may_refresh(id, quality, now) && cache.refresh(&key) {
                    lead(&self.fetcher, id);
                }
                if quality == Freshness::Fresh {
                    self.consistency_check.offer(&key, &record);
                }
                let provenance = Provenance::of_hit(quality, cache.age(&record, now));
                return Step::Now(self.answers.answer(record, provenance, request, None));
            }
            Lookup::Refused(refusal) => {
                return self.refused(&key, mode, request, (&refusal).into());
            }
            Lookup::Coalesced(waiter) => (waiter, CacheOutcome::Coalesced),
            Lookup::Miss(waiter) => (waiter, CacheOutcome::Miss),
            Lookup::Bypass(waiter) => (waiter, CacheOutcome::Bypass),
        };
        if outcome != CacheOutcome::Coalesced {
            lead(&self.fetcher, id);
        }
        self.item_later(key, mode, (waiter, deadline, size), outcome, request)
    }

    /// Answers a key that is not read: with a stale record, or with the refusal.
    fn refused(
        &self,
        key: &Key,
        mode: ReadMode,
        request: &ReadRequest<'_>,
        problem: HttpError,
    ) -> Step {
        let now = request.times.now;
        match self.answers.stale_if_error(key, mode, request.sight, now) {
            Some((record, how)) => Step::Now(self.answers.answer(record, how, request, None)),
            None => Step::refused(problem),
        }
    }

    fn item_later(
        self: &Rc<Self>,
        key: Key,
        mode: ReadMode,
        (waiter, deadline, size): (Waiter<ReadFailure>, Nanos, Option<AnswerReservation>),
        outcome: CacheOutcome,
        request: &ReadRequest<'_>,
    ) -> Step {
        let outcome = if mode == ReadMode::Revalidate { CacheOutcome::Bypass } else { outcome };
        let arrived = Nanos::now();
        let place = match self.admission.shared.inflight.enter(mode == ReadMode::Revalidate) {
            Ok(place) => place,
            Err(problem) => return Step::refused(problem),
        };
        let reads = Rc::clone(self);
        let logged = self.fetcher.query_log.enter(&key, request.headers);
        let waiting = self.fetcher.trace(request, &[&key], mode.into());
        let request = request.to_pending();
        Step::later(waiting.as_ref().map(WaitingRequest::slot), async move {
            let _place = (place, logged, waiting);
            let request = request.context();
            let result = reads.wait_for(key.collection(), waiter, deadline).await;
            reads.admission.waited(arrived, &result);
            let now = Nanos::now();
            match result {
                Ok(record) => {
                    let age = reads.cache.age(&record, now);
                    reads.answers.answer(record, Provenance { outcome, age }, &request, size)
                }
                Err(problem) => {
                    match reads.answers.stale_if_error(&key, mode, request.sight, now) {
                        Some((record, how)) => reads.answers.answer(record, how, &request, None),
                        None => Answer::refused(problem),
                    }
                }
            }
        })
    }

    fn item_at_least(
        self: &Rc<Self>,
        key: Key,
        wanted: LeastPosition,
        request: &ReadRequest<'_>,
    ) -> Step {
        let id = key.collection();
        let now = request.times.now;
        if !request.sight.hides_existence()
            && let Some((record, provenance)) = position::at_once(&self.cache, &key, wanted, now)
        {
            return Step::Now(self.answers.answer(record, provenance, request, None));
        }
        let (deadline, place) = match position::admit(&self.admission, id, wanted, request) {
            Ok(admitted) => admitted,
            Err(problem) => return Step::refused(problem),
        };
        let reads = Rc::clone(self);
        let fetcher = &self.fetcher;
        let waiting = fetcher.trace(request, &[&key], ReadKind::MinPosition);
        let request = request.to_pending();
        Step::later(waiting.as_ref().map(WaitingRequest::slot), async move {
            let _place = place;
            let keys = [key];
            let Self { fetcher, cache, limits, .. } = &*reads;
            let wait = (limits.position_wait, waiting.as_ref());
            let context = request.context();
            let sought = (&keys[..], context.sight, context.columns);
            match position::read_at_least((fetcher, cache), wait, sought, wanted, deadline).await {
                Ok((mut answers, size)) => match answers.pop() {
                    Some((record, provenance)) => {
                        reads.answers.answer(record, provenance, &request.context(), Some(size))
                    }
                    None => Answer::refused(HttpError::Unreadable),
                },
                Err(problem) => Answer::refused(problem),
            }
        })
    }

    /// Waits for a read until the request's deadline.
    async fn wait_for(
        &self,
        collection: CollectionId,
        waiter: Waiter<ReadFailure>,
        deadline: Nanos,
    ) -> Result<Record, HttpError> {
        match tokio::time::timeout(
            deadline.since(Nanos::now()),
            wait(&self.fetcher, collection, waiter),
        )
        .await
        {
            Ok(result) => result.map_err(|failure| HttpError::from(&failure)),
            Err(_) => Err(HttpError::Timeout("the database did not answer in time")),
        }
    }
}
