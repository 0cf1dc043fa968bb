//! Inspection between the socket and hyper: hyper receives whole, valid requests one at a time, and
//! the connection's state is recorded.
//!
//! hyper drops a `Content-Length` beside a `Transfer-Encoding` silently, and answers its own limits
//! with an empty body. So the bytes are inspected first: [`head`] parses a head just far enough to
//! know where its message ends, [`framing`] follows messages, [`refusal`] answers rejected input,
//! [`phase`] records what the sweep needs.
//!
//! A head passes whole or not at all, and the next message only when hyper asks for it, after it
//! has written the answer before (with `half_close`, see [`crate::connection`]). So when input is
//! refused, everything before it has been answered, hyper has seen nothing of it, and the end of
//! input makes hyper finish.

mod chunked;
mod framing;
mod head;
pub mod phase;
pub mod refusal;
mod target;

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use hotrow_measure::clock::Nanos;
use hyper::rt::ReadBufCursor;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

#[cfg(any(test, fuzzing))]
pub(crate) use self::framing::follow;
use self::framing::{Forwardable, Framer, MessageState};
use self::phase::{Activity, Phase};
use self::refusal::Rejection;
use crate::config::Limits;
use crate::metrics::WorkerMetrics;

/// Bytes that one read takes from a socket. A connection keeps at most this plus `header_bytes`.
pub const READ_BYTES: usize = 32 * 1024;

/// State shared by all connections of a worker. One thread uses it.
pub struct WorkerContext {
    /// Time of the worker's last sweep; at most one sweep old.
    pub now: Cell<Nanos>,
    /// The limits in force.
    pub limits: Limits,
    /// Counters of the worker.
    pub metrics: Arc<WorkerMetrics>,
    scratch: RefCell<Box<[u8]>>,
}

impl WorkerContext {
    /// Creates the state of a worker that starts at `now`.
    #[must_use]
    pub fn new(limits: Limits, metrics: Arc<WorkerMetrics>, now: Nanos) -> Self {
        Self {
            now: Cell::new(now),
            limits,
            metrics,
            scratch: RefCell::new(vec![0; READ_BYTES].into_boxed_slice()),
        }
    }
}

/// A socket whose input is inspected.
pub struct Guard {
    stream: TcpStream,
    worker: Rc<WorkerContext>,
    activity: Rc<Activity>,
    framer: Framer,
    /// Bytes read and not yet forwarded; the first `passed` of them have been inspected.
    held: BytesMut,
    passed: usize,
    input: Input,
    /// `true`: the newest message is a HEAD request, as far as it has arrived.
    to_head: bool,
}

/// Remaining input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    Open,
    /// The client closed its sending side.
    Ended,
    /// Refused in a head: hyper never saw it, so the guard answers.
    RefusedHead(Rejection),
    /// Refused within a body: hyper has the request, so the handler answers.
    RefusedBody(Rejection),
}

/// State of a connection's input when hyper has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftover {
    /// No unread input is known.
    None,
    /// There is unread input; closing at once could destroy the answer on its way.
    Unread,
    /// This must be answered.
    Refused(Rejection),
}

impl Guard {
    /// Inspects `stream`.
    #[must_use]
    pub fn new(stream: TcpStream, worker: Rc<WorkerContext>, activity: Rc<Activity>) -> Self {
        let framer = Framer::default();
        Self {
            stream,
            worker,
            activity,
            framer,
            held: BytesMut::new(),
            passed: 0,
            input: Input::Open,
            to_head: false,
        }
    }

    /// Returns whether the newest message is a HEAD request, whose answer has no body.
    #[must_use]
    pub fn to_head(&self) -> bool {
        self.to_head
    }

    /// Returns the socket and what must happen to it.
    #[must_use]
    pub fn into_parts(self) -> (TcpStream, Leftover) {
        let leftover = match self.input {
            Input::RefusedHead(refusal) => Leftover::Refused(refusal),
            Input::RefusedBody(_) => Leftover::Unread,
            Input::Ended => Leftover::None,
            Input::Open if self.held.is_empty() && self.framer.at_head() => Leftover::None,
            Input::Open => Leftover::Unread,
        };
        (self.stream, leftover)
    }

    /// Forwards inspected bytes as far as there is room.
    fn forward(&mut self, to: &mut ReadBufCursor<'_>) {
        let n = self.passed.min(to.remaining());
        to.put_slice(&self.held[..n]);
        self.held.advance(n);
        self.passed -= n;
        // A waiting connection must not keep the memory of its largest burst.
        if self.held.is_empty() {
            self.held = BytesMut::new();
        }
    }

