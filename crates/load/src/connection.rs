//! One connection as its worker sees it: the socket, what was sent on it and is not answered, what waits for it to open.

use std::collections::VecDeque;

use crate::outbox::Outbox;
use crate::plan::Slot;
use crate::response::Parser;
use crate::stream::Stream;

/// A connection, or the place for one.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    pub(crate) stream: Option<Stream>,
    pub(crate) phase: Phase,
    /// Rises with each socket, so that events of an earlier one are told apart.
    pub(crate) generation: u32,
    pub(crate) parser: Parser,
    /// Requests without a complete answer, the oldest first.
    pub(crate) sent: VecDeque<Sent>,
    /// Slots that were taken while it was not open.
    pub(crate) waiting: VecDeque<Slot>,
    /// Bytes that the socket did not take yet.
    pub(crate) out: Outbox,
    /// Whether the server has announced its end of the connection.
    pub(crate) ending: bool,
    /// Whether it is on the list of those that were left with bytes to read.
    pub(crate) postponed: bool,
    /// Places for requests that are kept back until its rest is over.
    pub(crate) resting_places: u32,
    /// Answers on this socket.
    pub(crate) answers: u64,
    /// Whether it was open before.
    pub(crate) opened_before: bool,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No socket; the next slot opens one.
    #[default]
    Closed,
    /// No socket, and none before this time: the last attempt failed.
    Resting { until_ns: u64 },
    /// Connecting, or shaking hands over TLS.
    Connecting { deadline_ns: u64 },
    /// Requests can be sent.
    Open,
}

/// A request that was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) slot: Slot,
    pub(crate) sent_ns: u64,
    /// Whether its answer may have a body.
    pub(crate) has_body: bool,
}

impl Connection {
    /// Drops the socket and all that belongs to it; what was sent must be accounted for by the caller.
    pub(crate) fn close(&mut self) -> VecDeque<Sent> {
        self.stream = None;
        self.phase = Phase::Closed;
        self.generation = self.generation.wrapping_add(1);
        self.parser.reset();
        // A large request that was cut short must not keep its memory.
        self.out = Outbox::default();
        self.answers = 0;
        self.ending = false;
        self.postponed = false;
        std::mem::take(&mut self.sent)
    }

    /// When the oldest request must be answered.
    pub(crate) fn deadline_ns(&self, timeout_ns: u64) -> Option<u64> {
        match self.phase {
            Phase::Open => self.sent.front().map(|sent| sent.sent_ns.saturating_add(timeout_ns)),
            Phase::Connecting { deadline_ns } => Some(deadline_ns),
            Phase::Resting { until_ns } => Some(until_ns),
            Phase::Closed => None,
        }
    }
}
