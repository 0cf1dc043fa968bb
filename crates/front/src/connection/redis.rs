//! A connection that speaks the Redis protocol: commands and replies, in order.
//!
//! It is driven as one of HTTP/1.1 ([`exchange`](super::exchange)): one turn reads once, parses
//! every command that has arrived in full, and replies from memory into one buffer, which leaves
//! with one write. A command that needs more than memory ends the turn, nothing behind it begins
//! until it is answered, and nothing is read from its client until then. Limits, time-outs and the
//! drain are the same. A reply cannot announce that it is the last: at the drain, the commands that
//! have arrived are answered before the connection ends.

mod ending;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use hotrow_access::jwt::TOKEN_BYTES_MAX;
use hotrow_admission::byte_budget::Reservation;
use hotrow_answer::activity::{Activity, Expiry, Phase};
use hotrow_answer::body::Body;
use hotrow_answer::context::ConnectionContext;
use hotrow_measure::clock::Nanos;
use hotrow_net::stream::Stream;
use hotrow_resp::arguments::Arguments;
use hotrow_resp::error::ProtocolError;
use hotrow_resp::parser::Parser;
use hotrow_resp::write;
use tokio::io::ReadBuf;

pub(crate) use self::ending::turn_away;
use self::ending::{Leftover, finish};
use super::Client;
use super::commands::{ClientSession, Replied, Reply};
use super::end::ConnectionEnd;
use super::output::{Broken, Output};
use super::registry::Registered;
use super::serve::Serve;
use super::worker_context::{READ_BYTES, REQUEST_WORK, WorkerContext};
use hotrow_config::Limits;

/// Work of a command, and of each key of one with many.
const KEY_WORK: usize = REQUEST_WORK / 4;
/// Most arguments of a command: as many as the largest batch may have, and some more.
const ARGUMENTS_MAX: usize = 16 << 10;
/// Least limit on the bytes of a command.
const COMMAND_BYTES_MIN: usize = 2 * TOKEN_BYTES_MAX;

/// Serves `stream` of `client`, which speaks the Redis protocol, until it is closed.
pub(crate) async fn serve<T: Stream, S: Serve>(
    stream: T,
    client: Client,
    service: Rc<S>,
    registered: Registered,
) {
    let activity = Rc::clone(registered.activity());
    let connection = ConnectionContext::of_redis(client.peer, client.certificate_subject, activity);
    let _open = OpenConnection::new(registered.worker());
    let session = S::Session::begin(connection);
    let mut exchange = Exchange::new(stream, Rc::clone(&service), Rc::clone(&session), &registered);
    let end = poll_fn(|cx| drive(&mut exchange, cx, &registered)).await;
    // Drops a command that still waits, and the bytes that were not sent.
    let (stream, leftover) = exchange.into_parts();
    registered.activity().all_sent();
    if matches!(end, ConnectionEnd::Expired(Expiry::Write | Expiry::SlowReader | Expiry::SendBytes))
    {
        session.was_slow();
    }
    if matches!(end, ConnectionEnd::Expired(Expiry::Head | Expiry::Body)) && leftover.all_sent {
        service.input_refused(&session, INCOMPLETE_STATUS);
    }
    drop((session, service));
    // Of its own memory: a connection that waits must not have room for its end.
    registered.close(Box::pin(finish(stream, end, leftover)).await);
}

/// Counts a connection while it is open, also by a panic.
struct OpenConnection(Rc<WorkerContext>);

impl OpenConnection {
    fn new(worker: &Rc<WorkerContext>) -> Self {
        worker.metrics.redis.accepted.increment();
        Self(Rc::clone(worker))
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.metrics.redis.closed.increment();
    }
}

/// Statuses of refused input in the access log, as over HTTP.
const MALFORMED: u16 = 400;
const INCOMPLETE_STATUS: u16 = 408;
const OVERLOADED: u16 = 503;
/// Last reply where other commands hold the memory.
const NO_ROOM: &str = "BUSY commands and bodies of other clients hold as many bytes as this server \
    allows (limits.bodies_bytes_total); try again later";

/// Commands first, deadlines second: a command that has arrived by now counts as arrived.
fn drive<T: Stream, S: Serve>(
    exchange: &mut Exchange<T, S>,
    cx: &mut Context<'_>,
    registered: &Registered,
) -> Poll<ConnectionEnd> {
    registered.activity().register(cx.waker());
    let session = Rc::clone(&exchange.session);
    let receives = session.receives();
    if receives {
        session.wake_at_mail(cx.waker());
    }
    match exchange.advance(cx, registered) {
        Poll::Ready(Ok(())) => return Poll::Ready(ConnectionEnd::Finished),
        Poll::Ready(Err(Broken)) => return Poll::Ready(ConnectionEnd::Broken),
        Poll::Pending => {}
    }
    // It has begun to receive in this turn.
    if !receives && session.receives() && session.wake_at_mail(cx.waker()) {
        cx.waker().wake_by_ref();
    }
    match registered.must_look().then(|| registered.overdue()).flatten() {
        Some(overdue) => Poll::Ready(ConnectionEnd::Expired(overdue)),
        None => Poll::Pending,
    }
}

