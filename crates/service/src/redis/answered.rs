//! What is counted and noted of a command once it is answered: metrics, history, and its line in
//! the access log.
//!
//! As with HTTP ([`observer`](crate::observer)), a command that is answered at once is looked at
//! where it lies, and one that waits takes along a copy of what its line needs. Only commands that
//! read records, and those that are refused, have lines and are part of the history: the others say
//! nothing about the service.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hotrow_access::caller::{Caller, Peer};
use hotrow_answer::commands::{Spec, UNKNOWN};
use hotrow_answer::metrics::RedisOutcome;
use hotrow_front::connection::commands;
use hotrow_measure::clock::Nanos;
use hotrow_resp::Version;
use hotrow_telemetry::access_log::{Entry, PATH_BYTES_MAX, RequestLine, WorkerAccessLog};
use hotrow_types::key::CollectionId;

use super::command_request::{AuthenticatedCommand, CommandRequest};
use super::{Replied, Reply, Session};
use crate::answer_counts::AnswerCounts;
use crate::observer::Observer;
use crate::request_notes::RequestNotes;
use hotrow_config::access::Names;

/// What a reply says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answered {
    pub(crate) outcome: RedisOutcome,
    /// Status that the request would have over HTTP.
    pub(crate) status: u16,
    /// Bytes of the records, or of the error.
    pub(crate) bytes: u64,
}

impl Answered {
    /// Creates what an error says.
    pub(crate) fn error(status: u16, text: &str) -> Self {
        Self { outcome: RedisOutcome::Error, status, bytes: text.len() as u64 }
    }
}

/// A command, as far as it is known who sent it.
#[derive(Clone, Copy)]
pub(super) struct Received<'a> {
    pub(crate) request: &'a CommandRequest<'a>,
    /// `None`: it is not served.
    pub(super) spec: Option<&'static Spec>,
    /// The default until its credential has been accepted.
    pub(super) caller: Caller,
}

impl<'a> Received<'a> {
    /// Describes a command whose credential has not been looked at, or was refused.
    pub(super) fn unknown_sender(
        request: &'a CommandRequest<'a>,
        spec: impl Into<Option<&'static Spec>>,
    ) -> Self {
        Self { request, spec: spec.into(), caller: Caller::default() }
    }

    fn index(&self) -> usize {
        self.spec.map_or(UNKNOWN, |spec| spec.command as usize)
    }

    /// Returns its keys with spaces between, as far as a line shows them. Of other commands nothing
    /// is shown: they may have credentials.
    fn keys(&self) -> Vec<u8> {
        let mut shown = Vec::new();
        let keys = self.spec.and_then(|spec| spec.keys_of(self.request.arguments));
        for key in keys.into_iter().flatten() {
            if shown.len() >= PATH_BYTES_MAX {
                break;
            }
            if !shown.is_empty() {
                shown.push(b' ');
            }
            shown.extend_from_slice(key);
        }
        shown
    }
}

impl<'a> From<&AuthenticatedCommand<'a>> for Received<'a> {
    fn from(asked: &AuthenticatedCommand<'a>) -> Self {
        Self { request: asked.request, spec: Some(asked.spec), caller: asked.sender.caller }
    }
}

/// What the end of a command needs that waits.
#[derive(Debug)]
pub(crate) struct PendingCommand {
    command: usize,
    arrived: Nanos,
    /// `None`: there is no access log.
    note: Option<CommandNote>,
}

/// What the line of a command needs.
#[derive(Debug)]
struct CommandNote {
    /// In small letters, as the metrics have it.
    name: &'static str,
    keys: Vec<u8>,
    client: Peer,
    version: Version,
    collection: Option<CollectionId>,
    caller: Caller,
    names: Option<Arc<Names>>,
}

impl Reply {
    /// Counts and notes it. Returns what is sent.
    pub(crate) fn counted_by(self, recorder: &CommandRecorder) -> commands::Reply {
        let Self { bytes, body, due: (command, answered) } = self;
        recorder.answered_later(&command, answered);
        commands::Reply { bytes, body }
    }
}

/// Metrics and access log of one worker's commands.
pub(crate) struct CommandRecorder {
    notes: Rc<RequestNotes>,
    counts: Rc<AnswerCounts>,
}

impl CommandRecorder {
    pub(crate) fn new(notes: &Rc<RequestNotes>, counts: &Rc<AnswerCounts>) -> Self {
        Self { notes: Rc::clone(notes), counts: Rc::clone(counts) }
    }

