//! One connection from accept to close: hyper serves it, the [`crate::guard`] watches its input, the worker's sweep its time.

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
use crate::guard::phase::{Activity, Overdue, Phase};
use crate::guard::refusal::{Malformed, Refusal};
use crate::guard::{Guard, Leftover, READ_BYTES, Shared};
use crate::habits::{self, Habits};
use crate::metrics::{CacheOutcome, CloseCause, WorkerMetrics};

/// How often the sweep looks at every connection; a time-out is enforced at most two sweeps late and never early.
pub const SWEEP_INTERVAL: Duration = Duration::from_millis(100);
/// What a handler's answer is written with. Above it hyper waits for the client to take some before it asks the body for more.
const WRITE_BUFFER_BYTES: usize = 64 * 1024;
/// `HTTP/1.1 100 Continue` and its empty line: the only bytes that precede an answer.
const CONTINUE_BYTES: u64 = 25;

/// What answers requests. One per worker, made on the worker's thread; neither it nor its futures leave that thread.
pub trait Serve: 'static {
    /// The answer's body.
    type Out: Body<Error: Into<Box<dyn StdError + Send + Sync>>> + 'static;
    /// An error closes the connection without an answer; `Infallible` is the usual choice.
    type Failure: Into<Box<dyn StdError + Send + Sync>>;
    /// The answer on its way.
    type Answer: Future<Output = Result<Response<Self::Out>, Self::Failure>>;

    /// Answers a request that came over a connection from `peer`.
    fn serve(&self, request: Request<Incoming>, peer: IpAddr) -> Self::Answer;
}

/// A service that does not ask who asks.
impl<S, B, E> Serve for S
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = E> + 'static,
    B: Body<Error: Into<Box<dyn StdError + Send + Sync>>> + 'static,
    E: Into<Box<dyn StdError + Send + Sync>>,
{
    type Out = B;
    type Failure = E;
    type Answer = S::Future;

    fn serve(&self, request: Request<Incoming>, _: IpAddr) -> S::Future {
        self.call(request)
    }
}

/// The worker's service, as one connection's requests reach it.
struct OfPeer<S> {
    service: Rc<S>,
    peer: IpAddr,
}

impl<S: Serve> Service<Request<Incoming>> for OfPeer<S> {
    type Response = Response<S::Out>;
    type Error = S::Failure;
    type Future = S::Answer;

    fn call(&self, request: Request<Incoming>) -> S::Answer {
        self.service.serve(request, self.peer)
    }
}

/// hyper as we run it.
pub(crate) fn builder(limits: &Limits) -> http1::Builder {
    /// Up to this many fields hyper parses on the stack; beyond, it allocates per request.
    const FIELDS_ON_STACK: usize = 100;
    let mut builder = http1::Builder::new();
    builder
        // A client may close its sending side and still wants its answer. It also keeps hyper from reading ahead while a
        // request is being answered, which the guard relies on.
        .half_close(true)
        // It would hold a finished answer back until the next pipelined request is answered.
        .pipeline_flush(false)
        // Answers of usual size are copied behind their head and leave with one plain write.
        .writev(false)
        // The sweep does it, without a timer per connection.
        .header_read_timeout(None)
        .max_buf_size(WRITE_BUFFER_BYTES.max(limits.header_bytes.saturating_add(READ_BYTES)));
    if limits.headers > FIELDS_ON_STACK {
        builder.max_headers(limits.headers);
    }
    builder
}

/// Serves `stream`, which leads to `peer`, until it is closed.
pub(crate) async fn serve<S: Serve>(
    stream: TcpStream,
    peer: IpAddr,
    builder: &http1::Builder,
    service: Rc<S>,
    registered: Registered,
) {
    let shared = Rc::clone(registered.shared());
    let guard = Guard::new(stream, Rc::clone(&shared), Rc::clone(registered.activity()));
    let http = builder.serve_connection(guard, OfPeer { service, peer });
    let mut drive = Drive { http, habits: Rc::default(), graceful: false };
    let end = poll_fn(|cx| drive.poll(cx, &registered)).await;
    // Dropping hyper's side drops a handler that still runs.
    let (stream, leftover) = drive.http.into_parts().io.into_parts();
    let cause = finish(stream, &shared, registered.activity(), end, leftover).await;
    registered.close(cause);
}

