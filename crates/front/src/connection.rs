//! One connection from accept to close: [`exchange`] serves it, the worker's sweep enforces
//! time-outs.
//!
//! Reading order: [`serve`] (what a service is), [`exchange`] (requests and answers in order),
//! [`http2`] (the same for HTTP/2), [`redis`] (the same for the Redis protocol),
//! [`handshake`] (what precedes all of them),
//! [`incoming_body`], [`output`], [`registry`] (all connections of a worker), [`close`].

mod close;
pub mod commands;
mod end;
mod exchange;
pub(crate) mod handshake;
pub(crate) mod http2;
mod incoming_body;
mod output;
pub(crate) mod redis;
mod registry;
pub mod serve;
pub mod worker_context;

pub(crate) use self::close::turn_away;
pub(crate) use self::registry::{LEAVING_MAX, Registered, Registry};

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use hotrow_access::caller::Peer;
use hotrow_net::stream::Stream;
use hotrow_telemetry::request::Protocol;

use self::close::{answer_and_close, close, linger};
use self::end::{ConnectionEnd, LastMessage, Leftover};
use self::exchange::Exchange;
use self::serve::Serve;
use self::worker_context::WorkerContext;
use hotrow_answer::activity::Expiry;
use hotrow_answer::context::ConnectionContext;
use hotrow_answer::metrics::CloseCause;
use hotrow_answer::rejection::Rejection;

/// Protocol of a listener's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaks {
    /// HTTP, in each of its served versions.
    Http,
    /// The Redis protocol.
    Redis,
}

/// Client of a connection.
pub(crate) struct Client {
    pub(crate) peer: Peer,
    /// Subject of its verified certificate.
    pub(crate) certificate_subject: Option<Box<str>>,
}

impl From<Peer> for Client {
    fn from(peer: Peer) -> Self {
        Self { peer, certificate_subject: None }
    }
}

impl Client {
    fn into_context(self, registered: &Registered) -> Rc<ConnectionContext> {
        let activity = Rc::clone(registered.activity());
        ConnectionContext::certified(self.peer, self.certificate_subject, activity)
    }
}

/// Serves `stream` of `client`, who has chosen HTTP/2, until it is closed.
pub(crate) async fn serve_http2<T: Stream, S: Serve>(
    stream: T,
    client: Client,
    service: Rc<S>,
    registered: Registered,
) {
    let connection = client.into_context(&registered);
    http2::serve(stream, Vec::new(), connection, service, registered).await;
}

/// Serves `stream` of `client` until it is closed.
pub(crate) async fn serve<T: Stream, S: Serve>(
    stream: T,
    client: Client,
    service: Rc<S>,
    registered: Registered,
) {
    let connection = client.into_context(&registered);
    let mut exchange =
        Exchange::new(stream, Rc::clone(&service), Rc::clone(&connection), &registered);
    let end = poll_fn(|cx| drive(&mut exchange, cx, &registered)).await;
    // Drops a service that still answers, and the bytes that were not sent.
    let (stream, leftover, message) = exchange.into_parts();
    registered.activity().all_sent();
    if let Leftover::Http2(received) = leftover {
        let served = http2::serve(stream, received, connection, service, registered);
        return Box::pin(served).await;
    }
    // Of its own memory: a connection that waits must not have room for its end.
    let rejected = |rejection| service.rejected(rejection, &connection, Protocol::Http11);
    let worker = registered.worker();
    let cause = Box::pin(finish(stream, end, leftover, message, worker, &rejected)).await;
    registered.close(cause);
}

/// Requests first, deadlines second: a request that has arrived by now counts as arrived.
fn drive<T: Stream, S: Serve>(
    exchange: &mut Exchange<T, S>,
    cx: &mut Context<'_>,
    registered: &Registered,
) -> Poll<ConnectionEnd> {
    registered.activity().register(cx.waker());
    if let Poll::Ready(end) = exchange.poll(cx, registered) {
        return Poll::Ready(end);
    }
    match registered.must_look().then(|| registered.overdue()).flatten() {
        Some(overdue) => Poll::Ready(ConnectionEnd::Expired(overdue)),
        None => Poll::Pending,
    }
}

/// Sends the last answer if one is due, closes, and returns the cause.
async fn finish<T: Stream>(
    stream: T,
    end: ConnectionEnd,
    leftover: Leftover,
    message: LastMessage,
    worker: &WorkerContext,
    rejected: &impl Fn(Rejection),
) -> CloseCause {
    let last_answer = |stream: T, rejection| async move {
        if message.all_sent {
            rejected(rejection);
            answer_and_close(stream, worker, rejection, message.to_head).await;
        } else {
            // Behind a part of an earlier answer it would be read as its body.
            stream.reset();
        }
    };
    match (end, leftover) {
        (ConnectionEnd::Expired(Expiry::Write), _) => {
            stream.reset();
            CloseCause::WriteTimeout
        }
        (ConnectionEnd::Expired(Expiry::SlowReader), _) => {
            stream.reset();
            CloseCause::DrainRate
        }
        (ConnectionEnd::Expired(Expiry::SendBytes), _) => {
            stream.reset();
            CloseCause::SendBytes
        }
        (ConnectionEnd::Expired(Expiry::Head), _) => {
            last_answer(stream, Rejection::HeadTime).await;
            CloseCause::HeaderTimeout
        }
        (ConnectionEnd::Expired(Expiry::Body), _) => {
            last_answer(stream, Rejection::BodyTime).await;
            CloseCause::BodyTimeout
        }
        (ConnectionEnd::Expired(Expiry::Idle), _) => {
            close(stream).await;
            CloseCause::Idle
        }
        (ConnectionEnd::Expired(Expiry::Drained), _) => {
            close(stream).await;
            CloseCause::Drained
        }
        (ConnectionEnd::Expired(Expiry::Reclaimed), _) => {
            close(stream).await;
            CloseCause::Reclaimed
        }
        (ConnectionEnd::Finished, Leftover::Refused(rejection)) => {
            last_answer(stream, rejection).await;
            CloseCause::Refused
        }
        (ConnectionEnd::Finished, Leftover::None) => {
            close(stream).await;
            CloseCause::Finished
        }
        (ConnectionEnd::Finished, Leftover::Unread | Leftover::Http2(_)) => {
            linger(stream).await;
            CloseCause::Finished
        }
        (ConnectionEnd::Broken, _) => {
            linger(stream).await;
            CloseCause::Broken
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    mod turns;

    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::io::AsyncWrite;

    /// Takes so many bytes in every second call.
    pub(crate) struct SlowClient {
        bytes_max: usize,
        takes: bool,
        pub(crate) taken_bytes: usize,
    }

    impl SlowClient {
        pub(crate) fn taking(bytes_max: usize) -> Self {
            Self { bytes_max, takes: false, taken_bytes: 0 }
        }
    }

    impl AsyncWrite for SlowClient {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.takes = !self.takes;
            if !self.takes {
                return Poll::Pending;
            }
            let taken = bytes.len().min(self.bytes_max);
            self.taken_bytes += taken;
            Poll::Ready(Ok(taken))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }
}
