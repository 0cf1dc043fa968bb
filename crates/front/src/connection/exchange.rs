//! Requests and answers of one connection, in order.
//!
//! One turn reads once, parses every request that has arrived in full, and answers from memory into
//! one buffer, which leaves with one write. A request that needs more than memory ends the turn:
//! the answers before it are sent at once, and nothing behind it begins until it is answered. So at
//! most one request of a connection waits, and nothing is read from its client until then.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use hotrow_answer::activity::{Activity, Phase};
use hotrow_answer::context::ConnectionContext;
use hotrow_answer::rejection::Rejection;
use hotrow_answer::request::{BodyPipe, Request, RequestBody};
use hotrow_http1::body::BodyLength;
use hotrow_http1::error::{Malformed, ParseError};
use hotrow_http1::head::{Head, HeadParser, Version, is_head_request};
use hotrow_http1::write;
use hotrow_measure::clock::Nanos;
use hotrow_net::stream::Stream;
use tokio::io::ReadBuf;

use super::end::{ConnectionEnd, LastMessage, Leftover};
use super::http2::PREFACE_LINE;
use super::incoming_body::IncomingBody;
use super::output::{Broken, Output};
use super::registry::Registered;
use super::serve::{Serve, Served};
use super::worker_context::{REQUEST_WORK, WORK_PER_REQUEST_BYTE, WorkerContext};

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// One connection while it is served.
pub(super) struct Exchange<T, S: Serve> {
    stream: T,
    service: Rc<S>,
    worker: Rc<WorkerContext>,
    activity: Rc<Activity>,
    connection: Rc<ConnectionContext>,
    input: Input,
    output: Output<S::Body>,
    pending: Option<Pending<S::Answer>>,
    /// `true`: the last answer has been written to `output`.
    is_last: bool,
}

/// Input that was received and not used.
#[derive(Default)]
struct Input {
    held: Vec<u8>,
    /// `true`: `held` may begin with a complete request.
    is_unexamined: bool,
    /// Parser of the incomplete head in `held`.
    parser: Option<Box<HeadParser>>,
    state: InputState,
    /// `true`: the newest message is a HEAD request, as far as it has arrived.
    to_head: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum InputState {
    #[default]
    Open,
    /// The client closed its sending side.
    Ended,
    /// Refused in a head: no service has seen it.
    RefusedHead(Rejection),
    /// The client speaks HTTP/2. What it has sent is held.
    Http2,
    /// Refused within a body, or its end was not awaited: its service answers, and nothing follows.
    BodyUnread,
}

/// A request that waits for its answer.
struct Pending<A> {
    future: Pin<Box<dyn Future<Output = A>>>,
    framing: Framing,
    body: Option<IncomingBody>,
    chunks: Option<Rc<BodyPipe>>,
}

/// Properties of a request that shape its answer's framing.
#[derive(Clone, Copy)]
struct Framing {
    to_head: bool,
    keeps_alive: bool,
    version: Version,
}

/// Reason for which a run over received bytes ends.
#[derive(Clone, Copy)]
enum RunEnd {
    /// All are used.
    Used,
    /// What remains is an incomplete head.
    Incomplete,
    /// Requests may remain.
    Unexamined,
    Refused(Rejection),
}

impl<T: Stream, S: Serve> Exchange<T, S> {
    pub(crate) fn new(
        stream: T,
        service: Rc<S>,
        connection: Rc<ConnectionContext>,
        registered: &Registered,
    ) -> Self {
        let (worker, activity) = (Rc::clone(registered.worker()), Rc::clone(registered.activity()));
        Self {
            stream,
            service,
            output: Output::new(Rc::clone(&worker), Rc::clone(&activity)),
            worker,
            activity,
            connection,
            input: Input::default(),
            pending: None,
            is_last: false,
        }
    }

    /// Serves until the connection ends or has to wait.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        registered: &Registered,
    ) -> Poll<ConnectionEnd> {
        self.advance(cx, registered).map(|ended| match ended {
            Ok(()) => ConnectionEnd::Finished,
            Err(Broken) => ConnectionEnd::Broken,
        })
    }