/// Why a connection is not driven further.
#[derive(Clone, Copy, Debug)]
enum End {
    /// hyper is done with it.
    Finished,
    /// The socket broke, or a body did.
    Broken,
    /// hyper could not read a head that the guard let pass, and has answered so.
    Unreadable,
    /// Its time is over.
    Overdue(Overdue),
}

struct Drive<S: Serve> {
    http: http1::Connection<Guard, OfPeer<S>>,
    habits: Rc<Habits>,
    graceful: bool,
}

impl<S: Serve> Drive<S> {
    /// hyper first, deadlines second: a request that has arrived by now counts as arrived.
    fn poll(&mut self, cx: &mut Context<'_>, registered: &Registered) -> Poll<End> {
        registered.activity().register(cx.waker());
        loop {
            // Before the answer is written: it is to tell the client that it is the last.
            self.end_gracefully(registered);
            match habits::while_current(&self.habits, || Pin::new(&mut self.http).poll(cx)) {
                Poll::Ready(Ok(())) => return Poll::Ready(End::Finished),
                Poll::Ready(Err(error)) => {
                    tracing::debug!(%error, "connection ended");
                    return Poll::Ready(if error.is_parse() { End::Unreadable } else { End::Broken });
                }
                Poll::Pending => {}
            }
            if !registered.must_look() {
                return Poll::Pending;
            }
            if let Some(overdue) = registered.overdue() {
                return Poll::Ready(End::Overdue(overdue));
            }
            if !self.end_gracefully(registered) {
                return Poll::Pending;
            }
        }
    }

    /// While it is ending, makes the request that hyper works at the connection's last. Whether that was done just now.
    fn end_gracefully(&mut self, registered: &Registered) -> bool {
        // hyper would close a connection of which it has seen nothing, even with half a head on its way.
        let at_work = || matches!(registered.activity().phase(), Phase::Body | Phase::Handling);
        if self.graceful || !registered.ending() || !at_work() {
            return false;
        }
        self.graceful = true;
        Pin::new(&mut self.http).graceful_shutdown();
        true
    }
}

/// Says what is left to say, closes, and tells why.
async fn finish(stream: TcpStream, shared: &Shared, activity: &Activity, end: End, leftover: Leftover) -> CloseCause {
    match (end, leftover) {
        (End::Overdue(Overdue::Write), _) => {
            reset(stream);
            CloseCause::WriteTimeout
        }
        (End::Overdue(Overdue::Head), _) => {
            answer_and_close(stream, shared, Refusal::HeadTime).await;
            CloseCause::HeaderTimeout
        }
        (End::Overdue(Overdue::Body), _) => {
            // Once an answer has begun, a second one would be read as its body.
            match activity.answer_bytes() {
                0 | CONTINUE_BYTES => answer_and_close(stream, shared, Refusal::BodyTime).await,
                _ => reset(stream),
            }
            CloseCause::BodyTimeout
        }
        (End::Overdue(Overdue::Idle), _) => CloseCause::Idle,
        (End::Overdue(Overdue::Drained), _) => CloseCause::Drained,
        (End::Overdue(Overdue::Reclaimed), _) => CloseCause::Reclaimed,
        (_, Leftover::Refused(refusal)) => {
            answer_and_close(stream, shared, refusal).await;
            CloseCause::Refused
        }
        (End::Finished, Leftover::None) => CloseCause::Finished,
        (End::Finished, Leftover::Unread) => {
            linger(stream).await;
            CloseCause::Finished
        }
        (End::Unreadable, _) => {
            note_unreadable(&shared.metrics);
            linger(stream).await;
            CloseCause::Refused
        }
        (End::Broken, _) => {
            linger(stream).await;
            CloseCause::Broken
        }
    }
}

/// Counts what hyper refused by itself. The guard's limits are stricter than hyper's, so what is left are bytes that may not stand
/// where they do (in a method, a target, a header's name or value), which is 400 to hyper as to us.
fn note_unreadable(metrics: &WorkerMetrics) {
    const REFUSAL: Refusal = Refusal::Malformed(Malformed::Field);
    metrics.refused(REFUSAL);
    metrics.answered(REFUSAL.status(), CacheOutcome::None);
}
