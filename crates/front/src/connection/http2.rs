//! A connection that speaks HTTP/2. The crate `http2` has the protocol; this module adds the
//! socket, the service, the time-outs, the drain and the limits of HTTP/1.1.
//!
//! Reading order: [`exchange`] (one turn: what arrives, and what it becomes), [`requests`] (from
//! the frames of a request to its service), [`answers`] (from the service to frames), [`work`]
//! (a stream that is not answered at once), [`output`], [`readiness`].
//!
//! A request becomes a head of HTTP/1.1, so that both versions have one parser, one set of limits
//! and one set of refusals. A hit is answered as soon as its head has arrived, and answers that
//! arrived together leave with one write: no task, no allocation.

mod answers;
mod exchange;
mod output;
mod readiness;
mod requests;
mod work;

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use hotrow_answer::activity::Expiry;
use hotrow_answer::context::ConnectionContext;
use hotrow_answer::metrics::CloseCause;
use hotrow_http2::error::ErrorCode;
use hotrow_net::stream::Stream;
use tokio::time::timeout;

use self::exchange::Exchange;
use super::close::{LINGER, close, linger};
use super::end::Http2End;
use super::registry::Registered;
use super::serve::Serve;

/// First line of a connection that speaks HTTP/2 without having agreed on it (RFC 9113 section
/// 3.3). To HTTP/1.1 it is a request of an unknown version.
pub(super) const PREFACE_LINE: &[u8] = b"PRI * HTTP/2.0\r\n";

/// Serves `stream`, of which `received` has been read, until it is closed.
pub(crate) async fn serve<T: Stream, S: Serve>(
    stream: T,
    received: Vec<u8>,
    connection: Rc<ConnectionContext>,
    service: Rc<S>,
    registered: Registered,
) {
    let mut exchange = Exchange::new(stream, received, service, connection, &registered);
    let end = poll_fn(|cx| drive(&mut exchange, cx, &registered)).await;
    let cause = match end {
        Http2End::Finished => CloseCause::Finished,
        Http2End::Broken | Http2End::Refused => CloseCause::Broken,
        Http2End::Flood => CloseCause::Refused,
        Http2End::Expired(Expiry::Write) => CloseCause::WriteTimeout,
        Http2End::Expired(Expiry::SlowReader) => CloseCause::DrainRate,
        Http2End::Expired(Expiry::SendBytes) => CloseCause::SendBytes,
        Http2End::Expired(Expiry::Head) => CloseCause::HeaderTimeout,
        Http2End::Expired(Expiry::Body) => CloseCause::BodyTimeout,
        Http2End::Expired(Expiry::Idle) => CloseCause::Idle,
        Http2End::Expired(Expiry::Drained) => CloseCause::Drained,
        Http2End::Expired(Expiry::Reclaimed) => CloseCause::Reclaimed,
    };
    // Of its own memory: a connection that waits must not have room for its end.
    Box::pin(finish(exchange, end, &registered)).await;
    registered.close(cause);
}

/// Sends what remains to be sent, and closes.
async fn finish<T: Stream, S: Serve>(
    mut exchange: Exchange<T, S>,
    end: Http2End,
    registered: &Registered,
) {
    if let Http2End::Expired(Expiry::Idle | Expiry::Drained | Expiry::Reclaimed) = end {
        // The client learns which requests were served. In both cases the socket closes now.
        exchange.leave();
        let _ = timeout(LINGER, poll_fn(|cx| exchange.poll(cx, registered))).await;
    }
    if let Http2End::Expired(Expiry::Head) = end {
        exchange.end(ErrorCode::NoError);
        let _ = timeout(LINGER, poll_fn(|cx| exchange.poll_flush(cx))).await;
    }
    // Drops the requests that are still open, and the bytes that were not sent.
    let stream = exchange.into_stream();
    registered.activity().all_sent();
    match end {
        Http2End::Expired(Expiry::Write | Expiry::SlowReader | Expiry::SendBytes) => {
            stream.reset();
        }
        Http2End::Refused | Http2End::Flood | Http2End::Broken => linger(stream).await,
        Http2End::Finished | Http2End::Expired(_) => close(stream).await,
    }
}

/// Requests first, deadlines second, as for HTTP/1.1.
fn drive<T: Stream, S: Serve>(
    exchange: &mut Exchange<T, S>,
    cx: &mut Context<'_>,
    registered: &Registered,
) -> Poll<Http2End> {
    registered.activity().register(cx.waker());
    if let Poll::Ready(end) = exchange.poll(cx, registered) {
        return Poll::Ready(end);
    }
    match registered.must_look().then(|| registered.overdue()).flatten() {
        Some(overdue) => Poll::Ready(Http2End::Expired(overdue)),
        None => Poll::Pending,
    }
}