    fn advance(
        &mut self,
        cx: &mut Context<'_>,
        registered: &Registered,
    ) -> Poll<Result<(), Broken>> {
        self.worker.begin_turn();
        loop {
            ready!(self.output.poll_flush(&mut self.stream, cx))?;
            if self.is_last
                || matches!(self.input.state, InputState::RefusedHead(_) | InputState::Http2)
            {
                return Poll::Ready(Ok(()));
            }
            if self.worker.must_yield(cx) {
                return Poll::Pending;
            }
            if self.pending.is_some() {
                if self.poll_pending(cx, registered)?.is_pending() {
                    return Poll::Pending;
                }
                continue;
            }
            if self.input.is_unexamined {
                self.run_held(cx, registered)?;
                continue;
            }
            if !ready!(self.read(cx, registered))? {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Reads once and runs over the bytes. Returns `false` at the end of the input.
    fn read(
        &mut self,
        cx: &mut Context<'_>,
        registered: &Registered,
    ) -> Poll<Result<bool, Broken>> {
        let worker = Rc::clone(&self.worker);
        let mut scratch = worker.scratch.borrow_mut();
        let mut buffer = ReadBuf::new(&mut scratch);
        match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(_)) => return Poll::Ready(Err(Broken)),
            Poll::Pending => {
                if self.input.held.is_empty() {
                    self.activity.enter(Phase::Idle, worker.now.get());
                }
                return Poll::Pending;
            }
        }
        let received = buffer.filled();
        if received.is_empty() {
            self.input.state = InputState::Ended;
            return Poll::Ready(Ok(false));
        }
        if self.input.held.is_empty() {
            let used = self.run(received, cx, registered)?;
            // Without content it has no memory.
            self.input.held = received[used..].to_vec();
        } else {
            self.input.held.extend_from_slice(received);
            self.run_held(cx, registered)?;
        }
        Poll::Ready(Ok(true))
    }

    /// Begins the requests in the held bytes.
    fn run_held(&mut self, cx: &mut Context<'_>, registered: &Registered) -> Result<(), Broken> {
        let mut held = std::mem::take(&mut self.input.held);
        let used = self.run(&held, cx, registered)?;
        if used < held.len() {
            held.drain(..used);
            self.input.held = held;
        }
        Ok(())
    }

    /// Begins the requests in `bytes`. Returns the number of bytes that it used.
    fn run(
        &mut self,
        bytes: &[u8],
        cx: &mut Context<'_>,
        registered: &Registered,
    ) -> Result<usize, Broken> {
        let worker = Rc::clone(&self.worker);
        // After the `recv`: a process that was stopped before it must not take them for older.
        let now = Nanos::now();
        let limits = worker.parse_limits();
        let partial = self.input.parser.take();
        let mut parser = partial.map_or_else(|| worker.parser.take(), |parser| *parser);
        let mut used = 0;
        let end = loop {
            let rest = &bytes[used..];
            if rest.is_empty() {
                break RunEnd::Used;
            }
            if worker.is_turn_over()
                || self.pending.is_some()
                || self.is_last
                || self.input.state != InputState::Open
                || !self.output.has_room()
            {
                break RunEnd::Unexamined;
            }
            let head_bytes = match parser.parse(rest, &limits) {
                Ok(Some(head_bytes)) => head_bytes,
                Ok(None) => break RunEnd::Incomplete,
                Err(error) => break RunEnd::Refused(error.into()),
            };
            let head = match parser.head(rest, &limits) {
                Ok(head) => head,
                Err(error) => break RunEnd::Refused(error.into()),
            };
            let Some(body_bytes) = self.begin(head, &rest[head_bytes..], now, cx, registered)?
            else {
                break RunEnd::Refused(Rejection::Malformed(Malformed::Target));
            };
            let bytes = head_bytes + body_bytes;
            worker.worked(REQUEST_WORK + WORK_PER_REQUEST_BYTE * bytes);
            used += bytes;
            parser.reset();
        };
        self.service.turn_ended();
        self.note_end(&bytes[used..], end, parser);
        Ok(used)
    }

    /// Notes what a run has left.
    fn note_end(&mut self, rest: &[u8], end: RunEnd, mut parser: HeadParser) {
        self.input.is_unexamined = matches!(end, RunEnd::Unexamined);
        match end {
            RunEnd::Used | RunEnd::Unexamined => {
                parser.reset();
                self.worker.parser.set(parser);
            }
            RunEnd::Incomplete => {
                self.input.to_head = is_head_request(rest);
                self.input.parser = Some(Box::new(parser));
                self.activity.enter(Phase::Head, self.worker.now.get());
            }
            RunEnd::Refused(_) if self.begins_http2(rest) => {
                self.input.held = rest.to_vec();
                self.input.state = InputState::Http2;
            }
            RunEnd::Refused(rejection) => {
                self.input.to_head = is_head_request(rest);
                self.worker.metrics.refused(rejection);
                self.input.state = InputState::RefusedHead(rejection);
            }
        }
    }

    /// Returns whether refused bytes begin HTTP/2. Over TLS, ALPN has to choose it.
    fn begins_http2(&self, rest: &[u8]) -> bool {
        let may_begin = self.worker.http2 && !T::IS_TLS;
        may_begin && self.activity.requests() == 0 && rest.starts_with(PREFACE_LINE)
    }

    /// Begins one request, whose head is complete. Returns the bytes of its body among `rest`;
    /// `None`: the service cannot read its head.
    fn begin(
        &mut self,
        head: Head<'_>,
        rest: &[u8],
        now: Nanos,
        cx: &mut Context<'_>,
        registered: &Registered,
    ) -> Result<Option<usize>, Broken> {
        let to_head = head.method() == b"HEAD";
        let framing = Framing { to_head, keeps_alive: head.keeps_alive(), version: head.version };
        self.input.to_head = to_head;
        let (body, incoming, body_bytes) = match head.body {
            BodyLength::Empty => (RequestBody::default(), None, 0),
            length => self.begin_body(length, head.expects_continue(), rest),
        };
        let chunks = if head.body == BodyLength::Chunked { body.pipe() } else { None };
        let phase = if incoming.is_some() { Phase::Body } else { Phase::Handling };
        self.activity.request(phase, self.worker.now.get());
        let protocol = head.version.into();
        let request = Request { head, body, connection: &self.connection, now, protocol };
        match self.service.serve(request) {
            Served::Now(answer) => {
                let is_read = incoming.is_none() && are_read(chunks.as_deref());
                self.answer(answer, framing, is_read, cx, registered)?;
            }
            Served::Later(future) => {
                self.pending = Some(Pending { future, framing, body: incoming, chunks });
            }
            Served::Malformed => return Ok(None),
        }
        Ok(Some(body_bytes))
    }

    /// Passes on what has arrived of a body. Returns it, the rest that is to come, and the bytes of
    /// `rest` that belong to it.
    fn begin_body(
        &mut self,
        length: BodyLength,
        expects_continue: bool,
        rest: &[u8],
    ) -> (RequestBody, Option<IncomingBody>, usize) {
        let mut incoming = IncomingBody::new(length, expects_continue);
        let body = incoming.reader();
        match incoming.pass_all(rest, &self.worker.parse_limits()) {
            Ok(used) if incoming.is_complete() => (body, None, used),
            Ok(used) => (body, Some(incoming), used),
            Err(error) => {
                self.refuse_body(error);
                (body, None, rest.len())
            }
        }
    }

    fn refuse_body(&mut self, error: ParseError) {
        self.worker.metrics.refused(error.into());
        self.input.state = InputState::BodyUnread;
    }

    /// Waits for the answer of the pending request, and receives its body while it is wanted.
    fn poll_pending(
        &mut self,
        cx: &mut Context<'_>,
        registered: &Registered,
    ) -> Result<Poll<()>, Broken> {
        let Some(pending) = &mut self.pending else { return Ok(Poll::Ready(())) };
        match pending.future.as_mut().poll(cx) {
            Poll::Pending => self.receive_body(cx),
            Poll::Ready(answer) => {
                let Some(Pending { framing, body, chunks, .. }) = self.pending.take() else {
                    return Ok(Poll::Ready(()));
                };
                let is_read = body.is_none() && are_read(chunks.as_deref());
                self.answer(answer, framing, is_read, cx, registered)?;
                Ok(Poll::Ready(()))
            }
        }
    }

    /// Receives more of the pending request's body. Pending: it is not wanted, or has not arrived.
    fn receive_body(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, Broken> {
        let Some(pending) = &mut self.pending else { return Ok(Poll::Pending) };
        let Some(body) = pending.body.as_mut().filter(|body| body.is_wanted()) else {
            return Ok(Poll::Pending);
        };
        if body.must_ask() && self.input.held.is_empty() {
            self.output.buffer().extend_from_slice(CONTINUE);
            return Ok(Poll::Ready(()));
        }
        if self.input.held.is_empty() {
            let worker = Rc::clone(&self.worker);
            let mut scratch = worker.scratch.borrow_mut();
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Err(Broken),
                Poll::Pending => return Ok(Poll::Pending),
            }
            worker.worked(buffer.filled().len());
            if buffer.filled().is_empty() {
                self.input.state = InputState::Ended;
                body.end_early();
                pending.body = None;
                return Ok(Poll::Ready(()));
            }
            self.input.held.extend_from_slice(buffer.filled());
        }
        self.pass_held();
        Ok(Poll::Ready(()))
    }

    /// Passes held bytes to the pending request's body.
    fn pass_held(&mut self) {
        let Some(mut body) = self.pending.as_mut().and_then(|pending| pending.body.take()) else {
            return;
        };
        let held = std::mem::take(&mut self.input.held);
        match body.pass_all(&held, &self.worker.parse_limits()) {
            Ok(used) => {
                self.input.held = held[used..].to_vec();
                self.input.is_unexamined = !self.input.held.is_empty();
                if body.is_complete() {
                    self.activity.enter(Phase::Handling, self.worker.now.get());
                } else if let Some(pending) = &mut self.pending {
                    pending.body = Some(body);
                }
            }
            Err(error) => self.refuse_body(error),
        }
    }

    /// Writes an answer. `is_read`: the body has arrived in full; another request may follow.
    fn answer(
        &mut self,
        answer: S::Answer,
        framing: Framing,
        is_read: bool,
        cx: &mut Context<'_>,
        registered: &Registered,
    ) -> Result<(), Broken> {
        let out = self.output.buffer();
        let written = self.service.write_head(answer, out);
        let whole = S::whole(&written.body);
        let length = written.body_bytes(whole);
        let has_content = !matches!(written.status, 100..=199 | 204 | 304);
        if !is_read {
            // Its end is unknown or in doubt, so no request may be found behind it.
            self.input.state = InputState::BodyUnread;
            self.activity.enter(Phase::Handling, self.worker.now.get());
        }
        self.is_last = written.closes
            || !framing.keeps_alive
            || matches!(self.input.state, InputState::BodyUnread)
            || registered.ending()
            // Then the end of the connection ends the body.
            || (length.is_none() && has_content);
        if let Some(bytes) = length
            && has_content
            && !written.has_length
        {
            write::content_length(out, bytes);
        }
        if self.is_last && !written.closes {
            out.extend_from_slice(b"connection: close\r\n");
        } else if !self.is_last && framing.version == Version::Http10 {
            out.extend_from_slice(b"connection: keep-alive\r\n");
        }
        out.extend_from_slice(b"date: ");
        out.extend_from_slice(&self.worker.date(self.worker.now.get()));
        out.extend_from_slice(b"\r\n\r\n");
        if !has_content || framing.to_head || self.output.copied(whole) {
            return Ok(());
        }
        self.output.add_body(written.body, cx)
    }

    /// Returns the socket, what must happen to it, and whether a last answer may be written to it.
    pub(crate) fn into_parts(self) -> (T, Leftover, LastMessage) {
        let leftover = match self.input.state {
            InputState::RefusedHead(rejection) => Leftover::Refused(rejection),
            InputState::Http2 => Leftover::Http2(self.input.held),
            InputState::BodyUnread => Leftover::Unread,
            InputState::Ended => Leftover::None,
            InputState::Open if self.input.held.is_empty() && self.pending.is_none() => {
                Leftover::None
            }
            InputState::Open => Leftover::Unread,
        };
        let all_sent = self.output.is_empty();
        (self.stream, leftover, LastMessage { to_head: self.input.to_head, all_sent })
    }
}

/// Returns whether the service has taken all of a chunked body. Unread chunks may hide a request.
fn are_read(chunks: Option<&BodyPipe>) -> bool {
    chunks.is_none_or(|pipe| !pipe.has_content())
}