    /// Counts a command that has nothing to do with records.
    pub(super) fn done(&self, spec: &Spec) -> Replied {
        self.counts.metrics.redis.count(spec.command as usize, RedisOutcome::None);
        Replied::Done
    }

    /// Counts and notes a command that is answered at once.
    #[inline]
    pub(super) fn answered_at_once(
        &self,
        asked: &AuthenticatedCommand<'_>,
        collection: Option<CollectionId>,
        answered: Answered,
    ) {
        self.count(asked.spec.command as usize, asked.request.arrived, answered);
        if let Some(observer) = &self.notes.observer {
            self.note_command(observer, &asked.into(), collection, answered);
        }
    }

    #[inline]
    fn count(&self, command: usize, since: Nanos, answered: Answered) {
        self.counts.command(command, answered.status, answered.outcome, since);
    }

    /// Counts and notes a command that is refused.
    pub(super) fn answered_with_error(&self, received: &Received<'_>, answered: Answered) {
        self.count(received.index(), received.request.arrived, answered);
        if let Some(observer) = &self.notes.observer {
            self.note_command(observer, received, None, answered);
        }
    }

    /// Returns what a command takes along while it waits.
    pub(super) fn pending_command(
        &self,
        asked: &AuthenticatedCommand<'_>,
        collection: Option<CollectionId>,
    ) -> PendingCommand {
        let has_log =
            self.notes.observer.as_ref().is_some_and(|observer| observer.has_access_log());
        PendingCommand {
            command: asked.spec.command as usize,
            arrived: asked.request.arrived,
            note: has_log.then(|| self.command_note(&asked.into(), collection)),
        }
    }

    /// Counts and notes a command that has waited.
    pub(crate) fn answered_later(&self, pending: &PendingCommand, answered: Answered) {
        self.count(pending.command, pending.arrived, answered);
        self.counts.turn_ended();
        let now = Nanos::now();
        let took = now.since(pending.arrived);
        if let (Some(observer), Some(note)) = (&self.notes.observer, &pending.note)
            && let Some(log) = observer.access_log_of(answered.status, took, now)
        {
            self.log_command(log, note, took, answered);
        }
    }

    #[cold]
    fn note_command(
        &self,
        observer: &Observer,
        received: &Received<'_>,
        collection: Option<CollectionId>,
        answered: Answered,
    ) {
        if !observer.has_access_log() {
            return;
        }
        let now = Nanos::now();
        let took = now.since(received.request.arrived);
        if let Some(log) = observer.access_log_of(answered.status, took, now) {
            self.log_command(log, &self.command_note(received, collection), took, answered);
        }
    }

    fn command_note(
        &self,
        received: &Received<'_>,
        collection: Option<CollectionId>,
    ) -> CommandNote {
        let session = received.request.session;
        CommandNote {
            name: received.spec.map_or("unknown", |spec| spec.name),
            keys: received.keys(),
            client: session.connection().peer,
            version: session.version(),
            collection,
            caller: received.caller,
            names: self.notes.authorisation.names(),
        }
    }

    fn log_command(
        &self,
        access_log: &WorkerAccessLog,
        note: &CommandNote,
        took: Duration,
        answered: Answered,
    ) {
        let method = note.name.to_ascii_uppercase();
        let collection = note.collection.map(|id| self.notes.collections.get(id));
        access_log.write(&Entry {
            ended: SystemTime::now(),
            took: Some(took),
            client: note.client,
            protocol: note.version.label(),
            request: Some(RequestLine { method: method.as_bytes(), target: &note.keys }),
            collection: collection.map(|collection| collection.name.as_str()),
            status: answered.status,
            outcome: answered.outcome.into(),
            bytes: Some(answered.bytes),
            sender: note.names.as_deref().map(|names| (names, note.caller)),
            trace_id: None,
        });
    }

    /// Notes bytes that the connection has refused, because they are no command that it takes.
    #[cold]
    pub(crate) fn note_refused_input(&self, session: &Session, status: u16) {
        let Some(observer) = &self.notes.observer else { return };
        let now = Nanos::now();
        if let Some(log) = observer.access_log_of(status, Duration::ZERO, now) {
            let protocol = session.version().label();
            log.write(&Entry::without_head(session.connection().peer, protocol, status));
        }
    }
}
