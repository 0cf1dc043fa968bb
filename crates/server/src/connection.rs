//! One connection from accept to close: hyper serves it, [`crate::guard`] inspects its input, the
//! worker's sweep enforces time-outs.

mod clients;
mod close;
mod registry;

pub(crate) use self::clients::Clients;
pub(crate) use self::close::turn_away;
pub(crate) use self::registry::{LEAVING_MAX, Registered, Registry};

use std::error::Error as StdError;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper::{Request, Response};
use tokio::net::TcpStream;

use self::close::{answer_and_close, linger, reset};
use crate::config::Limits;
use crate::context::ConnectionContext;
use crate::guard::phase::{Activity, Expiry, Phase};
use crate::guard::refusal::{Malformed, Rejection};
use crate::guard::{Guard, Leftover, READ_BYTES, WorkerContext};
use crate::metrics::{CacheOutcome, CloseCause, WorkerMetrics};

/// Interval of the sweep over all connections; a time-out is enforced at most two sweeps late and
/// never early.
pub const SWEEP_INTERVAL: Duration = Duration::from_millis(100);
/// Size of the write buffer. Beyond it hyper waits for the client to take some before it asks the
/// body for more.
const WRITE_BUFFER_BYTES: usize = 64 * 1024;
/// `HTTP/1.1 100 Continue` and its empty line: the only bytes that precede an answer.
const CONTINUE_BYTES: u64 = 25;

/// Service of a worker. Made on the worker's thread; neither it nor its futures leave that thread.
pub trait Serve: 'static {
    /// Body of an answer.
    type Out: Body<Error: Into<Box<dyn StdError + Send + Sync>>> + 'static;
    /// Error that closes the connection without an answer; usually `Infallible`.
    type Failure: Into<Box<dyn StdError + Send + Sync>>;
    /// Future of an answer.
    type Answer: Future<Output = Result<Response<Self::Out>, Self::Failure>>;

    /// Answers a request that came over `connection`.
    fn serve(
        self: &Rc<Self>,
        request: Request<Incoming>,
        connection: &Rc<ConnectionContext>,
    ) -> Self::Answer;
}

/// A service that ignores the connection.
impl<S, B, E> Serve for S
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = E> + 'static,
    B: Body<Error: Into<Box<dyn StdError + Send + Sync>>> + 'static,
    E: Into<Box<dyn StdError + Send + Sync>>,
{
    type Out = B;
    type Failure = E;
    type Answer = S::Future;

    fn serve(self: &Rc<Self>, request: Request<Incoming>, _: &Rc<ConnectionContext>) -> S::Future {
        self.call(request)
    }
}

/// The worker's service for the requests of one connection.
struct ConnectionService<S> {
    service: Rc<S>,
    connection: Rc<ConnectionContext>,
}

impl<S: Serve> Service<Request<Incoming>> for ConnectionService<S> {
    type Response = Response<S::Out>;
    type Error = S::Failure;
    type Future = S::Answer;

    fn call(&self, request: Request<Incoming>) -> S::Answer {
        self.service.serve(request, &self.connection)
    }
}

/// Returns hyper's settings.
pub(crate) fn builder(limits: &Limits) -> http1::Builder {
    /// Number of fields up to which hyper parses on the stack; beyond it, hyper allocates per
    /// request.
    const FIELDS_ON_STACK: usize = 100;
    let mut builder = http1::Builder::new();
    builder
        // A client may close its sending side and still expect its answer. It also keeps hyper from
        // reading ahead while a request is being answered, which the guard relies on.
        .half_close(true)
        // It would hold a finished answer back until the next pipelined request is answered.
        .pipeline_flush(false)
        // Answers of usual size are copied behind their head and leave with one plain write.
        .writev(false)
        // Done by the sweep, without a timer per connection.
        .header_read_timeout(None)
        .max_buf_size(WRITE_BUFFER_BYTES.max(limits.header_bytes.saturating_add(READ_BYTES)));
    if limits.headers > FIELDS_ON_STACK {
        builder.max_headers(limits.headers);
    }
    builder
}

/// Serves `stream` of `peer` until it is closed.
pub(crate) async fn serve<S: Serve>(
    stream: TcpStream,
    peer: IpAddr,
    builder: &http1::Builder,
    service: Rc<S>,
    registered: Registered,
) {
    let worker = Rc::clone(registered.worker());
    let guard = Guard::new(stream, Rc::clone(&worker), Rc::clone(registered.activity()));
    let connection = ConnectionContext::new(peer, Rc::clone(registered.activity()));
    let http = builder.serve_connection(guard, ConnectionService { service, connection });
    let mut drive = Drive { http, graceful: false };
    let end = poll_fn(|cx| drive.poll(cx, &registered)).await;
    // Dropping hyper's side drops a handler that still runs, and the bytes that were not sent.
    let guard = drive.http.into_parts().io;
    registered.activity().all_sent();
    let to_head = guard.to_head();
    let (stream, leftover) = guard.into_parts();
    let last = ClosingConnection { worker: &worker, activity: registered.activity(), to_head };
    let cause = last.finish(stream, end, leftover).await;
    registered.close(cause);
}

