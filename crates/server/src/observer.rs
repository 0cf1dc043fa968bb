//! Notes for operators of each request: lines of the access log, `Server-Timing`, and spans.
//!
//! A request that is answered at once is looked at where it lies; one that waits takes along a copy
//! of what its note needs. Without a note to make, the one branch on [`Handler`]'s observer is all
//! that a request pays.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hotrow_access::caller::Peer;
use hotrow_config::access::Names;
use hotrow_http1::fields::Fields;
use hotrow_http1::head::Head;
use hotrow_measure::clock::Nanos;
use hotrow_otel::context::TraceParent;
use hotrow_telemetry::access_log::{Entry, RequestLine, WorkerAccessLog};
use hotrow_telemetry::outcome::CacheOutcome;
use hotrow_telemetry::request::Notes;
use hotrow_telemetry::request::Protocol;
use hotrow_telemetry::server_timing::{ReadAt, ServerTiming};
use hotrow_telemetry::trace_context::parent_of;
use hotrow_telemetry::traces::{AnsweredRequest, TraceSlot, Tracer};
use http::{Response, StatusCode};

use crate::admission::rate::seed;
use crate::answer::Answer;
use crate::body::Body;
use crate::connection::rejection::Rejection;
use crate::connection::request::Request;
use crate::context::ConnectionContext;
use crate::handle::Handler;
use crate::shared::Shared;

/// Notes of one worker.
#[derive(Debug)]
pub(crate) struct Observer {
    access_log: Option<WorkerAccessLog>,
    has_server_timing: bool,
    tracer: Option<Arc<Tracer>>,
}

impl Observer {
    /// Creates the notes that are configured; `None`: none are.
    pub(crate) fn new(shared: &Shared, worker: usize) -> Option<Self> {
        let of_worker = |log| {
            let [seed, _] = seed();
            WorkerAccessLog::new(log, worker, seed)
        };
        let access_log = shared.access_log.clone().map(of_worker);
        let has_server_timing = shared.has_server_timing;
        let tracer = shared.fetcher.tracer.clone();
        (access_log.is_some() || has_server_timing || tracer.is_some()).then_some(Self {
            access_log,
            has_server_timing,
            tracer,
        })
    }
}

impl Observer {
    /// Returns whether there is an access log.
    pub(crate) fn has_access_log(&self) -> bool {
        self.access_log.is_some()
    }

    /// Returns the access log if it has a line for such a request.
    pub(crate) fn access_log_of(
        &self,
        status: u16,
        took: Duration,
        now: Nanos,
    ) -> Option<&WorkerAccessLog> {
        self.access_log.as_ref().filter(|log| log.is_due(status, took, now))
    }
}

/// A request as it arrived.
#[derive(Clone, Copy)]
pub(crate) struct Arrived<'a> {
    head: Head<'a>,
    connection: &'a Rc<ConnectionContext>,
    protocol: Protocol,
    pub(crate) since: Nanos,
}

impl<'a> Arrived<'a> {
    pub(crate) fn of(request: &Request<'a>) -> Self {
        let Request { head, connection, now, protocol, .. } = request;
        Self { head: *head, connection, protocol: *protocol, since: *now }
    }
}

/// What the note of a request that waits needs of it.
#[derive(Debug)]
pub(crate) struct PendingNote {
    /// Method and target.
    line: Box<[u8]>,
    method_bytes: usize,
    client: Peer,
    protocol: Protocol,
    since: Nanos,
    notes: Notes,
    names: Option<Arc<Names>>,
    parent: Option<TraceParent>,
    /// Its trace, once it waits for keys and is traced.
    trace: Option<TraceSlot>,
}

impl Handler {
    /// Makes the notes that are configured. `worker`: the worker's index.
    #[must_use]
    pub fn observed(mut self, worker: usize) -> Self {
        self.observer = Observer::new(&self.shared, worker).map(Rc::new);
        self
    }

    /// Returns what a request takes along while it waits.
    pub(crate) fn pending_note(
        &self,
        arrived: &Arrived<'_>,
        notes: Notes,
        trace: Option<TraceSlot>,
    ) -> PendingNote {
        let (method, target) = (arrived.head.method(), arrived.head.target().as_bytes());
        let headers = arrived.head.fields();
        PendingNote {
            line: [method, target].concat().into(),
            method_bytes: method.len(),
            client: self.client(arrived.connection, headers),
            protocol: arrived.protocol,
            since: arrived.since,
            notes,
            names: self.names(),
            parent: parent_of(headers),
            trace,
        }
    }

    /// Notes in an answer when its last read was sent.
    pub(crate) fn note_read(&self, response: &mut Response<Body>, read_at: Option<Nanos>) {
        if let (Some(read_at), true) = (read_at, self.shared.has_server_timing) {
            response.extensions_mut().insert(ReadAt(read_at));
        }
    }