    /// Inspects `bytes` and records their meaning. Returns how many of them may be forwarded.
    fn inspect(&mut self, bytes: &[u8]) -> usize {
        let was_head = self.framer.at_head();
        if was_head {
            self.to_head = head::is_head_request(bytes);
        }
        let Forwardable { bytes: passed, state } = self.framer.advance(bytes, &self.worker.limits);
        let now = self.worker.now.get();
        let got_head = was_head && passed > 0;
        match state {
            MessageState::More if got_head => self.activity.request(Phase::Body, now),
            MessageState::More if was_head => self.activity.enter(Phase::Head, now),
            MessageState::More => {}
            MessageState::End if got_head => self.activity.request(Phase::Handling, now),
            MessageState::End => self.activity.enter(Phase::Handling, now),
            MessageState::Refused(refusal) => {
                self.worker.metrics.refused(refusal);
                if got_head {
                    self.activity.request(Phase::Handling, now);
                }
                let in_head = was_head && !got_head;
                self.input =
                    if in_head { Input::RefusedHead(refusal) } else { Input::RefusedBody(refusal) };
            }
        }
        passed
    }

    /// Inspects the held bytes. None of them has passed.
    fn inspect_held(&mut self) {
        let held = std::mem::take(&mut self.held);
        self.passed = self.inspect(&held);
        self.held = held;
    }

    /// Reads once and inspects the bytes. Forwards to `to` what may pass, as far as there is room.
    fn read_more(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let worker = Rc::clone(&self.worker);
        let mut scratch = worker.scratch.borrow_mut();
        let mut buf = ReadBuf::new(&mut scratch);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buf))?;
        let bytes = buf.filled();
        if bytes.is_empty() {
            self.input = Input::Ended;
        } else if self.held.is_empty() {
            let passed = self.inspect(bytes);
            let direct = passed.min(to.remaining());
            to.put_slice(&bytes[..direct]);
            if direct < bytes.len() {
                self.held.extend_from_slice(&bytes[direct..]);
                self.passed = passed - direct;
            }
        } else {
            self.held.extend_from_slice(bytes);
            self.inspect_held();
        }
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Read for Guard {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut to: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let guard = self.get_mut();
        let room = to.remaining();
        if guard.passed == 0 && guard.input == Input::Open && !guard.held.is_empty() {
            guard.inspect_held();
        }
        loop {
            if guard.passed > 0 {
                guard.forward(&mut to);
            }
            if to.remaining() < room {
                return Poll::Ready(Ok(()));
            }
            match guard.input {
                Input::Open => {}
                Input::Ended | Input::RefusedHead(_) => return Poll::Ready(Ok(())),
                Input::RefusedBody(refusal) => {
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, refusal)));
                }
            }
            if guard.read_more(cx, &mut to)?.is_pending() {
                if guard.framer.at_head() && guard.held.is_empty() {
                    guard.activity.enter(Phase::Idle, guard.worker.now.get());
                }
                return Poll::Pending;
            }
        }
    }
}

impl hyper::rt::Write for Guard {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let guard = self.get_mut();
        let written = Pin::new(&mut guard.stream).poll_write(cx, buf);
        guard.note_write(written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let guard = self.get_mut();
        let written = Pin::new(&mut guard.stream).poll_write_vectored(cx, bufs);
        guard.note_write(written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper calls this when its own buffer is empty, and a socket has none.
        self.activity.all_sent();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The connection closes by itself: it may have to answer after hyper.
        Poll::Ready(Ok(()))
    }
}

impl Guard {
    fn note_write(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Ready(Ok(n)) => {
                self.activity.wrote(*n);
                self.worker.metrics.bytes_sent.add(*n as u64);
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.activity.write_blocked(self.worker.now.get()),
        }
        written
    }
}

/// Returns whether names may contain the byte (RFC 9110 section 5.6.2). The load generator has its
/// own version, so that an error of one shows in the other.
pub(crate) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use crate::config::Limits;

    /// Returns small limits: 512 bytes of head, 16 fields, 64 bytes of target, 1,000 of body;
    /// header 1 s, body 2 s, idle 3 s, write 4 s.
    pub(crate) fn limits() -> Limits {
        Limits {
            connections: 8,
            connections_per_client: 4,
            requests_in_flight: 8,
            header_bytes: 512,
            headers: 16,
            target_bytes: 64,
            body_bytes: 1_000,
            header_timeout: Duration::from_secs(1),
            body_timeout: Duration::from_secs(2),
            idle_timeout: Duration::from_secs(3),
            idle_reclaim: Duration::from_secs(1),
            write_timeout: Duration::from_secs(4),
            request_timeout: Duration::from_secs(5),
            drain_timeout: Duration::from_secs(6),
            max_batch: 10,
            position_wait: Duration::from_secs(1),
            privileged_waiters: 4,
            checks_per_s: 0,
            bytes: crate::config::ByteLimits::default(),
            drain_rate_min: 0,
        }
    }
}
