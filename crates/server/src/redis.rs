//! Commands of the Redis protocol: a second way to the same records, through the same lookups,
//! limits and grants as HTTP.
//!
//! Reading order: `commands` (which there are), `dispatch` (from a command to its function),
//! `session` (what a connection has said about itself), `connect` (its functions), `read_one` and
//! `read_many` (records), `track` and `subscribe` (client-side caching, with `tracking` beside this
//! module), `transaction`, `refusal` (texts of errors), `answered` (metrics and the access log),
//! `describe` (`COMMAND` and `INFO`).
//!
//! A command becomes the [`RequestContext`](crate::context::RequestContext) of a request. Its
//! header fields are those that say the same over HTTP: the credential of `AUTH` is an
//! `Authorization`, and the position of `HOTROW.GET` a `Hotrow-Min-Position`. So each rule has one
//! place, and every command is judged anew, as a request is.
//!
//! Reference `redis`: # Redis commands and errors
//!
//! Of the [Redis protocol](redis.md).

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

pub(crate) use self::answered::{Answered, PendingCommand};
pub(crate) use self::command_request::CommandRequest;
pub(crate) use self::commands::{IS_READ, LABELS as COMMAND_LABELS};
pub(crate) use self::session::Session;
use crate::body::Body;
use crate::http_error::HttpError;

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
        let text = refusal::text(error);
        let mut bytes = Vec::new();
        hotrow_resp::write::error(&mut bytes, &text);
        let answered = Answered::error(error.status().as_u16(), &text);
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
