//! Commands of the Redis protocol: a second way to the same records, through the same lookups,
//! limits and grants as HTTP.
//!
//! Reading order: `commands` (which there are), `dispatch` (from a command to its function),
//! `session` (what a connection has said about itself), `connect` (its functions), `read_one` and
//! `read_many` (records), `track` and `subscribe` (client-side caching, with `tracking` beside this
//! module), `transaction`, `refusal` (texts of errors), `answered` (metrics and the access log),
//! `describe` (`COMMAND` and `INFO`).
//!
//! A command becomes the [`RequestContext`](hotrow_answer::context::RequestContext) of a request. Its
//! header fields are those that say the same over HTTP: the credential of `AUTH` is an
//! `Authorization`, and the position of `HOTROW.GET` a `Hotrow-Min-Position`. So each rule has one
//! place, and every command is judged anew, as a request is.

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

pub(crate) use self::answered::{Answered, PendingCommand};
pub(crate) use self::command_request::CommandRequest;

pub(crate) use self::session::Session;
use hotrow_answer::body::Body;
use hotrow_answer::http_error::HttpError;
use hotrow_front::connection::commands;

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
        let text = refusal::text(error);
        let mut bytes = Vec::new();
        hotrow_resp::write::error(&mut bytes, &text);
        let answered = Answered::error(error.status().as_u16(), &text);
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
