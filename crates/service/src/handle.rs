//! Handler of one worker's data requests: its features, put together, and the way from a request's
//! head through one of them to the head of its answer, with the counts and notes of the answer.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use hotrow_answer::answer::{Answer, Outcome};
use hotrow_answer::body::Body;
use hotrow_answer::context::{ConnectionContext, ReadRequest, RequestTimes};
use hotrow_answer::cors::RequestOrigin;
use hotrow_answer::credential::Credential;
use hotrow_answer::http_error::HttpError;
use hotrow_answer::ids::{SNAPSHOT, parse_query};
use hotrow_answer::metrics::WorkerMetrics;
use hotrow_answer::read_requirement::ReadRequirement;
use hotrow_answer::record_answer::RecordHeads;
use hotrow_answer::rejection::Rejection;
use hotrow_answer::request::Request;
use hotrow_answer::respond::capabilities;
use hotrow_answer::route::{METHODS, Route};
use hotrow_answer::written::Written;
use hotrow_changes::follow::WorkerFollowers;
use hotrow_front::connection::serve::write_response;
use hotrow_http2::hpack::encoder;
use hotrow_measure::clock::Nanos;
use hotrow_openapi::viewer;
use hotrow_telemetry::history::hot_keys::KeySampler;
use hotrow_telemetry::lookups::WorkerLookups;
use hotrow_telemetry::outcome::CacheOutcome;
use hotrow_telemetry::request::{Notes, Protocol};
use hotrow_telemetry::server_timing::ServerTiming;
use http::{Method, Response};

use crate::answer_counts::AnswerCounts;
use crate::authorisation::Authorisation;
use crate::field_selection::{FIELDS, check_parameters, select_fields};
use crate::follow::Following;
use crate::lookups::LookupCounters;
use crate::observer::{Arrived, Observer, PendingNote};
use crate::reads::Reads;
use crate::redis::Commands;
use crate::request_notes::RequestNotes;
use crate::shared::Shared;
use crate::snapshot;
use crate::step::{Evaluation, Pending, ReceivedIds, Step};
use crate::targets::{posted, read_one, several};
use crate::tracking::WorkerTracking;

/// Media type that browsers ask for.
const HTML: &[u8] = b"text/html";

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
        if let (Some(id), Some(query), Ok(route)) = (collection, query, &routed) {
            let collection = self.shared.collections.get(id);
            let catalogued = || self.shared.description.fields(id);
            let known = match route {
                Route::BatchGet(..) => &["ids", SNAPSHOT, FIELDS][..],
                Route::Changes(..) => &["after", "ids"],
                _ => &[FIELDS],
            };
            let checked = match self.shared.ignores_unknown_parameters {
                true => Ok(()),
                false => check_parameters(query, known, collection),
            };
            let selected = checked
                .and_then(|()| select_fields(query, collection, context.columns, catalogued));
            match selected {
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
            Err(problem) => Step::refused(self.shared.explained(problem, path)),
            Ok(Route::Capabilities) => Step::ready(capabilities(METHODS)),
            Ok(Route::Description) => {
                let roles = sender.caller.roles;
                let columns = |id| self.authorisation.columns(id, roles);
                Step::ready(self.shared.description.answer(columns))
            }
            Ok(Route::Index) => {
                let is_html = |value: &[u8]| value.windows(HTML.len()).any(|part| part == HTML);
                let wants_page = head.fields().get_all("accept").any(is_html);
                let may_read = |target| self.authorisation.may_read(target, sender.caller.roles);
                Step::ready(self.shared.description.answer_index(wants_page, may_read))
            }
            Ok(Route::File(path)) => Step::ready(viewer::answer(path)),
            Ok(Route::Item(target, text)) => {
                let parsed = self.shared.collections.get(target.keys).schema.parse_url(text);
                let collection = self.shared.collections.get(target.of);
                context.is_purgeable =
                    !target.is_alias() && collection.is_purgeable(&parsed, (text, query.is_some()));
                read_one(&self.reads, target, parsed, &context)
            }
            Ok(Route::BatchGet(target, query)) => {
                let schema = &self.shared.collections.get(target.keys).schema;
                let (limits, hasher) = (&self.shared.limits, self.shared.cache.hasher());
                let parsed = parse_query(schema, limits, hasher, query);
                several(&self.reads, target, parsed, &context)
            }
            Ok(Route::BatchPost(target)) => posted(&self.reads, target, body, evaluation, &context),
            Ok(Route::Snapshot) if query.is_some() && !self.shared.ignores_unknown_parameters => {
                let detail = "this path has no parameters; its body names collections and ids";
                Step::refused(HttpError::UnknownParameter(detail.to_owned()))
            }
            Ok(Route::Snapshot) => {
                let context = ReadRequest { caller: sender.caller, ..context };
                snapshot::posted::posted(&self.reads, sender.clone(), body, &evaluation, &context)
            }
            Ok(Route::Changes(id, query)) => {
                self.following.follow((id, query), (protocol, sender.expires), &context)
            }
        }
    }
}

/// An answer, the origin of the page that asked for it, and the parts of its time.
#[derive(Debug)]
pub(crate) struct AnswerTo {
    answer: Answer,
    origin: RequestOrigin,
    timing: Option<ServerTiming>,
}

/// First step of an answer.
pub(crate) enum FirstStep {
    /// The answer is ready.
    Now(AnswerTo),
    /// It needs more than memory.
    Later(PendingAnswer),
}

/// An answer that needs more than memory.
pub(crate) struct PendingAnswer {
    pub(crate) future: Pin<Box<dyn Future<Output = Outcome>>>,
    pub(crate) ids: Option<ReceivedIds>,
    note: Option<PendingNote>,
    origin: RequestOrigin,
}

