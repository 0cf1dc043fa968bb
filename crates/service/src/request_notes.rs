//! Notes of requests for operators, where they are configured.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hotrow_access::caller::Peer;
use hotrow_answer::answer::Answer;
use hotrow_answer::collections::Collections;
use hotrow_answer::context::ConnectionContext;
use hotrow_answer::rejection::Rejection;
use hotrow_gate::admission::Admission;
use hotrow_http1::fields::Fields;
use hotrow_measure::clock::Nanos;
use hotrow_telemetry::access_log::{Entry, RequestLine, WorkerAccessLog};
use hotrow_telemetry::outcome::CacheOutcome;
use hotrow_telemetry::request::{Notes, Protocol};
use hotrow_telemetry::server_timing::ServerTiming;
use hotrow_telemetry::trace_context::parent_of;
use hotrow_telemetry::traces::{AnsweredRequest, TraceSlot};
use http::StatusCode;

use crate::authorisation::Authorisation;
use crate::observer::{Arrived, Observer, PendingNote};
use crate::shared::Shared;

/// Notes of the requests of one worker, under the settings in force.
pub(crate) struct RequestNotes {
    /// `None`: none are configured.
    pub(crate) observer: Option<Rc<Observer>>,
    pub(crate) collections: Arc<Collections>,
    admission: Arc<Admission>,
    pub(crate) authorisation: Rc<Authorisation>,
}

impl RequestNotes {
    pub(crate) fn new(
        shared: &Shared,
        observer: Option<Rc<Observer>>,
        authorisation: &Rc<Authorisation>,
    ) -> Self {
        Self {
            observer,
            collections: Arc::clone(&shared.collections),
            admission: Arc::clone(&shared.admission),
            authorisation: Rc::clone(authorisation),
        }
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
            client: self.admission.client(arrived.connection.peer, headers),
            protocol: arrived.protocol,
            since: arrived.since,
            notes,
            names: self.authorisation.names(),
            parent: parent_of(headers),
            trace,
        }
    }

    /// Returns whether the answer has `Server-Timing`: not if it could show which records of other
    /// tenants are in memory.
    fn shows_time(&self, observer: &Observer, notes: &Notes) -> bool {
        let has_tenants = |id| self.collections.get(id).tenancy.is_some();
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

    /// Returns the note of an answer that had no end when it began, which is made at its end with
    /// the number of its bytes.
    pub(crate) fn stream_note(self: &Rc<Self>, pending: PendingNote) -> Box<dyn FnOnce(u64)> {
        let notes = Rc::clone(self);
        Box::new(move |bytes| {
            let Some(observer) = &notes.observer else { return };
            let now = Nanos::now();
            let took = now.since(pending.since);
            let status = StatusCode::OK.as_u16();
            if let Some(log) = observer.access_log_of(status, took, now) {
                notes.log(log, &pending, took, (status, bytes, CacheOutcome::None));
            }
        })
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
            let client = self.admission.client(connection.peer, Fields::default());
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
        let collection = pending.notes.collection.map(|id| self.collections.get(id));
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
}
