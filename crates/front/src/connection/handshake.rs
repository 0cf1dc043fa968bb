//! What precedes the first request of a connection: the header with which a proxy names its
//! client, and the TLS handshake.
//!
//! A handshake costs about as much as a hundred cached reads, most of it in the step that follows
//! the client's first message. A worker performs one such step at a time, and between two of them
//! every connection that is ready has its turn: a storm of handshakes delays requests by one step.
//! `rustls` bounds a handshake's messages to 64 KiB.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hotrow_answer::activity::Expiry;
use hotrow_answer::metrics::CloseCause;
use hotrow_answer::ready_tasks::yield_to_ready_tasks;
use hotrow_measure::clock::Nanos;
use hotrow_net::direct::Direct;
use hotrow_net::proxy_header::{FIXED_BYTES, FixedPart, ProxiedClient, ProxyHeaderError};
use rustls::ServerConfig;
use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use super::registry::Registered;

/// Least interval of logging that proxies' headers are refused.
const LOG_PERIOD: Duration = Duration::from_secs(10);

/// Reason for which a connection ends before its first request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeFailure {
    /// It took longer than `handshake_timeout`.
    #[error("the handshake was not complete in time")]
    TimedOut,
    /// Another limit, or the drain.
    #[error("the connection was closed first")]
    Expired(Expiry),
    /// The header of the proxy is refused.
    #[error(transparent)]
    Proxy(#[from] ProxyHeaderError),
    /// The TLS handshake failed.
    #[error("the TLS handshake failed: {0}")]
    Tls(io::Error),
    /// The socket failed, or the other side closed.
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
}

impl HandshakeFailure {
    pub(crate) fn cause(&self) -> CloseCause {
        match self {
            Self::TimedOut => CloseCause::HandshakeTimeout,
            Self::Expired(Expiry::Drained) => CloseCause::Drained,
            Self::Expired(Expiry::Reclaimed) => CloseCause::Reclaimed,
            Self::Expired(_) => CloseCause::Idle,
            Self::Proxy(_) | Self::Tls(_) => CloseCause::Handshake,
            Self::Broken(_) => CloseCause::Broken,
        }
    }
}

/// Waits for `step` within `limit`. The connection counts as idle: it ends with the drain, and may
/// be closed to make room.
///
/// # Errors
/// `step` failed, or a limit has expired.
pub(crate) async fn within<T>(
    limit: Duration,
    step: impl Future<Output = Result<T, HandshakeFailure>>,
    registered: &Registered,
) -> Result<T, HandshakeFailure> {
    let mut step = pin!(timeout(limit, step));
    poll_fn(|cx| {
        registered.activity().register(cx.waker());
        if let Poll::Ready(ended) = step.as_mut().poll(cx) {
            return Poll::Ready(ended.unwrap_or(Err(HandshakeFailure::TimedOut)));
        }
        match registered.must_look().then(|| registered.overdue()).flatten() {
            Some(overdue) => Poll::Ready(Err(HandshakeFailure::Expired(overdue))),
            None => Poll::Pending,
        }
    })
    .await
}

/// Reads the header of `proxy`, and not one byte more. Returns the client's address.
///
/// # Errors
/// The header is missing or malformed, or the connection broke.
pub(crate) async fn proxied_client(
    stream: &mut (impl AsyncRead + Unpin),
    proxy: IpAddr,
) -> Result<IpAddr, HandshakeFailure> {
    let mut fixed = [0; FIXED_BYTES];
    stream.read_exact(&mut fixed).await?;
    let fixed = FixedPart::parse(&fixed)?;
    let mut rest = vec![0; fixed.rest_bytes];
    stream.read_exact(&mut rest).await?;
    match fixed.client(&rest)? {
        ProxiedClient::Proxy => Ok(proxy),
        ProxiedClient::Address(client) => Ok(client),
    }
}

/// Performs the TLS handshake, in turn with those of other connections of the worker.
///
/// # Errors
/// The client's messages are refused, or the connection broke.
pub(crate) async fn secured(
    stream: Direct<TcpStream>,
    config: Arc<ServerConfig>,
    turns: &Semaphore,
) -> Result<TlsStream<Direct<TcpStream>>, HandshakeFailure> {
    let hello = LazyConfigAcceptor::new(Acceptor::default(), stream).await.map_err(of_tls)?;
    // It is never closed.
    let turn = turns.acquire().await.map_err(|closed| of_tls(io::Error::other(closed)))?;
    let mut rest = pin!(hello.into_stream(config));
    let first = poll_fn(|cx| Poll::Ready(rest.as_mut().poll(cx))).await;
    yield_to_ready_tasks().await;
    drop(turn);
    match first {
        Poll::Ready(done) => done.map_err(of_tls),
        Poll::Pending => rest.await.map_err(of_tls),
    }
}

/// What `rustls` refuses is invalid data; all other errors are of the socket.
fn of_tls(error: io::Error) -> HandshakeFailure {
    match error.kind() {
        io::ErrorKind::InvalidData => HandshakeFailure::Tls(error),
        _ => HandshakeFailure::Broken(error),
    }
}

/// Log of refused headers, which a wrongly configured proxy sends with every connection.
#[derive(Debug, Default)]
pub(crate) struct ProxyFailures {
    logged: Cell<Option<Nanos>>,
}

impl ProxyFailures {
    /// Logs a refused header, unless another was logged shortly before.
    pub(crate) fn note(&self, proxy: IpAddr, failure: &HandshakeFailure, now: Nanos) {
        let is_due = self.logged.get().is_none_or(|before| now.since(before) >= LOG_PERIOD);
        if let HandshakeFailure::Proxy(error) = failure
            && is_due
        {
            self.logged.set(Some(now));
            tracing::warn!(%proxy, %error, "a connection of a proxy is closed");
        }
    }
}
