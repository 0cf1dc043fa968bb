//! Links, accept queues, and waits of threads between two samples.

use super::*;

/// One network interface.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// Received bits per second.
    pub received_bits_per_s: f64,
    /// Sent bits per second.
    pub sent_bits_per_s: f64,
    /// Packets per second, both ways.
    pub packets_per_s: f64,
    /// Dropped packets per second, both ways.
    pub dropped_per_s: f64,
    /// Its speed each way, in bits per second; virtual interfaces report none. Filled in by
    /// [`crate::survey`].
    pub speed_bits_per_s: Option<f64>,
}

impl Link {
    pub(super) fn between(before: &Interface, now: &Interface, span: Duration) -> Option<Self> {
        let (received, sent) = (now.received.since(&before.received), now.sent.since(&before.sent));
        let per_s = |count: u64| count as f64 / span.as_secs_f64();
        (!span.is_zero()).then(|| Self {
            name: now.name.clone(),
            received_bits_per_s: per_s(received.bytes.saturating_mul(8)),
            sent_bits_per_s: per_s(sent.bytes.saturating_mul(8)),
            packets_per_s: per_s(received.packets.saturating_add(sent.packets)),
            dropped_per_s: per_s(received.dropped.saturating_add(sent.dropped)),
            speed_bits_per_s: None,
        })
    }
}

/// The accept queue of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptQueue {
    /// Connections in the queue.
    pub waiting: u64,
    /// Longer queues drop further connections; none where unknown.
    pub most: Option<u64>,
}

/// Reasons for a thread's wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitReason {
    /// A lock, or a signal of another thread (futex).
    Lock,
    /// The next event on any of its sockets (epoll, poll, select).
    Events,
    /// A new connection.
    Connection,
    /// A peer's response, or room to send; with the peer where known.
    Peer(Option<SocketAddr>),
    /// A client: its next request, or its acceptance of a response.
    Client,
    /// A disk.
    Disk,
    /// A point in time (sleep).
    Time,
    /// Something else, or not visible.
    Other,
}

/// Number of threads of a process that wait for one reason.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wait {
    /// The reason.
    pub what: WaitReason,
    /// Mean number of threads over the looks of a survey.
    pub threads: f64,
}

impl AcceptQueue {
    /// Returns whether it has room for at most one more; false where the size is unknown.
    #[must_use]
    pub fn is_full(self) -> bool {
        self.most.is_some_and(|most| self.waiting > 0 && self.waiting >= most)
    }
}
