//! State of a connection at its end.

use hotrow_answer::activity::Expiry;
use hotrow_answer::rejection::Rejection;

/// Reason for which a connection of HTTP/1.1, or of the Redis protocol, is not driven further.
#[derive(Clone, Copy, Debug)]
pub(super) enum ConnectionEnd {
    /// By HTTP.
    Finished,
    /// The socket or a body failed.
    Broken,
    /// A time-out expired.
    Expired(Expiry),
}

/// State of a connection's input at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Leftover {
    /// No unread input is known.
    None,
    /// There is unread input; closing at once could destroy the answer on its way.
    Unread,
    /// This must be answered.
    Refused(Rejection),
    /// The client speaks HTTP/2, and this is what it has sent.
    Http2(Vec<u8>),
}

/// State of the newest message when its connection ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastMessage {
    /// `true`: it is a HEAD request.
    pub(super) to_head: bool,
    /// `true`: nothing of an earlier answer waits, so another answer would be read as one.
    pub(super) all_sent: bool,
}

/// Reason for which a connection of HTTP/2 is not driven further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Http2End {
    /// By the protocol.
    Finished,
    /// The socket failed, or the client has left open streams.
    Broken,
    /// The client broke the protocol; a GOAWAY has been sent.
    Refused,
    /// The client exceeded a bound on what it may repeat; a GOAWAY has been sent.
    Flood,
    Expired(Expiry),
}
