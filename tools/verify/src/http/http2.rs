//! HTTP/2: one stream at a time on one connection. The protocol's state machine is asynchronous; a
//! small runtime of this connection drives it while a request waits.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::client::{ResponseFuture, SendRequest};
use hotrow_measure::clock::Nanos;
use hotrow_transport::explain::NO_HTTP2;
use hotrow_transport::target::Address;
use hotrow_transport::tls::{HttpVersion, Tls};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio_rustls::TlsConnector;

use super::head::Head;
use super::{
    BODY_BYTES_MAX, Failure, HEAD_BYTES_MAX, Header, Request, RequestError, Response, Target, lost,
};
use crate::history::Ns;

/// Receive window of a connection and of a stream, in bytes: a large batch needs no round trip.
const WINDOW_BYTES: u32 = 4 << 20;

/// One connection, and the runtime that drives it.
#[derive(Debug)]
pub(super) struct Http2Connection {
    send: SendRequest<Bytes>,
    secure: bool,
    runtime: Runtime,
}

trait Carrier: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Carrier for T {}

impl Http2Connection {
    pub(super) fn open(
        address: &Address,
        tls: Option<&Tls>,
        limit: Duration,
    ) -> Result<Self, io::Error> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let secure = tls.is_some();
        let opening = async { tokio::time::timeout(limit, connect(address, tls)).await };
        let send = runtime.block_on(opening).map_err(|_| io::ErrorKind::TimedOut)??;
        Ok(Self { send, secure, runtime })
    }

    pub(super) fn ask(
        &mut self,
        target: &Target,
        request: &Request,
        timeout: Duration,
        on_send: impl FnOnce(Ns),
    ) -> Result<Response, Failure> {
        let head = head(target, request, self.secure).ok_or((RequestError::Malformed, None))?;
        let body = request.body.clone().map(Bytes::from);
        let Self { send, runtime, .. } = self;
        let exchange = async {
            let mut ready = send.clone().ready().await.map_err(broken)?;
            let sent_ns = Nanos::now().0;
            on_send(sent_ns);
            let (response, mut stream) =
                ready.send_request(head, body.is_none()).map_err(broken)?;
            if let Some(body) = body {
                stream.send_data(body, true).map_err(broken)?;
            }
            let (head, body) = receive(response).await?;
            Ok(Response { head, body, sent_ns, received_ns: Nanos::now().0 })
        };
        let bounded = async { tokio::time::timeout(timeout, exchange).await };
        runtime.block_on(bounded).unwrap_or(Err((RequestError::TimedOut, None)))
    }
}

async fn connect(address: &Address, tls: Option<&Tls>) -> Result<SendRequest<Bytes>, io::Error> {
    let plain: Box<dyn Carrier> = match address {
        Address::Tcp(to) => {
            let stream = TcpStream::connect(to).await?;
            stream.set_nodelay(true)?;
            Box::new(stream)
        }
        Address::Unix(path) => Box::new(UnixStream::connect(path).await?),
    };
    let carrier: Box<dyn Carrier> = match tls {
        None => plain,
        Some(tls) => {
            let (config, name) = tls.parts();
            let stream = TlsConnector::from(Arc::clone(&config)).connect(name, plain).await?;
            if stream.get_ref().1.alpn_protocol() != Some(HttpVersion::Http2.alpn()) {
                return Err(io::Error::other(NO_HTTP2));
            }
            Box::new(stream)
        }
    };
    let handshake = h2::client::Builder::new()
        .enable_push(false)
        .initial_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_header_list_size(HEAD_BYTES_MAX as u32)
        .handshake(carrier)
        .await;
    let (send, connection) = handshake.map_err(io::Error::other)?;
    // The task ends with the connection, at the latest when the runtime is dropped. Its error is
    // reported by the request that it fails.
    drop(tokio::spawn(connection));
    Ok(send)
}

/// Returns the request's head; `None` if it is invalid, which no request of the checker is.
fn head(target: &Target, request: &Request, secure: bool) -> Option<http::Request<()>> {
    let scheme = if secure { "https" } else { "http" };
    let uri = format!("{scheme}://{}{}{}", target.host, target.prefix, request.path);
    let mut head = http::Request::builder().method(request.method).uri(uri);
    for Header { name, value } in &target.headers {
        head = head.header(name.as_str(), value.as_str());
    }
    for (name, value) in &request.headers {
        head = head.header(*name, value.as_str());
    }
    if request.body.is_some() {
        head = head.header("content-type", "application/json");
    }
    head.body(()).ok()
}

async fn receive(response: ResponseFuture) -> Result<(Head, Vec<u8>), Failure> {
    let (parts, mut stream) = response.await.map_err(broken)?.into_parts();
    let mut headers = Vec::new();
    for (name, value) in &parts.headers {
        let value = value.to_str().map_err(|_| (RequestError::Malformed, None))?;
        headers.push((name.as_str().to_owned(), value.to_owned()));
    }
    let mut body = BytesMut::new();
    while let Some(piece) = stream.data().await {
        let piece = piece.map_err(broken)?;
        if body.len() + piece.len() > BODY_BYTES_MAX {
            return Err((RequestError::Malformed, None));
        }
        // The connection may have ended in between, which the next piece reports.
        let _ = stream.flow_control().release_capacity(piece.len());
        body.extend_from_slice(&piece);
    }
    Ok((Head::of(parts.status.as_u16(), headers), body.to_vec()))
}

fn broken(error: h2::Error) -> Failure {
    if error.is_io() {
        return error.into_io().map_or((RequestError::Closed, None), lost);
    }
    // A reset stream, or a connection that the server ends, is no response; an error found here is
    // a malformed one.
    let remote = error.is_remote() || error.is_go_away() && !error.is_library();
    (if remote { RequestError::Closed } else { RequestError::Malformed }, None)
}