    /// Returns whether the answer has `Server-Timing`: not if it could show which records of other
    /// tenants are in memory.
    fn shows_time(&self, observer: &Observer, notes: &Notes) -> bool {
        let has_tenants = |id| self.shared.collections.get(id).tenancy.is_some();
        observer.has_server_timing && !notes.collection.is_some_and(has_tenants)
    }

    /// Notes a request that is answered at once.
    pub(crate) fn note(
        &self,
        observer: &Observer,
        arrived: &Arrived<'_>,
        notes: Notes,
        (answer, outcome): (&Answer, CacheOutcome),
    ) -> Option<ServerTiming> {
        let now = Nanos::now();
        let took = now.since(arrived.since);
        if let Some(log) = observer.access_log_of(answer.status(), took, now) {
            let pending = self.pending_note(arrived, notes, None);
            let counted = (answer.status(), answer.body_bytes(), outcome);
            self.log(log, &pending, took, counted);
        }
        if let Some(tracer) = &observer.tracer {
            let head = &arrived.head;
            tracer.note_at_once(head.fields(), || AnsweredRequest {
                line: RequestLine { method: head.method(), target: head.target().as_bytes() },
                protocol: arrived.protocol,
                is_over_unix: matches!(arrived.connection.peer, Peer::User(_)),
                notes,
                status: answer.status(),
                outcome,
                since: arrived.since,
                now,
            });
        }
        self.shows_time(observer, &notes).then(|| ServerTiming::at_once(outcome, took))
    }

    /// Notes a request that has waited.
    pub(crate) fn note_pending(
        &self,
        observer: &Observer,
        pending: &PendingNote,
        (answer, outcome): (&Answer, CacheOutcome),
    ) -> Option<ServerTiming> {
        let now = Nanos::now();
        let took = now.since(pending.since);
        if let Some(log) = observer.access_log_of(answer.status(), took, now) {
            self.log(log, pending, took, (answer.status(), answer.body_bytes(), outcome));
        }
        if let Some(tracer) = &observer.tracer {
            let (method, target) = pending.line.split_at(pending.method_bytes);
            let request = AnsweredRequest {
                line: RequestLine { method, target },
                protocol: pending.protocol,
                is_over_unix: matches!(pending.client, Peer::User(_)),
                notes: pending.notes,
                status: answer.status(),
                outcome,
                since: pending.since,
                now,
            };
            let trace = pending.trace.as_ref().and_then(|slot| slot.get());
            tracer.note_ended(trace.map(|trace| &**trace), pending.parent, &request);
        }
        self.shows_time(observer, &pending.notes)
            .then(|| ServerTiming::waited(outcome, pending.since, now, answer.read_at()))
    }

    /// Notes the end of an answer that had no end when it began.
    pub(crate) fn note_stream(&self, observer: &Observer, pending: &PendingNote, bytes: u64) {
        let now = Nanos::now();
        let took = now.since(pending.since);
        let status = StatusCode::OK.as_u16();
        if let Some(log) = observer.access_log_of(status, took, now) {
            self.log(log, pending, took, (status, bytes, CacheOutcome::None));
        }
    }

    /// Notes a request that the connection has refused.
    #[cold]
    pub(crate) fn note_rejected(
        &self,
        observer: &Observer,
        rejection: Rejection,
        (connection, protocol): (&Rc<ConnectionContext>, Protocol),
    ) {
        let status = rejection.status();
        if let Some(log) = observer.access_log_of(status, Duration::ZERO, Nanos::now()) {
            let client = self.client(connection, Fields::default());
            log.write(&Entry::without_head(client, protocol.label(), status));
        }
    }

    #[cold]
    fn log(
        &self,
        access_log: &WorkerAccessLog,
        pending: &PendingNote,
        took: Duration,
        (status, bytes, outcome): (u16, u64, CacheOutcome),
    ) {
        let (method, target) = pending.line.split_at(pending.method_bytes);
        let body_bytes = if method == b"HEAD" { 0 } else { bytes };
        let collection = pending.notes.collection.map(|id| self.shared.collections.get(id));
        access_log.write(&Entry {
            ended: SystemTime::now(),
            took: Some(took),
            client: pending.client,
            protocol: pending.protocol.label(),
            request: Some(RequestLine { method, target }),
            collection: collection.map(|collection| collection.name.as_str()),
            status,
            outcome,
            bytes: Some(body_bytes),
            sender: pending.names.as_deref().map(|names| (names, pending.notes.caller)),
            trace_id: pending.parent.map(|parent| parent.span.trace_id),
        });
    }

    /// Returns the client, which a trusted proxy may name.
    pub(crate) fn client(&self, connection: &ConnectionContext, headers: Fields<'_>) -> Peer {
        self.shared.admission.rate.clients().client(connection.peer, headers)
    }

    pub(crate) fn names(&self) -> Option<Arc<Names>> {
        self.authenticator.as_ref().map(|authenticator| authenticator.names())
    }
}
