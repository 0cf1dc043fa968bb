//! Commands of the Redis protocol: a second way to the same records, through the same lookups,
//! limits and grants as HTTP.
//!
//! Reading order: `commands` (which there are), `dispatch` (from a command to its function),
//! `session` (what a connection has said about itself), `connect` (its functions), `read_one` and
//! `read_many` (records), `track` and `subscribe` (client-side caching, with `tracking` beside this
//! module), `transaction`, `refusal` (texts of errors), `answered` (metrics and the access log),
//! `describe` (`COMMAND` and `INFO`).
//!
//! A command becomes a [`ReadRequest`](hotrow_answer::context::ReadRequest), as a request over HTTP
//! does. So each rule has one place, and every command is judged anew.

mod answered;
mod command_request;
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

use std::rc::Rc;

pub(crate) use self::answered::{Answered, CommandRecorder, PendingCommand};
pub(crate) use self::command_request::CommandRequest;

pub(crate) use self::session::Session;
use crate::answer_counts::AnswerCounts;
use crate::reads::Reads;
use crate::request_notes::RequestNotes;
use crate::shared::Shared;
use crate::tracking::{TrackingRules, WorkerTracking};
use hotrow_answer::body::Body;
use hotrow_answer::http_error::HttpError;
use hotrow_front::connection::commands;

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

/// First step of a reply, whose command is counted when it is sent.
pub(crate) type Replied = commands::Replied<Reply>;

/// A reply that was waited for.
#[derive(Debug)]
pub(crate) struct Reply {
    /// Its beginning, or all of it.
    pub bytes: Vec<u8>,
    /// What follows.
    pub body: Option<Body>,
    /// What is counted and noted when it is sent.
    pub(crate) due: (PendingCommand, Answered),
}

impl Reply {
    /// Replaces it by a refusal.
    pub(crate) fn refused(self, error: &HttpError) -> Self {
        let mut bytes = Vec::new();
        let answered =
            refusal::write_text(error.status().as_u16(), &refusal::text(error), &mut bytes);
        Self { bytes, body: None, due: (self.due.0, answered) }
    }

    /// Creates a reply; `write` appends its beginning, and returns what follows and what it says.
    fn of(
        command: PendingCommand,
        write: impl FnOnce(&mut Vec<u8>) -> (Option<Body>, Answered),
    ) -> Self {
        let mut bytes = Vec::new();
        let (body, answered) = write(&mut bytes);
        Self { bytes, body, due: (command, answered) }
    }
}
