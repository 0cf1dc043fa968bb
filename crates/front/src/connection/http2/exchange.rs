//! Requests and answers of one connection.
//!
//! One turn reads once, follows every frame that has arrived in full, and answers from memory into
//! one buffer, which leaves with one write. A request that needs more than memory waits beside
//! others, and is answered when it is ready. While output waits for the socket nothing is read.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use hotrow_answer::activity::{Activity, Phase};
use hotrow_answer::context::ConnectionContext;
use hotrow_http2::Limits;
use hotrow_http2::connection::{Connection, Event, Scratch};
use hotrow_http2::error::{ConnectionError, ErrorCode};
use hotrow_http2::streams::Slot;
use hotrow_measure::clock::Nanos;
use hotrow_net::stream::Stream;
use tokio::io::ReadBuf;
use tokio::time::{Instant, Sleep, sleep_until};

use super::super::end::Http2End;
use super::output::Output;
use super::readiness::Readiness;
use super::work::Work;
use crate::connection::output::Broken;
use crate::connection::registry::Registered;
use crate::connection::serve::Serve;
use crate::connection::worker_context::{REQUEST_WORK, WORK_PER_REQUEST_BYTE, WorkerContext};

/// What a frame costs of the work of a turn, besides its bytes.
const FRAME_WORK: usize = 64;

/// One connection while it is served.
pub(super) struct Exchange<T, S: Serve> {
    stream: T,
    pub(crate) service: Rc<S>,
    pub(crate) worker: Rc<WorkerContext>,
    pub(crate) activity: Rc<Activity>,
    pub(crate) connection: Rc<ConnectionContext>,
    pub(super) http2: Connection,
    /// Input that was received and not used.
    held: Vec<u8>,
    /// `true`: `held` may begin with a complete frame.
    is_unexamined: bool,
    pub(crate) output: Output,
    /// Streams that are not answered at once, by slot.
    pub(super) works: Vec<Option<Work<S>>>,
    /// Number of those that are open.
    pub(super) open_works: usize,
    /// Number of those whose answer is being sent.
    pub(super) sending: usize,
    /// Slot whose answer is sent next.
    pub(super) next_to_send: Slot,
    pub(crate) readiness: Arc<Readiness>,
    pub(super) wakers: Vec<Waker>,
    /// The earliest time at which a client is late with a body, when it matters.
    timer: Option<Pin<Box<Sleep>>>,
    /// `true`: the client takes nothing, or has not taken all.
    is_blocked: bool,
    pub(super) is_closing: bool,
    /// The client opens no more streams.
    client_leaves: bool,
    failed: Option<ConnectionError>,
}

/// Reason for which a run over received bytes ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunEnd {
    /// What remains is no complete frame.
    Incomplete,
    /// Frames may remain.
    Unexamined,
    Failed(ConnectionError),
}

impl<T: Stream, S: Serve> Exchange<T, S> {
    pub(crate) fn new(
        stream: T,
        received: Vec<u8>,
        service: Rc<S>,
        connection: Rc<ConnectionContext>,
        registered: &Registered,
    ) -> Self {
        let (worker, activity) = (Rc::clone(registered.worker()), Rc::clone(registered.activity()));
        let mut output = Output::new(Rc::clone(&worker), Rc::clone(&activity));
        let http2 = Connection::new(Nanos::now().0, limits_of(&worker), output.buffer());
        Self {
            stream,
            service,
            worker,
            activity,
            connection,
            http2,
            is_unexamined: !received.is_empty(),
            held: received,
            output,
            works: Vec::new(),
            open_works: 0,
            sending: 0,
            next_to_send: 0,
            readiness: Arc::default(),
            wakers: Vec::new(),
            timer: None,
            is_blocked: false,
            is_closing: false,
            client_leaves: false,
            failed: None,
        }
    }

