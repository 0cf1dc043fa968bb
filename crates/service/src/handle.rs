//! Handler of one worker's data requests: its features, put together, and the way from a request's
//! path to the one that answers it.

mod authentication;
mod counts;
mod notes;
pub(crate) mod serve;
mod step;

use std::rc::Rc;
use std::sync::Arc;

use hotrow_answer::context::{ReadRequest, RequestTimes};
use hotrow_answer::credential::Credential;
use hotrow_answer::ids::parse_query;
use hotrow_answer::metrics::WorkerMetrics;
use hotrow_answer::read_requirement::ReadRequirement;
use hotrow_answer::record_answer::RecordHeads;
use hotrow_answer::request::Request;
use hotrow_answer::respond::capabilities;
use hotrow_answer::route::{METHODS, Route};
use hotrow_changes::follow::WorkerFollowers;
use hotrow_measure::clock::Nanos;
use hotrow_telemetry::history::hot_keys::KeySampler;
use hotrow_telemetry::lookups::WorkerLookups;
use hotrow_telemetry::request::Notes;
use http::Method;

pub use self::authentication::Authorisation;
pub use self::counts::AnswerCounts;
pub use self::notes::RequestNotes;
pub use self::step::Step;
pub use self::step::{CONFIGURATION_CHANGED, Evaluation, Pending, ReceivedIds};
use crate::batch;
use crate::field_selection::select_fields;
use crate::follow::Following;
use crate::lookups::LookupCounters;
use crate::observer::Observer;
use crate::reads::Reads;
use crate::redis::Commands;
use crate::shared::Shared;
use crate::tracking::WorkerTracking;

/// Handler of the data requests of one worker, under the settings in force.
pub struct Handler {
    /// Parts shared with the other threads.
    pub shared: Shared,
    pub(crate) authorisation: Rc<Authorisation>,
    pub(crate) reads: Rc<Reads>,
    /// Notes for operators.
    pub(crate) notes: Rc<RequestNotes>,
    pub(crate) counts: Rc<AnswerCounts>,
    /// Commands of the Redis protocol.
    pub(crate) commands: Rc<Commands>,
    /// Changes for followers.
    pub(crate) following: Rc<Following>,
    /// Writer of the heads of most answers.
    heads: RecordHeads,
}

impl Handler {
    /// Creates the handler of a worker. `index`: the worker's number. `key_sampler`: sampler of hot
    /// keys, if they are on.
    #[must_use]
    pub fn new(
        shared: Shared,
        metrics: Arc<WorkerMetrics>,
        lookups: Arc<WorkerLookups>,
        key_sampler: Option<KeySampler>,
        index: usize,
    ) -> Self {
        let counters = LookupCounters::new(lookups, key_sampler, &shared);
        let observer = Observer::new(&shared, index).map(Rc::new);
        let tracking = shared.tracking.as_ref().map(WorkerTracking::new);
        let counts = Rc::new(AnswerCounts::new(metrics));
        Self::of(shared, None, counters, observer, counts, tracking, Rc::default())
    }

    /// Creates the handler that replaces this one under other settings.
    pub(crate) fn replaced_by(&self, shared: Shared) -> Self {
        let counters = self.reads.lookups.counters().clone();
        Self::of(
            shared,
            Some(&self.authorisation),
            counters,
            self.notes.observer.clone(),
            Rc::new(AnswerCounts::new(Arc::clone(&self.counts.metrics))),
            self.commands.tracking.clone(),
            Rc::clone(&self.following.followers),
        )
    }

    /// Has the worker's followers and tracking clients judged by these settings.
    pub(crate) fn take_over(&self) {
        self.following.followers.set_newest(&self.following);
        self.commands.take_over();
    }

    fn of(
        shared: Shared,
        before: Option<&Authorisation>,
        counters: LookupCounters,
        observer: Option<Rc<Observer>>,
        counts: Rc<AnswerCounts>,
        tracking: Option<Rc<WorkerTracking>>,
        followers: Rc<WorkerFollowers<Following>>,
    ) -> Self {
        let authorisation = Authorisation::new(&shared, &counts.metrics, before);
        let reads = Reads::new(&shared, &counts.metrics, &authorisation, counters);
        let notes = Rc::new(RequestNotes::new(&shared, observer, &authorisation));
        Self {
            commands: Commands::new(&shared, &reads, &notes, &counts, tracking),
            following: Rc::new(Following::new(&shared, &reads, followers)),
            heads: RecordHeads::new(&shared.collections),
            shared,
            authorisation,
            reads,
            notes,
            counts,
        }
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
        let sender =
            match self.authorisation.authenticate(|| Credential::of(head.fields()), &context) {
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
            let granted = self.authorisation.authorise(id, &sender, &mut columns, &mut context);
            if let Err(problem) = granted {
                return Step::refused(problem);
            }
            let collection = self.shared.collections.get(id);
            context.required =
                ReadRequirement::of_fields(context.headers, context.rights, collection);
        }
        let selection;
        if let (Some(id), Some(query)) = (collection, query) {
            let collection = self.shared.collections.get(id);
            let catalogued = || self.shared.description.fields(id);
            match select_fields(query, collection, context.columns, catalogued) {
                Ok(selected) => {
                    selection = selected;
                    context.columns = selection.as_ref();
                }
                // As a malformed id.
                Err(problem) => {
                    let Reads { admission, .. } = &*self.reads;
                    return admission
                        .limited(&self.reads, id, 1, &context, move |_, _| Step::refused(problem));
                }
            }
        }
        match routed {
            Err(problem) => Step::refused(problem),
            Ok(Route::Capabilities) => Step::ready(capabilities(METHODS)),
            Ok(Route::Description) => {
                let roles = sender.caller.roles;
                let columns = |id| self.authorisation.columns(id, roles);
                Step::ready(self.shared.description.answer(columns))
            }
            Ok(Route::Item(target, text)) => {
                let parsed = self.shared.collections.get(target.keys).schema.parse_url(text);
                let collection = self.shared.collections.get(target.of);
                context.is_purgeable =
                    !target.is_alias() && collection.is_purgeable(&parsed, (text, query.is_some()));
                self.reads.one(target, parsed, &context)
            }
            Ok(Route::BatchGet(target, query)) => {
                let schema = &self.shared.collections.get(target.keys).schema;
                let (limits, hasher) = (&self.shared.limits, self.shared.cache.hasher());
                let parsed = parse_query(schema, limits, hasher, query);
                batch::several(&self.reads, target, parsed, &context)
            }
            Ok(Route::BatchPost(target)) => {
                batch::posted(&self.reads, target, body, evaluation, &context)
            }
            Ok(Route::Changes(id, query)) => {
                self.following.follow((id, query), (protocol, sender.expires), &context)
            }
        }
    }
}
