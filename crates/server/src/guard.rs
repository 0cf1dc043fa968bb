//! Between the socket and hyper: hands hyper whole, sound requests one at a time, and keeps note of what the connection waits
//! for.
//!
//! hyper drops a `Content-Length` that stands beside a `Transfer-Encoding` without a word, and its limits answer with an
//! empty body. So the bytes are looked at before hyper gets them: [`head`] reads a head just far enough to know where its
//! message ends, [`framing`] follows messages, [`refusal`] answers what is not let in, [`phase`] notes what the sweep needs.
//!
//! A head passes whole or not at all, and the next message only when hyper asks for it, which it does when the answer before
//! is written (with `half_close`, see [`crate::connection`]). So when something is refused, everything before it has been
//! answered, hyper has seen nothing of it, and the end of input tells hyper that it is done.

mod chunked;
mod framing;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod head;
pub mod phase;
pub mod refusal;

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

use self::framing::{Framer, Passed, Then};
use self::phase::{Activity, Phase};
use self::refusal::Refusal;
use crate::config::Limits;
use crate::metrics::WorkerMetrics;

/// Bytes that one read takes from a socket. With `header_bytes` it bounds what a connection keeps: at most the sum of both.
pub const READ_BYTES: usize = 32 * 1024;

/// What all connections of a worker share. One thread uses it.
pub struct Shared {
    /// The time as the worker's sweep last saw it; at most one sweep old.
    pub now: Cell<Nanos>,
    /// The limits in force.
    pub limits: Limits,
    /// Where the worker counts.
    pub metrics: Arc<WorkerMetrics>,
    scratch: RefCell<Box<[u8]>>,
}

impl Shared {
    /// For a worker that starts at `now`.
    #[must_use]
    pub fn new(limits: Limits, metrics: Arc<WorkerMetrics>, now: Nanos) -> Self {
        Self { now: Cell::new(now), limits, metrics, scratch: RefCell::new(vec![0; READ_BYTES].into_boxed_slice()) }
    }
}

/// A socket whose input has been looked at.
pub struct Guard {
    stream: TcpStream,
    shared: Rc<Shared>,
    activity: Rc<Activity>,
    framer: Framer,
    /// Bytes read and not yet handed on; the first `passed` of them have been looked at.
    held: BytesMut,
    passed: usize,
    input: Input,
}

/// What may still be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    Open,
    /// The client sends no more.
    Ended,
    /// Refused in a head: hyper never saw it, so we answer.
    RefusedHead(Refusal),
    /// Refused in a body: hyper has the request, so the handler answers.
    RefusedBody(Refusal),
}

/// How a connection's input stood when hyper was done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftover {
    /// Nothing is unread as far as we know.
    None,
    /// There is input that nobody will read; closing at once could destroy the answer on its way.
    Unread,
    /// This must be answered.
    Refused(Refusal),
}

impl Guard {
    /// Guards `stream`.
    #[must_use]
    pub fn new(stream: TcpStream, shared: Rc<Shared>, activity: Rc<Activity>) -> Self {
        let framer = Framer::default();
        Self { stream, shared, activity, framer, held: BytesMut::new(), passed: 0, input: Input::Open }
    }

    /// Gives the socket back, and what must happen to it.
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

    /// Hands on what has passed, as far as there is room.
    fn hand_on(&mut self, to: &mut ReadBufCursor<'_>) {
        let n = self.passed.min(to.remaining());
        to.put_slice(&self.held[..n]);
        self.held.advance(n);
        self.passed -= n;
        // A connection that waits must not keep the room of its largest burst.
        if self.held.is_empty() {
            self.held = BytesMut::new();
        }
    }

    /// Looks at `bytes` and notes what they mean. Returns how many of them may be handed on.
    fn judge(&mut self, bytes: &[u8]) -> usize {
        let was_head = self.framer.at_head();
        let Passed { bytes: passed, then } = self.framer.advance(bytes, &self.shared.limits);
        let now = self.shared.now.get();
        let got_head = was_head && passed > 0;
        match then {
            Then::More if got_head => self.activity.request(Phase::Body, now),
            Then::More if was_head => self.activity.enter(Phase::Head, now),
            Then::More => {}
            Then::End if got_head => self.activity.request(Phase::Handling, now),
            Then::End => self.activity.enter(Phase::Handling, now),
            Then::Refused(refusal) => {
                self.shared.metrics.refused(refusal);
                if got_head {
                    self.activity.request(Phase::Handling, now);
                }
                let in_head = was_head && !got_head;
                self.input = if in_head { Input::RefusedHead(refusal) } else { Input::RefusedBody(refusal) };
            }
        }
        passed
    }

    /// Looks at what is held. Nothing of it has passed.
    fn judge_held(&mut self) {
        let held = std::mem::take(&mut self.held);
        self.passed = self.judge(&held);
        self.held = held;
    }

    /// Reads once and looks at what came. What may be handed on goes into `to` as far as there is room.
    fn read_more(&mut self, cx: &mut Context<'_>, to: &mut ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let shared = Rc::clone(&self.shared);
        let mut scratch = shared.scratch.borrow_mut();
        let mut buf = ReadBuf::new(&mut scratch);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buf))?;
        let bytes = buf.filled();
        if bytes.is_empty() {
            self.input = Input::Ended;
        } else if self.held.is_empty() {
            let passed = self.judge(bytes);
            let direct = passed.min(to.remaining());
            to.put_slice(&bytes[..direct]);
            if direct < bytes.len() {
                self.held.extend_from_slice(&bytes[direct..]);
                self.passed = passed - direct;
            }
        } else {
            self.held.extend_from_slice(bytes);
            self.judge_held();
        }
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Read for Guard {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, mut to: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let guard = self.get_mut();
        let room = to.remaining();
        if guard.passed == 0 && guard.input == Input::Open && !guard.held.is_empty() {
            guard.judge_held();
        }
        loop {
            if guard.passed > 0 {
                guard.hand_on(&mut to);
            }
            if to.remaining() < room {
                return Poll::Ready(Ok(()));
            }
            match guard.input {
                Input::Open => {}
                Input::Ended | Input::RefusedHead(_) => return Poll::Ready(Ok(())),
                Input::RefusedBody(_) => return Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
            }
            if guard.read_more(cx, &mut to)?.is_pending() {
                if guard.framer.at_head() && guard.held.is_empty() {
                    guard.activity.enter(Phase::Idle, guard.shared.now.get());
                }
                return Poll::Pending;
            }
        }
    }
}

impl hyper::rt::Write for Guard {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
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
        // A socket keeps nothing back.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The connection closes by itself: it may have something to say after hyper.
        Poll::Ready(Ok(()))
    }
}

impl Guard {
    fn note_write(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Ready(Ok(n)) => {
                self.activity.wrote(*n);
                self.shared.metrics.bytes_sent.add(*n as u64);
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.activity.write_blocked(self.shared.now.get()),
        }
        written
    }
}

/// What names are made of (RFC 9110 section 5.6.2). The load generator has its own, so that a mistake of one shows in the other.
pub(crate) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
pub(crate) mod tests;
