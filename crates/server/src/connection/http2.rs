//! A connection that speaks HTTP/2. `hyper` has the protocol; this module adds the service, the
//! time-outs, the drain and the limits of HTTP/1.1.
//!
//! Reading order: here, `streams` (what is open, and how the client takes it), `request` and
//! `answer` (conversion of heads), `frames` (what is counted on the wire), `io`.
//!
//! A request becomes a head of HTTP/1.1 and an answer is made of one, so that both versions have
//! one parser, one set of limits and one writer of answers.

mod answer;
mod frames;
mod io;
mod request;
mod streams;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hotrow_supervisor::TaskGuard;
use hyper::rt::Executor;
use hyper::server::conn::http2::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::task::spawn_local;
use tokio::time::timeout;

use self::io::Http2Io;
use self::request::StreamService;
use self::streams::Streams;
use super::activity::Expiry;
use super::close::LINGER;
use super::registry::Registered;
use super::serve::Serve;
use super::stream::Stream;
use crate::context::ConnectionContext;
use crate::metrics::CloseCause;

/// First line of a connection that speaks HTTP/2 without having agreed on it (RFC 9113 section
/// 3.3). To HTTP/1.1 it is a request of an unknown version.
pub(super) const PREFACE_LINE: &[u8] = b"PRI * HTTP/2.0\r\n";
/// Most open streams of a connection: the least that RFC 9113 section 6.5.2 recommends.
const STREAMS_MAX: u32 = 100;
/// Bytes of bodies that a connection may send before its requests read them, in total and per
/// stream: the protocol's initial windows.
const WINDOW_BYTES: u32 = 65_535;
/// Bytes of answers of a stream that are held for the client's window, beside those of records.
const SEND_BUFFER_BYTES: usize = 64 * 1024;
/// Streams that the client reset before they were served; more end the connection (rapid reset).
const PENDING_RESETS_MAX: usize = 20;
/// Streams that were reset because the client broke the protocol; more end the connection.
const ERROR_RESETS_MAX: usize = 100;
/// Idle time after which the client must answer a ping, and the time for that.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Reason for which a connection is not driven further.
#[derive(Clone, Copy, Debug)]
enum Http2End {
    Finished,
    /// The socket failed, or the client broke the protocol.
    Broken,
    /// More control frames than allowed.
    Flood,
    Expired(Expiry),
}

/// Serves `stream`, of which `received` has been read, until it is closed.
pub(crate) async fn serve<T: Stream, S: Serve>(
    stream: T,
    received: Vec<u8>,
    connection: Rc<ConnectionContext>,
    service: Rc<S>,
    registered: Registered,
) {
    let worker = Rc::clone(registered.worker());
    let streams = Streams::new(Rc::clone(&worker), Rc::clone(registered.activity()));
    let io = Http2Io::new(stream, Bytes::from(received), Rc::clone(&streams));
    let stream_service = StreamService::new(service, connection, Rc::clone(&streams));
    let mut builder = Builder::new(LocalExecutor);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(u32::try_from(worker.limits().header_bytes).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
        .max_local_error_reset_streams(ERROR_RESETS_MAX)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    let mut driven = Box::pin(builder.serve_connection(TokioIo::new(io), stream_service));
    let mut is_ending = false;
    let end = poll_fn(|cx| {
        registered.activity().register(cx.waker());
        if (registered.ending() || streams.is_closing()) && !is_ending {
            is_ending = true;
            driven.as_mut().graceful_shutdown();
        }
        drive(driven.as_mut(), &streams, cx, &registered)
    })
    .await;
    let cause = match end {
        Http2End::Finished => CloseCause::Finished,
        Http2End::Broken => CloseCause::Broken,
        Http2End::Flood => CloseCause::Refused,
        Http2End::Expired(Expiry::Write) => CloseCause::WriteTimeout,
        Http2End::Expired(Expiry::SlowReader) => CloseCause::DrainRate,
        Http2End::Expired(Expiry::Head) => CloseCause::HeaderTimeout,
        Http2End::Expired(Expiry::Body) => CloseCause::BodyTimeout,
        Http2End::Expired(idle @ (Expiry::Idle | Expiry::Drained | Expiry::Reclaimed)) => {
            if !is_ending {
                driven.as_mut().graceful_shutdown();
            }
            // The client learns which requests were served. In both cases the socket closes now.
            let _ = timeout(LINGER, driven).await;
            match idle {
                Expiry::Drained => CloseCause::Drained,
                Expiry::Reclaimed => CloseCause::Reclaimed,
                _ => CloseCause::Idle,
            }
        }
    };
    registered.close(cause);
}

/// Requests first, deadlines second, as for HTTP/1.1.
fn drive(
    driven: Pin<&mut impl Future<Output = hyper::Result<()>>>,
    streams: &Streams,
    cx: &mut Context<'_>,
    registered: &Registered,
) -> Poll<Http2End> {
    match driven.poll(cx) {
        Poll::Ready(Ok(())) => return Poll::Ready(Http2End::Finished),
        Poll::Ready(Err(_)) if streams.is_flooded() => return Poll::Ready(Http2End::Flood),
        Poll::Ready(Err(_)) => return Poll::Ready(Http2End::Broken),
        Poll::Pending => {}
    }
    match registered.must_look().then(|| registered.overdue()).flatten() {
        Some(overdue) => Poll::Ready(Http2End::Expired(overdue)),
        None => Poll::Pending,
    }
}

/// Runs the streams of a connection as tasks of its worker.
#[derive(Clone, Copy, Debug)]
struct LocalExecutor;

impl<F: Future<Output = ()> + 'static> Executor<F> for LocalExecutor {
    fn execute(&self, stream: F) {
        spawn_local(async move {
            let _guard = TaskGuard::new();
            stream.await;
        });
    }
}
