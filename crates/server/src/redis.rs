//! Commands of the Redis protocol: a second way to the same records, through the same lookups,
//! limits and grants as HTTP.
//!
//! Reading order: `commands` (which there are), `dispatch` (from a command to its function),
//! `session` (what a connection has said about itself), `connect` (its functions), `read_one` and
//! `read_many` (records), `track` and `subscribe` (client-side caching, with `tracking` beside this
//! module), `transaction`, `refusal` (texts of errors), `answered` (metrics and the access log),
//! `describe` (`COMMAND` and `INFO`).
//!
//! A command becomes a [`ReadRequest`](crate::context::ReadRequest), as a request over HTTP does.
//! So each rule has one place, and every command is judged anew.

mod answered;
mod command_request;
mod commands;
mod connect;
mod describe;
mod dispatch;
mod read_many;
mod read_one;
mod refusal;
mod session;
mod subscribe;
mod track;
mod tracked;
mod transact;
mod transaction;

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

pub(crate) use self::answered::{Answered, CommandRecorder, PendingCommand};
pub(crate) use self::command_request::CommandRequest;
pub(crate) use self::commands::{IS_READ, LABELS as COMMAND_LABELS};
pub(crate) use self::session::Session;
use crate::answer_counts::AnswerCounts;
use crate::body::Body;
use crate::http_error::HttpError;
use crate::reads::Reads;
use crate::request_notes::RequestNotes;
use crate::shared::Shared;
use crate::tracking::{TrackingRules, WorkerTracking};

/// Commands of one worker's connections, under the settings in force.
pub(crate) struct Commands {
    reads: Rc<Reads>,
    pub(crate) recorder: CommandRecorder,
    /// What decides about tracking clients.
    rules: Rc<TrackingRules>,
    /// Clients of the worker that keep copies, if there are clients of the Redis protocol.
    pub(crate) tracking: Option<Rc<WorkerTracking>>,
    /// Whether answers are given that HTTP would mark as stale.
    allows_stale: bool,
}

impl Commands {
    pub(crate) fn new(
        shared: &Shared,
        reads: &Rc<Reads>,
        notes: &Rc<RequestNotes>,
        counts: &Rc<AnswerCounts>,
        tracking: Option<Rc<WorkerTracking>>,
    ) -> Rc<Self> {
        Rc::new(Self {
            reads: Rc::clone(reads),
            recorder: CommandRecorder::new(notes, counts),
            rules: Rc::new(TrackingRules::new(shared, &reads.authorisation)),
            tracking,
            allows_stale: shared.redis_allows_stale,
        })
    }

    /// Has the worker's tracking clients judged by these settings.
    pub(crate) fn take_over(&self) {
        self.tracking.iter().for_each(|tracking| tracking.set_rules(&self.rules));
    }
}

/// First step of a reply.
pub enum Replied {
    /// The reply is written.
    Done,
    /// Its beginning is written, and this follows.
    Body(Body),
    /// It is written, and the connection ends.
    Last,
    /// The beginning of an array is written, whose elements are the replies to these commands.
    Commands(Vec<u8>),
    /// It needs more than memory.
    Later(Pin<Box<dyn Future<Output = Reply>>>),
}

impl Replied {
    /// Returns the step of a reply that is written up to this body.
    fn of(body: Option<Body>, is_last: bool) -> Self {
        match body {
            Some(body) => Self::Body(body),
            None if is_last => Self::Last,
            None => Self::Done,
        }
    }
}

/// A reply that was waited for.
#[derive(Debug)]
pub struct Reply {
    /// Its beginning, or all of it.
    pub bytes: Vec<u8>,
    /// What follows.
    pub body: Option<Body>,
    /// What is counted and noted when it is sent; `None`: it has been.
    pub(crate) due: Option<(PendingCommand, Answered)>,
}

impl Reply {
    /// Creates a reply whose command has been counted.
    pub(crate) fn counted(bytes: Vec<u8>, body: Option<Body>) -> Self {
        Self { bytes, body, due: None }
    }

    /// Replaces it by a refusal.
    pub(crate) fn refused(self, error: &HttpError) -> Self {
        let mut bytes = Vec::new();
        let answered =
            refusal::write_text(error.status().as_u16(), &refusal::text(error), &mut bytes);
        Self { bytes, body: None, due: self.due.map(|(command, _)| (command, answered)) }
    }

    /// Creates a reply; `write` appends its beginning, and returns what follows and what it says.
    fn of(
        command: PendingCommand,
        write: impl FnOnce(&mut Vec<u8>) -> (Option<Body>, Answered),
    ) -> Self {
        let mut bytes = Vec::new();
        let (body, answered) = write(&mut bytes);
        Self { bytes, body, due: Some((command, answered)) }
    }
}
