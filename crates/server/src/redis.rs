//! Commands of the Redis protocol: a second way to the same records, through the same lookups,
//! limits and grants as HTTP.
//!
//! Reading order: `commands` (which there are), `dispatch` (from a command to its function),
//! `session` (what a connection has said about itself), `connect` (its functions), `read_one` and
//! `read_many` (records), `track` and `subscribe` (client-side caching, with `tracking` beside this
//! module), `transaction`, `refusal` (texts of errors), `describe` (`COMMAND` and `INFO`).
//!
//! A command becomes the [`RequestContext`](crate::context::RequestContext) of a request. Its
//! header fields are those that say the same over HTTP: the credential of `AUTH` is an
//! `Authorization`, and the position of `HOTROW.GET` a `Hotrow-Min-Position`. So each rule has one
//! place, and every command is judged anew, as a request is.

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
mod transaction;

use std::future::Future;
use std::pin::Pin;

pub(crate) use self::commands::LABELS as COMMAND_LABELS;
pub(crate) use self::dispatch::CommandRequest;
pub(crate) use self::session::Session;
use crate::body::Body;
use crate::http_error::HttpError;
use crate::metrics::RedisOutcome;

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
    /// Index of the command, and its outcome, for the metrics.
    pub(crate) counted: (usize, RedisOutcome),
}

impl Reply {
    /// Creates a reply whose command has been counted.
    pub(crate) fn counted(bytes: Vec<u8>, body: Option<Body>) -> Self {
        Self { bytes, body, counted: (usize::MAX, RedisOutcome::None) }
    }

    /// Creates a reply to a command that is refused.
    pub(crate) fn refused(error: &HttpError) -> Self {
        let mut bytes = Vec::new();
        hotrow_resp::write::error(&mut bytes, &refusal::text(error));
        Self::counted(bytes, None)
    }

    /// Creates a reply; `write` appends its beginning, and returns what follows and its outcome.
    fn of(
        command: usize,
        write: impl FnOnce(&mut Vec<u8>) -> (Option<Body>, RedisOutcome),
    ) -> Self {
        let mut bytes = Vec::new();
        let (body, outcome) = write(&mut bytes);
        Self { bytes, body, counted: (command, outcome) }
    }
}
