//! A connection's state in its worker: the socket, unanswered requests, and slots that wait for it
//! to open.

use std::collections::VecDeque;

use crate::http2::Http2Session;
use crate::outbox::Outbox;
use crate::plan::Slot;
use crate::response::Parser;
use crate::sent_request::SentRequest;
use crate::stream::Stream;

/// A connection, open or not.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    pub(crate) stream: Option<Stream>,
    /// The protocol's state on an HTTP/2 connection, from the end of the TLS handshake.
    pub(crate) http2: Option<Box<Http2Session>>,
    pub(crate) phase: ConnectionPhase,
    /// Incremented with each socket, so that events of an earlier socket are recognized.
    pub(crate) generation: u32,
    pub(crate) parser: Parser,
    /// Requests without a complete response, the oldest first.
    pub(crate) sent: VecDeque<SentRequest>,
    /// Slots assigned while it was not open, and requests that must be sent again.
    pub(crate) waiting: VecDeque<WaitingSlot>,
    /// Bytes that the socket has not accepted yet.
    pub(crate) out: Outbox,
    /// True if the server has announced the end of the connection.
    pub(crate) ending: bool,
    /// True if it is in the list of connections with unread bytes.
    pub(crate) postponed: bool,
    /// Permits withheld until the back-off is over.
    pub(crate) withheld_permits: u32,
    /// Responses on this socket.
    pub(crate) answers: u64,
    /// True if the server's limit of streams was reported.
    pub(crate) limit_reported: bool,
    /// True if it was open before.
    pub(crate) opened_before: bool,
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ConnectionPhase {
    /// No socket; the next slot opens one.
    #[default]
    Closed,
    /// No socket, and none before this time: the last attempt failed.
    BackingOff { until_ns: u64 },
    /// Connecting, or in the TLS handshake.
    Connecting { begun_ns: u64, deadline_ns: u64 },
    /// Requests can be sent.
    Open,
}

/// A slot that waits for its connection to open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingSlot {
    pub(crate) slot: Slot,
    /// The request that was sent before on an earlier connection, if any.
    pub(crate) sent: Option<SentRequest>,
}

impl From<Slot> for WaitingSlot {
    fn from(slot: Slot) -> Self {
        Self { slot, sent: None }
    }
}

impl Connection {
    /// Drops the socket and its state; the caller must account for the returned requests.
    pub(crate) fn close(&mut self) -> VecDeque<SentRequest> {
        self.stream = None;
        self.phase = ConnectionPhase::Closed;
        self.generation = self.generation.wrapping_add(1);
        self.parser.reset();
        // The memory of a large, partly sent request must be freed.
        self.out = Outbox::default();
        self.answers = 0;
        self.ending = false;
        self.postponed = false;
        let mut unanswered = std::mem::take(&mut self.sent);
        if let Some(session) = self.http2.take() {
            unanswered.extend(session.unanswered());
        }
        unanswered
    }

    /// Returns whether a request waits for its response.
    pub(crate) fn is_awaiting(&self) -> bool {
        !self.sent.is_empty() || self.http2.as_ref().is_some_and(|http2| http2.in_flight() > 0)
    }

    /// Returns the requests without a complete response.
    pub(crate) fn unanswered(&self) -> impl Iterator<Item = &SentRequest> {
        self.sent.iter().chain(self.http2.iter().flat_map(|http2| http2.unanswered()))
    }

    /// Returns the time by which the oldest request must be answered.
    pub(crate) fn deadline_ns(&self, timeout_ns: u64) -> Option<u64> {
        match self.phase {
            ConnectionPhase::Open => {
                let oldest = match &self.http2 {
                    None => self.sent.front().map(|sent| sent.sent_ns),
                    Some(http2) => http2.unanswered().map(|sent| sent.sent_ns).min(),
                };
                oldest.map(|sent_ns| sent_ns.saturating_add(timeout_ns))
            }
            ConnectionPhase::Connecting { deadline_ns, .. } => Some(deadline_ns),
            ConnectionPhase::BackingOff { until_ns } => Some(until_ns),
            ConnectionPhase::Closed => None,
        }
    }
}