/// One connection while it is served.
struct Exchange<T, S: Serve> {
    stream: T,
    service: Rc<S>,
    worker: Rc<WorkerContext>,
    activity: Rc<Activity>,
    session: Rc<S::Session>,
    input: Input,
    output: Output<Body>,
    pending: Option<Pin<Box<dyn Future<Output = Reply>>>>,
    /// Commands of `EXEC`, and how many of their bytes are used.
    queued: Option<(Vec<u8>, usize)>,
    /// `true`: the last reply has been written to `output`.
    is_last: bool,
    /// `true`: the client's bytes are no commands.
    is_refused: bool,
}

/// Input that was received and not used.
#[derive(Default)]
struct Input {
    held: Vec<u8>,
    /// `true`: `held` may begin with a complete command.
    is_unexamined: bool,
    /// Parser of the incomplete command in `held`.
    parser: Option<Box<Parser>>,
    /// Reservation of `held`, if it is large.
    reservation: Option<Reservation>,
}

/// Reason for which a run over received bytes ends.
#[derive(Clone, Copy)]
enum RunEnd {
    /// All are used.
    Used,
    /// What remains is an incomplete command.
    Incomplete,
    /// Commands may remain.
    Unexamined,
    Refused(ProtocolError),
}

impl<T: Stream, S: Serve> Exchange<T, S> {
    fn new(stream: T, service: Rc<S>, session: Rc<S::Session>, registered: &Registered) -> Self {
        let (worker, activity) = (Rc::clone(registered.worker()), Rc::clone(registered.activity()));
        Self {
            stream,
            service,
            output: Output::new(Rc::clone(&worker), Rc::clone(&activity)),
            worker,
            activity,
            session,
            input: Input::default(),
            pending: None,
            queued: None,
            is_last: false,
            is_refused: false,
        }
    }

    fn into_parts(self) -> (T, Leftover) {
        let leftover = Leftover {
            has_unread: !self.input.held.is_empty() || self.is_refused,
            is_refused: self.is_refused,
            all_sent: self.output.is_empty(),
        };
        (self.stream, leftover)
    }