    /// Serves until the connection ends or has to wait.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, registered: &Registered) -> Poll<Http2End> {
        if registered.ending() || self.is_closing {
            self.leave();
        }
        let advanced = self.advance(cx);
        match advanced {
            Poll::Ready(Ok(end)) => Poll::Ready(end),
            Poll::Ready(Err(Broken)) => Poll::Ready(Http2End::Broken),
            Poll::Pending => {
                self.note_state();
                Poll::Pending
            }
        }
    }

    fn advance(&mut self, cx: &mut Context<'_>) -> Poll<Result<Http2End, Broken>> {
        self.worker.begin_turn();
        loop {
            self.poll_works(cx);
            if self.is_closing {
                self.leave();
            }
            ready!(self.poll_flush(cx))?;
            if let Some(end) = self.ended() {
                return Poll::Ready(Ok(end));
            }
            if self.poll_timer(cx).is_ready() {
                continue;
            }
            if self.worker.must_yield(cx) {
                return Poll::Pending;
            }
            if self.is_unexamined {
                self.run_held();
                continue;
            }
            if !ready!(self.read(cx))? {
                let end = if self.open_works == 0 { Http2End::Finished } else { Http2End::Broken };
                return Poll::Ready(Ok(end));
            }
        }
    }

    /// Returns the end of a connection, all of whose output is sent.
    fn ended(&self) -> Option<Http2End> {
        match self.failed {
            Some(ConnectionError::Flood) => return Some(Http2End::Flood),
            Some(_) => return Some(Http2End::Refused),
            None => {}
        }
        let is_left = self.client_leaves && self.http2.open_streams() == 0;
        (is_left || self.http2.has_left()).then_some(Http2End::Finished)
    }

    /// Writes what waits. Content is added as the socket takes it.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        self.fill();
        loop {
            ready!(self.output.poll_flush(&mut self.stream, cx))?;
            // Nothing waits for the socket: what is left waits for the client's windows.
            if !self.fill() {
                return Poll::Ready(Ok(()));
            }
            if self.worker.must_yield(cx) {
                return Poll::Pending;
            }
        }
    }

    /// Reads once and follows the frames. Returns `false` at the end of the input.
    fn read(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, Broken>> {
        let worker = Rc::clone(&self.worker);
        let mut scratch = worker.scratch.borrow_mut();
        let mut buffer = ReadBuf::new(&mut scratch);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer)).map_err(|_| Broken)?;
        let received = buffer.filled();
        if received.is_empty() {
            return Poll::Ready(Ok(false));
        }
        if self.held.is_empty() {
            let used = self.run(received);
            // Without content it has no memory.
            self.held = received[used..].to_vec();
        } else {
            self.held.extend_from_slice(received);
            self.run_held();
        }
        Poll::Ready(Ok(true))
    }

    /// Follows the frames in the held bytes.
    fn run_held(&mut self) {
        let mut held = std::mem::take(&mut self.held);
        let used = self.run(&held);
        if used < held.len() {
            held.drain(..used);
            self.held = held;
        }
    }

    /// Follows the frames in `bytes`. Returns the number of bytes that it used.
    fn run(&mut self, bytes: &[u8]) -> usize {
        let worker = Rc::clone(&self.worker);
        // After the `recv`: a process that was stopped before it must not take them for older.
        let now = Nanos::now();
        let limits = limits_of(&worker);
        let mut scratch = worker.http2_scratch.take();
        let mut used = 0;
        let end = loop {
            if worker.is_turn_over() || !self.output.has_room() {
                break RunEnd::Unexamined;
            }
            let rest = &bytes[used..];
            let out = self.output.buffer();
            match self.http2.receive(rest, now.0, limits, &mut scratch, out) {
                Ok(Some(received)) => {
                    used += received.bytes;
                    worker.worked(FRAME_WORK + received.bytes);
                    self.handle(received.event, rest, (now, &scratch));
                }
                Ok(None) => break RunEnd::Incomplete,
                Err(error) => break RunEnd::Failed(error),
            }
        };
        worker.http2_scratch.set(scratch);
        self.service.turn_ended();
        self.is_unexamined = end == RunEnd::Unexamined && used < bytes.len();
        if let RunEnd::Failed(error) = end {
            self.end(error.code());
            self.failed = Some(error);
        }
        used
    }

    fn handle(&mut self, event: Event, bytes: &[u8], (now, scratch): (Nanos, &Scratch)) {
        match event {
            // `fill` looks at the windows.
            Event::None | Event::Room => {}
            Event::Request(start) => {
                let text = WORK_PER_REQUEST_BYTE * scratch.head.text().len();
                self.worker.worked(REQUEST_WORK + text + scratch.head.work());
                self.begin(start, &scratch.head, now);
            }
            Event::Content { slot, from, to, is_last } => {
                self.content(slot, &bytes[from..to], is_last);
            }
            Event::ContentEnd(slot) => self.content(slot, &[], true),
            Event::Closed(slot) => self.remove(slot),
            Event::ClientLeaves => self.client_leaves = true,
        }
    }

    /// Announces the end of the connection.
    pub(super) fn leave(&mut self) {
        self.http2.leave(self.output.buffer());
    }

    /// Ends the connection by the protocol.
    pub(crate) fn end(&mut self, code: ErrorCode) {
        self.http2.end(code, self.output.buffer());
    }

    /// Notes the phase that follows from what is open, and whether the client takes what it may.
    fn note_state(&mut self) {
        let now = self.worker.now.get();
        let is_sending = self.sending > 0 && self.works.iter().flatten().any(Work::is_untaken);
        let is_untaken = self.output.has_answers() || is_sending;
        let is_open = |work: &Work<S>| !work.is_dropping();
        let phase =
            if is_untaken || (self.open_works > 0 && self.works.iter().flatten().any(is_open)) {
                Phase::Handling
            } else if self.http2.is_head_open() || !self.held.is_empty() {
                Phase::Head
            } else {
                Phase::Idle
            };
        if is_untaken || self.output.is_waiting() {
            self.activity.write_blocked(now);
            self.is_blocked = true;
        } else if self.is_blocked {
            self.activity.all_taken();
            self.is_blocked = false;
        }
        self.activity.enter(phase, now);
        if !self.output.is_waiting() {
            // Of answers that ended without a last write, because the client reset them.
            self.activity.all_sent();
        }
    }

    /// Ends what is late. Ready: something was.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.open_works == 0 {
            return Poll::Pending;
        }
        let write_timeout = self.worker.limits().write_timeout;
        let deadline_of = |work: &Work<S>| work.deadline(write_timeout);
        let deadline = self.works.iter().flatten().filter_map(deadline_of).min();
        let Some(deadline) = deadline else {
            self.timer = None;
            return Poll::Pending;
        };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if timer.deadline() != deadline {
            timer.as_mut().reset(deadline);
        }
        ready!(timer.as_mut().poll(cx));
        let now = Instant::now().max(deadline);
        for slot in 0..self.works.len() {
            let work = self.works[slot].as_ref();
            if work.and_then(deadline_of).is_some_and(|until| until <= now) {
                self.expire(slot);
            }
        }
        Poll::Ready(())
    }

    /// Returns the socket. Everything else is dropped.
    pub(super) fn into_stream(self) -> T {
        self.stream
    }
}

fn limits_of(worker: &WorkerContext) -> Limits {
    Limits { head_bytes: worker.parse_limits().head_bytes }
}
