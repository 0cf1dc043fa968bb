//! One connection, of HTTP/1.1 or HTTP/2, with one request at a time. `hyper` is asynchronous: a
//! small runtime of the connection drives it while a request waits, and reads nothing in between.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hotrow_measure::clock::Nanos;
use hotrow_transport::explain::NO_HTTP2;
use hotrow_transport::target::Address;
use hotrow_transport::tls::{self, HttpVersion, Tls};
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio_rustls::TlsConnector;

use super::message::{BODY_BYTES_MAX, Request, RequestError, Response};
use super::target::{Header, Target};
use crate::history::Ns;

/// Longest response head, in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// HTTP/2: receive window of a connection and of a stream, in bytes, so that a large batch needs no
/// round trip.
const WINDOW_BYTES: u32 = 4 << 20;

/// A failed request, and what the connection reported.
pub(crate) type Failure = (RequestError, Option<io::Error>);

const MALFORMED: Failure = (RequestError::Malformed, None);

/// One connection, and the runtime that drives it.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: Sender,
    scheme: &'static str,
    runtime: Runtime,
}

#[derive(Debug)]
enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

trait Carrier: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Carrier for T {}

impl Connection {
    /// Connects to the first address that accepts, TLS included.
    ///
    /// # Errors
    /// The last failure.
    pub(crate) fn open(target: &Target, limit: Duration) -> Result<Self, io::Error> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let scheme = if target.tls.is_some() { "https" } else { "http" };
        let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in &target.addresses {
            let opening = async { tokio::time::timeout(limit, connect(target, address)).await };
            let opened = runtime.block_on(opening);
            match opened.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                Ok(sender) => return Ok(Self { sender, scheme, runtime }),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Sends a request and waits for its response. `on_send` receives the time just before sending.
    pub(super) fn ask(
        &mut self,
        target: &Target,
        request: &Request,
        timeout: Duration,
        on_send: impl FnOnce(Ns),
    ) -> Result<Response, Failure> {
        let request = message(target, request, self.authority_of(target)).ok_or(MALFORMED)?;
        let Self { sender, runtime, .. } = self;
        let exchange = async {
            let sent_ns = Nanos::now().0;
            on_send(sent_ns);
            let response = sender.send(request).await.map_err(|error| failure(&error))?;
            let (head, body) = response.into_parts();
            let is_text = head.headers.values().all(|value| value.to_str().is_ok());
            // Of two lengths a proxy may follow the other one (RFC 9112, section 6.3).
            let has_two_lengths = head.headers.contains_key(CONTENT_LENGTH)
                && head.headers.contains_key(TRANSFER_ENCODING);
            if !is_text || has_two_lengths {
                return Err(MALFORMED);
            }
            let body = Limited::new(body, BODY_BYTES_MAX).collect().await;
            let body = body.map_err(|error| failure(&*error))?.to_bytes().to_vec();
            Ok(Response { head, body, sent_ns, received_ns: Nanos::now().0 })
        };
        let bounded = async { tokio::time::timeout(timeout, exchange).await };
        runtime.block_on(bounded).unwrap_or(Err((RequestError::TimedOut, None)))
    }

    /// Sends a request and waits for the head of its response.
    pub(crate) fn begin(
        &mut self,
        target: &Target,
        request: &Request,
        timeout: Duration,
    ) -> Result<http::Response<Incoming>, Failure> {
        let request = message(target, request, self.authority_of(target)).ok_or(MALFORMED)?;
        let Self { sender, runtime, .. } = self;
        let exchange = async { sender.send(request).await.map_err(|error| failure(&error)) };
        let bounded = async { tokio::time::timeout(timeout, exchange).await };
        runtime.block_on(bounded).unwrap_or(Err((RequestError::TimedOut, None)))
    }

    /// Returns the next bytes of a body; empty at its end, and `None` if there are none in time.
    pub(crate) fn more(
        &self,
        body: &mut Incoming,
        wait: Duration,
    ) -> Result<Option<Bytes>, RequestError> {
        let receiving = async { tokio::time::timeout(wait, body.frame()).await };
        match self.runtime.block_on(receiving) {
            Err(_) => Ok(None),
            Ok(None) => Ok(Some(Bytes::new())),
            Ok(Some(Ok(frame))) => Ok(frame.into_data().ok()),
            Ok(Some(Err(error))) => Err(failure(&error).0),
        }
    }

    /// Returns whether the connection takes another request: the server has not ended it, and sent
    /// nothing beyond the last response.
    pub(super) fn is_ready(&mut self, timeout: Duration) -> bool {
        let Self { sender, runtime, .. } = self;
        let bounded = async { tokio::time::timeout(timeout, sender.ready()).await };
        matches!(runtime.block_on(bounded), Ok(Ok(())))
    }

    /// Returns the beginning of an HTTP/2 request's URI; HTTP/1.1 sends the path alone.
    fn authority_of(&self, target: &Target) -> Option<String> {
        let is_http2 = matches!(self.sender, Sender::Http2(_));
        is_http2.then(|| format!("{}://{}", self.scheme, target.host))
    }
}

impl Sender {
    async fn ready(&mut self) -> hyper::Result<()> {
        match self {
            Self::Http1(sender) => sender.ready().await,
            Self::Http2(sender) => sender.ready().await,
        }
    }