    /// Serves until the connection ends or has to wait.
    fn advance(
        &mut self,
        cx: &mut Context<'_>,
        registered: &Registered,
    ) -> Poll<Result<(), Broken>> {
        self.worker.begin_turn();
        loop {
            ready!(self.output.poll_flush(&mut self.stream, cx))?;
            if self.is_last {
                return Poll::Ready(Ok(()));
            }
            if self.add_mail() {
                continue;
            }
            if let Some(pending) = &mut self.pending {
                let Reply { bytes, body } = ready!(pending.as_mut().poll(cx));
                self.pending = None;
                self.output.buffer().extend_from_slice(&bytes);
                if let Some(body) = body {
                    self.output.add_body(body, cx)?;
                }
                continue;
            }
            if self.worker.must_yield(cx) {
                return Poll::Pending;
            }
            if self.session.is_in_transaction() {
                self.run_queued(cx)?;
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

    /// Adds what the mailbox of the connection has, if it can be written now. Returns whether it
    /// did.
    fn add_mail(&mut self) -> bool {
        let Some(is_last) = self.session.write_mail(self.output.buffer()) else { return false };
        self.is_last |= is_last;
        true
    }

    /// Begins the commands of `EXEC` that are left.
    fn run_queued(&mut self, cx: &mut Context<'_>) -> Result<(), Broken> {
        let limits = parse_limits(&self.worker.limits());
        let now = Nanos::now();
        let mut parser = Parser::default();
        while let Some((bytes, used)) = self.queued.take() {
            let must_wait = self.pending.is_some() || self.is_last;
            if must_wait || self.worker.is_turn_over() || !self.output.has_room() {
                self.queued = Some((bytes, used));
                return Ok(());
            }
            // Written by `MULTI`, so that there is nothing but whole commands.
            let rest = bytes.get(used..).unwrap_or_default();
            let Ok(Some(command_bytes)) = parser.parse(rest, &limits) else { break };
            let arguments = parser.arguments(rest);
            self.worker.worked(KEY_WORK * arguments.len().saturating_sub(2).max(1));
            self.begin(arguments, now, cx)?;
            parser.reset();
            self.queued = Some((bytes, used + command_bytes));
        }
        if self.pending.is_none() {
            self.session.end_transaction();
        }
        Ok(())
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
            // Half a command is no command.
            self.input.held = Vec::new();
            return Poll::Ready(Ok(false));
        }
        if self.input.held.is_empty() {
            let used = self.run(received, cx, registered)?;
            // Without content it has no memory.
            self.input.held = received[used..].to_vec();
            self.reserve();
        } else {
            self.input.held.extend_from_slice(received);
            self.run_held(cx, registered)?;
        }
        Poll::Ready(Ok(true))
    }

    /// Begins the commands in the held bytes.
    fn run_held(&mut self, cx: &mut Context<'_>, registered: &Registered) -> Result<(), Broken> {
        let mut held = std::mem::take(&mut self.input.held);
        let used = self.run(&held, cx, registered)?;
        if used < held.len() {
            held.drain(..used);
            self.input.held = held;
        }
        self.reserve();
        Ok(())
    }

    /// Begins the commands in `bytes`. Returns the number of bytes that it used.
    fn run(
        &mut self,
        bytes: &[u8],
        cx: &mut Context<'_>,
        registered: &Registered,
    ) -> Result<usize, Broken> {
        let worker = Rc::clone(&self.worker);
        // After the `recv`: a process that was stopped before it must not take them for older.
        let now = Nanos::now();
        let limits = parse_limits(&worker.limits());
        let partial = self.input.parser.take();
        let mut parser = partial.map_or_else(|| worker.command_parser.take(), |parser| *parser);
        let mut used = 0;
        let end = loop {
            let rest = &bytes[used..];
            if rest.is_empty() {
                break RunEnd::Used;
            }
            let must_wait = self.pending.is_some() || self.queued.is_some() || self.is_last;
            if must_wait || self.worker.is_turn_over() || !self.output.has_room() {
                break RunEnd::Unexamined;
            }
            match parser.parse(rest, &limits) {
                Ok(Some(command_bytes)) => {
                    let arguments = parser.arguments(rest);
                    self.worker.worked(KEY_WORK * arguments.len().saturating_sub(2).max(1));
                    if !arguments.is_empty() {
                        self.begin(arguments, now, cx)?;
                    }
                    used += command_bytes;
                    parser.reset();
                }
                Ok(None) => break RunEnd::Incomplete,
                Err(error) => break RunEnd::Refused(error),
            }
        };
        self.service.turn_ended();
        let is_examined = matches!(end, RunEnd::Used | RunEnd::Incomplete);
        self.note_end(end, parser);
        // The client learns the end from the connection: whatever it has sent in full is answered.
        let is_answered = self.pending.is_none() && self.queued.is_none() && used > 0;
        self.is_last |= is_examined && is_answered && registered.ending();
        Ok(used)
    }

    /// Notes what a run has left.
    fn note_end(&mut self, end: RunEnd, mut parser: Parser) {
        self.input.is_unexamined = matches!(end, RunEnd::Unexamined);
        match end {
            RunEnd::Used | RunEnd::Unexamined => {
                parser.reset();
                self.worker.command_parser.set(parser);
            }
            RunEnd::Incomplete => {
                self.input.parser = Some(Box::new(parser));
                self.activity.enter(Phase::Head, self.worker.now.get());
            }
            RunEnd::Refused(error) => {
                self.worker.metrics.redis.protocol_errors.increment();
                self.service.input_refused(&self.session, MALFORMED);
                write::error(self.output.buffer(), &format!("ERR Protocol error: {error}"));
                (self.is_last, self.is_refused) = (true, true);
            }
        }
    }

    /// Begins one command, which has arrived in full.
    fn begin(
        &mut self,
        arguments: Arguments<'_>,
        now: Nanos,
        cx: &mut Context<'_>,
    ) -> Result<(), Broken> {
        self.activity.request(Phase::Handling, self.worker.now.get());
        match self.service.command(arguments, &self.session, now, self.output.buffer()) {
            Replied::Done => {}
            Replied::Body(body) => self.output.add_body(body, cx)?,
            Replied::Last => self.is_last = true,
            Replied::Later(future) => self.pending = Some(future),
            Replied::Commands(commands) => self.queued = Some((commands, 0)),
        }
        Ok(())
    }

    /// Reserves the memory of an incomplete command in the budget of all bodies, if it is large.
    fn reserve(&mut self) {
        let Input { held, parser, reservation, .. } = &mut self.input;
        let bytes = held.capacity() + parser.as_ref().map_or(0, |parser| parser.memory_bytes());
        if bytes <= READ_BYTES {
            *reservation = None;
            return;
        }
        if reservation.is_none() {
            *reservation = self.service.input_budget().map(|budget| budget.empty());
        }
        let has_room = reservation.as_mut().is_some_and(|own| own.grow_to(bytes as u64).is_ok());
        if !has_room && !self.is_last {
            self.service.input_refused(&self.session, OVERLOADED);
            write::error(self.output.buffer(), NO_ROOM);
            (self.is_last, self.is_refused) = (true, true);
        }
    }
}

/// Returns those of the limits that the parser applies.
fn parse_limits(limits: &Limits) -> hotrow_resp::Limits {
    let argument_bytes = limits.target_bytes.max(TOKEN_BYTES_MAX);
    hotrow_resp::Limits {
        arguments: ARGUMENTS_MAX,
        argument_bytes,
        command_bytes: limits.body_bytes.max(COMMAND_BYTES_MIN).max(2 * argument_bytes),
    }
}