/// Reason for which a connection is not driven further.
#[derive(Clone, Copy, Debug)]
enum ConnectionEnd {
    /// hyper has finished.
    Finished,
    /// The socket or a body failed.
    Broken,
    /// hyper could not parse a head that the guard accepted, and has answered so.
    Unreadable,
    /// A time-out expired.
    Expired(Expiry),
}

struct Drive<S: Serve> {
    http: http1::Connection<Guard, ConnectionService<S>>,
    graceful: bool,
}

impl<S: Serve> Drive<S> {
    /// hyper first, deadlines second: a request that has arrived by now counts as arrived.
    fn poll(&mut self, cx: &mut Context<'_>, registered: &Registered) -> Poll<ConnectionEnd> {
        registered.activity().register(cx.waker());
        loop {
            // Before the answer is written: it must announce that it is the last.
            self.end_gracefully(registered);
            match Pin::new(&mut self.http).poll(cx) {
                Poll::Ready(Ok(())) => return Poll::Ready(ConnectionEnd::Finished),
                Poll::Ready(Err(error)) => {
                    tracing::debug!(%error, "connection ended");
                    return Poll::Ready(if error.is_parse() {
                        ConnectionEnd::Unreadable
                    } else {
                        ConnectionEnd::Broken
                    });
                }
                Poll::Pending => {}
            }
            if !registered.must_look() {
                return Poll::Pending;
            }
            if let Some(overdue) = registered.overdue() {
                return Poll::Ready(ConnectionEnd::Expired(overdue));
            }
            if !self.end_gracefully(registered) {
                return Poll::Pending;
            }
        }
    }

    /// While draining, makes the request in progress the connection's last. Returns whether that
    /// happened just now.
    fn end_gracefully(&mut self, registered: &Registered) -> bool {
        // hyper would close a connection of which it has seen nothing, even with half a head on its
        // way.
        let at_work = || matches!(registered.activity().phase(), Phase::Body | Phase::Handling);
        if self.graceful || !registered.ending() || !at_work() {
            return false;
        }
        self.graceful = true;
        Pin::new(&mut self.http).graceful_shutdown();
        true
    }
}

/// State needed at the end of a connection.
struct ClosingConnection<'a> {
    worker: &'a WorkerContext,
    activity: &'a Activity,
    /// `true`: the last message is a HEAD request.
    to_head: bool,
}

impl ClosingConnection<'_> {
    async fn answer_and_close(&self, stream: TcpStream, refusal: Rejection) {
        answer_and_close(stream, self.worker, refusal, self.to_head).await;
    }

    /// Sends the last answer if one is due, closes, and returns the cause.
    async fn finish(
        &self,
        stream: TcpStream,
        end: ConnectionEnd,
        leftover: Leftover,
    ) -> CloseCause {
        match (end, leftover) {
            (ConnectionEnd::Expired(Expiry::Write), _) => {
                reset(stream);
                CloseCause::WriteTimeout
            }
            (ConnectionEnd::Expired(Expiry::SlowReader), _) => {
                reset(stream);
                CloseCause::DrainRate
            }
            (ConnectionEnd::Expired(Expiry::Head), _) => {
                self.answer_and_close(stream, Rejection::HeadTime).await;
                CloseCause::HeaderTimeout
            }
            (ConnectionEnd::Expired(Expiry::Body), _) => {
                // Once an answer has begun, a second one would be read as its body.
                match self.activity.answer_bytes() {
                    0 | CONTINUE_BYTES => self.answer_and_close(stream, Rejection::BodyTime).await,
                    _ => reset(stream),
                }
                CloseCause::BodyTimeout
            }
            (ConnectionEnd::Expired(Expiry::Idle), _) => CloseCause::Idle,
            (ConnectionEnd::Expired(Expiry::Drained), _) => CloseCause::Drained,
            (ConnectionEnd::Expired(Expiry::Reclaimed), _) => CloseCause::Reclaimed,
            (_, Leftover::Refused(refusal)) => {
                self.answer_and_close(stream, refusal).await;
                CloseCause::Refused
            }
            (ConnectionEnd::Finished, Leftover::None) => CloseCause::Finished,
            (ConnectionEnd::Finished, Leftover::Unread) => {
                linger(stream).await;
                CloseCause::Finished
            }
            (ConnectionEnd::Unreadable, _) => {
                note_unreadable(&self.worker.metrics);
                linger(stream).await;
                CloseCause::Refused
            }
            (ConnectionEnd::Broken, _) => {
                linger(stream).await;
                CloseCause::Broken
            }
        }
    }
}

/// Counts a refusal by hyper itself. The guard's limits are stricter than hyper's, so what remains
/// are bytes that are invalid in their place (in a method, a target, a header's name or value),
/// which is 400 to both.
fn note_unreadable(metrics: &WorkerMetrics) {
    const REFUSAL: Rejection = Rejection::Malformed(Malformed::Field);
    metrics.refused(REFUSAL);
    metrics.answered(REFUSAL.status(), CacheOutcome::None);
}