    async fn send(
        &mut self,
        request: http::Request<Full<Bytes>>,
    ) -> hyper::Result<http::Response<Incoming>> {
        match self {
            Self::Http1(sender) => sender.send_request(request).await,
            Self::Http2(sender) => sender.send_request(request).await,
        }
    }
}

async fn connect(target: &Target, address: &Address) -> Result<Sender, io::Error> {
    let plain: Box<dyn Carrier> = match address {
        Address::Tcp(to) => {
            let stream = TcpStream::connect(to).await?;
            stream.set_nodelay(true)?;
            Box::new(stream)
        }
        Address::Unix(path) => Box::new(UnixStream::connect(path).await?),
    };
    let carrier = match &target.tls {
        None => plain,
        Some(tls) => secure(tls, plain, target.version).await?,
    };
    let carrier = TokioIo::new(carrier);
    // The tasks end with their connection, at the latest when the runtime is dropped. Their errors
    // are reported by the requests that they fail.
    Ok(match target.version {
        HttpVersion::Http1 => {
            let mut builder = http1::Builder::new();
            let handshake = builder.max_buf_size(HEAD_BYTES_MAX).handshake(carrier).await;
            let (sender, connection) = handshake.map_err(io::Error::other)?;
            drop(tokio::spawn(connection));
            Sender::Http1(sender)
        }
        HttpVersion::Http2 => {
            let handshake = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .initial_stream_window_size(WINDOW_BYTES)
                .initial_connection_window_size(WINDOW_BYTES)
                .max_header_list_size(HEAD_BYTES_MAX as u32)
                .handshake(carrier)
                .await;
            let (sender, connection) = handshake.map_err(io::Error::other)?;
            drop(tokio::spawn(connection));
            Sender::Http2(sender)
        }
    })
}

async fn secure(
    tls: &Tls,
    plain: Box<dyn Carrier>,
    version: HttpVersion,
) -> Result<Box<dyn Carrier>, io::Error> {
    let (config, name) = tls.parts();
    let stream = TlsConnector::from(Arc::clone(&config)).connect(name, plain).await?;
    let chosen = stream.get_ref().1.alpn_protocol();
    if version == HttpVersion::Http2 && chosen != Some(HttpVersion::Http2.alpn()) {
        return Err(io::Error::other(NO_HTTP2));
    }
    Ok(Box::new(stream))
}

/// Returns a request as `hyper` takes it; `None` if it is invalid, which no request of the checker
/// is.
pub(super) fn message(
    target: &Target,
    request: &Request,
    authority: Option<String>,
) -> Option<http::Request<Full<Bytes>>> {
    let mut message = http::Request::builder().method(request.method);
    if authority.is_none() {
        message = message.header("host", &target.host);
    }
    let authority = authority.unwrap_or_default();
    message = message.uri(format!("{authority}{}{}", target.prefix, request.path));
    for Header { name, value } in &target.headers {
        message = message.header(name, value);
    }
    for (name, value) in &request.headers {
        message = message.header(*name, value);
    }
    if request.body.is_some() {
        message = message.header("content-type", "application/json");
    }
    message.body(Full::from(request.body.clone().unwrap_or_default())).ok()
}

/// Returns what an error of `hyper` or of a body means.
fn failure(error: &(dyn std::error::Error + 'static)) -> Failure {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return socket_failure(error);
        }
        if error.is::<LengthLimitError>()
            || error.downcast_ref().is_some_and(hyper::Error::is_parse)
        {
            return MALFORMED;
        }
        cause = error.source();
    }
    // A connection that ends, and a reset stream, are no response.
    (RequestError::Closed, None)
}

fn socket_failure(error: &io::Error) -> Failure {
    // TLS 1.3 reports a rejected client only after the handshake.
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<tls::Error>());
    if let Some(error) = tls {
        return (RequestError::Closed, Some(io::Error::other(error.clone())));
    }
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => (RequestError::TimedOut, None),
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => MALFORMED,
        _ => (RequestError::Closed, None),
    }
}