/// What the end of a request needs that was waited for.
pub(crate) struct Ending {
    note: Option<PendingNote>,
    origin: RequestOrigin,
}

impl PendingAnswer {
    pub(crate) fn into_parts(self) -> (Option<ReceivedIds>, Ending) {
        (self.ids, Ending { note: self.note, origin: self.origin })
    }
}

impl Handler {
    pub(crate) fn begin(
        self: &Rc<Self>,
        request: Request<'_>,
        evaluation: Evaluation,
    ) -> FirstStep {
        let arrived = Arrived::of(&request);
        let now = arrived.since;
        let mut notes = Notes::default();
        let cors = self.shared.cors.as_deref();
        let origin =
            cors.map_or(RequestOrigin::Other, |cors| cors.origin_of(request.head.fields()));
        let step = match cors.and_then(|cors| cors.preflight(&request.head)) {
            Some(answer) => Step::Now((answer.into(), CacheOutcome::None)),
            None => self.route(request, evaluation, &mut notes),
        };
        match step {
            Step::Now(outcome) => {
                let cache_outcome = outcome.1;
                let mut answer = self.counted(outcome, now);
                if let Some(body) = answer.endless_body() {
                    // Its note is made at its end.
                    if self.notes.observer.is_some() {
                        body.at_end(
                            self.notes.stream_note(self.notes.pending_note(&arrived, notes, None)),
                        );
                    }
                    return FirstStep::Now(AnswerTo { answer, origin, timing: None });
                }
                let note = |observer: &_| {
                    self.notes.note(observer, &arrived, notes, (&answer, cache_outcome))
                };
                let timing = self.notes.observer.as_deref().and_then(note);
                FirstStep::Now(AnswerTo { answer, origin, timing })
            }
            Step::Later(Pending { future, ids, trace }) => {
                let note = |_: &Rc<_>| self.notes.pending_note(&arrived, notes, trace);
                let note = self.notes.observer.as_ref().map(note);
                FirstStep::Later(PendingAnswer { future, ids, note, origin })
            }
        }
    }

    /// Completes an answer that was waited for since `since`.
    pub(crate) fn complete(
        self: &Rc<Self>,
        outcome: Outcome,
        ending: Ending,
        since: Nanos,
    ) -> AnswerTo {
        let Ending { note, origin } = ending;
        let cache_outcome = outcome.1;
        let mut answer = self.counted(outcome, since);
        if let Some(body) = answer.endless_body() {
            if let Some(note) = note {
                body.at_end(self.notes.stream_note(note));
            }
            self.counts.turn_ended();
            return AnswerTo { answer, origin, timing: None };
        }
        let timing = match (&self.notes.observer, &note) {
            (Some(observer), Some(note)) => {
                self.notes.note_pending(observer, note, (&answer, cache_outcome))
            }
            _ => None,
        };
        self.counts.turn_ended();
        AnswerTo { answer, origin, timing }
    }

    /// Refuses a request that was waited for. No page of another origin may read why.
    pub(crate) fn refuse(
        self: &Rc<Self>,
        problem: HttpError,
        ending: Ending,
        since: Nanos,
    ) -> AnswerTo {
        let outcome = Answer::refused(problem);
        self.complete(outcome, Ending { origin: RequestOrigin::Other, ..ending }, since)
    }

    pub(crate) fn write_head(
        &self,
        AnswerTo { answer, origin, timing }: AnswerTo,
        out: &mut Vec<u8>,
    ) -> Written<Body> {
        let written = match answer {
            Answer::Record(answer) => self.heads.write(answer, out),
            Answer::Absent(answer) => self.heads.write_absent(answer, out),
            other => write_response(response_of(other), out),
        };
        if let Some(cors) = &self.shared.cors {
            cors.write(origin, out);
        }
        if let Some(timing) = timing {
            timing.write(out);
        }
        written
    }

    /// Writes the same as fields of HTTP/2. `text` is memory that is used again.
    pub(crate) fn write_fields(
        &self,
        AnswerTo { answer, origin, timing }: AnswerTo,
        text: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Written<Body> {
        text.clear();
        let written = match answer {
            Answer::Record(answer) => self.heads.write_fields(answer, text, out),
            Answer::Absent(answer) => self.heads.write_absent_fields(answer, text, out),
            other => {
                let written = write_response(response_of(other), text);
                encoder::head(out, written.status, text);
                written
            }
        };
        text.clear();
        if let Some(cors) = &self.shared.cors {
            cors.write(origin, text);
        }
        if let Some(timing) = timing {
            timing.write(text);
        }
        encoder::fields(out, text);
        written
    }

    pub(crate) fn note_refused(
        &self,
        rejection: Rejection,
        connection: &Rc<ConnectionContext>,
        protocol: Protocol,
    ) {
        if let Some(observer) = &self.notes.observer {
            self.notes.note_rejected(observer, rejection, (connection, protocol));
        }
    }

    fn counted(&self, (answer, outcome): Outcome, since: Nanos) -> Answer {
        self.counts.answered(answer.status(), outcome, since);
        answer
    }
}

/// Returns an answer that has no head of its own.
fn response_of(answer: Answer) -> Response<Body> {
    match answer {
        Answer::Http(response) => *response,
        Answer::Refused(refusal) => refusal.response(),
        // Heads of records are written without a response, and connections over HTTP get no parts.
        Answer::Record(_) | Answer::Absent(_) | Answer::Items(_) => {
            HttpError::Unreadable.response()
        }
    }
}
