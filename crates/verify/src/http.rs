//! A small HTTP/1.1 client: one connection, one request at a time, with the times of sending and
//! receipt.
//!
//! Reading order: [`Target`], [`Client`], then [`head`] (the head of a response) and [`chunked`]
//! (chunked bodies from balancers).

mod chunked;
mod head;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hotrow_measure::clock::Nanos;

use self::head::{Framing, Head};
use crate::history::Ns;

/// Longest response head, in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Longest response body, in bytes; a batch of a thousand rows is far smaller.
const BODY_BYTES_MAX: usize = 64 << 20;
/// Bytes read from a socket at once.
const PIECE_BYTES: usize = 32 << 10;

/// Target of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The URL as given.
    pub url: String,
    host: String,
    addresses: Vec<SocketAddr>,
    /// Path prefix before the collection; empty, or `/…` without a trailing slash.
    prefix: String,
}

impl Target {
    /// Parses `http://HOST[:PORT][/PREFIX]` and resolves the host.
    ///
    /// # Errors
    /// An invalid URL, or an unknown host.
    pub fn parse(url: &str) -> Result<Self, String> {
        let rest =
            url.strip_prefix("http://").ok_or("must begin with http:// (TLS is not supported)")?;
        if rest.contains(['?', '#', '@', ' ']) {
            return Err(
                "must be http://HOST:PORT with an optional path, without ?, # and @".to_owned()
            );
        }
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        // A colon within brackets belongs to the address.
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
        let with_port = if has_port { host.to_owned() } else { format!("{host}:80") };
        let addresses = with_port
            .to_socket_addrs()
            .map_err(|error| format!("{host}: {error}"))?
            .collect::<Vec<_>>();
        if addresses.is_empty() {
            return Err(format!("{host} has no address"));
        }
        let path = path.trim_end_matches('/');
        let prefix = if path.is_empty() { String::new() } else { format!("/{path}") };
        Ok(Self { url: url.to_owned(), host: host.to_owned(), addresses, prefix })
    }
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: &'static str,
    /// Path and query, after the target's prefix.
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Option<String>,
}

impl Request {
    pub(crate) fn get(path: String) -> Self {
        Self { method: "GET", path, headers: Vec::new(), body: None }
    }

    fn bytes(&self, target: &Target) -> Vec<u8> {
        let Self { method, path, headers, body } = self;
        let mut text =
            format!("{method} {}{path} HTTP/1.1\r\nHost: {}\r\n", target.prefix, target.host);
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        match body {
            Some(body) => {
                let length = body.len();
                text.push_str(&format!(
                    "Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
                ));
            }
            None if *method == "POST" => text.push_str("Content-Length: 0\r\n\r\n"),
            None => text.push_str("\r\n"),
        }
        text.into_bytes()
    }
}

/// A complete response.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    head: Head,
    pub(crate) body: Vec<u8>,
    /// Time just before the first byte of the request was sent.
    pub(crate) sent_ns: Ns,
    /// Time just after the last byte of the response was received.
    pub(crate) received_ns: Ns,
}

impl Response {
    /// Creates a response with this head, without its empty line, and this body.
    #[cfg(test)]
    pub(crate) fn of(head: &str, body: &str) -> Self {
        let head = Head::parse(format!("{head}\r\n\r\n").as_bytes()).expect("a head");
        Self { head, body: body.as_bytes().to_vec(), sent_ns: 1, received_ns: 2 }
    }

    pub(crate) fn status(&self) -> u16 {
        self.head.status
    }

    /// Returns the value of a header; the name is in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }
}

/// Reason there is no response. None of these makes a claim about a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RequestError {
    /// The connection was refused.
    Connect,
    /// The connection closed before the end of the response.
    Closed,
    /// No complete response in time.
    TimedOut,
    /// The response is not HTTP.
    Malformed,
}

pub(crate) const REQUEST_ERRORS: [RequestError; 4] =
    [RequestError::Connect, RequestError::Closed, RequestError::TimedOut, RequestError::Malformed];

impl RequestError {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Closed => "closed",
            Self::TimedOut => "timed_out",
            Self::Malformed => "malformed",
        }
    }
}

/// Client of one target.
#[derive(Debug)]
pub(crate) struct Client {
    target: Arc<Target>,
    timeout: Duration,
    connection: Option<TcpStream>,
    /// Bytes received beyond the last response: none from a correct server.
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) fn new(target: Arc<Target>, timeout: Duration) -> Self {
        Self { target, timeout, connection: None, buffer: Vec::new() }
    }

    /// Makes the next request use a new connection, because the other end may have closed an idle
    /// one.
    pub(crate) fn connect_anew(&mut self) {
        self.connection = None;
    }

    /// Sends a request and waits for its response. `on_send` receives the time just before sending.
    pub(crate) fn ask(
        &mut self,
        request: &Request,
        on_send: impl FnOnce(Ns),
    ) -> Result<Response, RequestError> {
        let asked = self.try_ask(request, on_send);
        let keep =
            asked.as_ref().is_ok_and(|response| response.head.keep) && self.buffer.is_empty();
        if !keep {
            self.connection = None;
            self.buffer.clear();
        }
        asked
    }

    fn try_ask(
        &mut self,
        request: &Request,
        on_send: impl FnOnce(Ns),
    ) -> Result<Response, RequestError> {
        let bytes = request.bytes(&self.target);
        if self.connection.is_none() {
            self.connection = Some(self.connect()?);
        }
        let stream = self.connection.as_mut().ok_or(RequestError::Connect)?;
        stream.set_write_timeout(Some(self.timeout)).map_err(|_| RequestError::Closed)?;
        let end = Instant::now() + self.timeout;
        let sent_ns = Nanos::now().0;
        on_send(sent_ns);
        stream.write_all(&bytes).map_err(|error| lost(&error))?;
        let mut incoming = Incoming { stream, buffer: &mut self.buffer, end };
        let head = incoming.head()?;
        let body = incoming.body(&head, request.method == "HEAD")?;
        Ok(Response { head, body, sent_ns, received_ns: Nanos::now().0 })
    }

    fn connect(&self) -> Result<TcpStream, RequestError> {
        let limit = self.timeout.min(CONNECT_TIME_MAX);
        let mut tries =
            self.target.addresses.iter().map(|address| TcpStream::connect_timeout(address, limit));
        let stream = tries.find_map(Result::ok).ok_or(RequestError::Connect)?;
        stream.set_nodelay(true).map_err(|_| RequestError::Connect)?;
        Ok(stream)
    }
}

/// Time limit of a connect to one address.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);

fn lost(error: &std::io::Error) -> RequestError {
    match error.kind() {
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => RequestError::TimedOut,
        _ => RequestError::Closed,
    }
}

/// Bytes being received.
struct Incoming<'a> {
    stream: &'a mut TcpStream,
    buffer: &'a mut Vec<u8>,
    end: Instant,
}

impl Incoming<'_> {
    /// Receives more bytes; returns false at the end of the stream.
    fn more(&mut self) -> Result<bool, RequestError> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(RequestError::TimedOut);
        }
        self.stream.set_read_timeout(Some(left)).map_err(|_| RequestError::Closed)?;
        let had = self.buffer.len();
        self.buffer.resize(had + PIECE_BYTES, 0);
        let read = self.stream.read(&mut self.buffer[had..]);
        self.buffer.truncate(had + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(read) => Ok(read > 0),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(lost(&error)),
        }
    }

    /// Receives the head of the final response.
    fn head(&mut self) -> Result<Head, RequestError> {
        loop {
            while let Some(end) = head::end(self.buffer) {
                let head = Head::parse(&self.buffer[..end]).ok_or(RequestError::Malformed)?;
                self.buffer.drain(..end);
                // Interim responses (1xx) are skipped.
                if head.status >= 200 {
                    return Ok(head);
                }
            }
            if self.buffer.len() > HEAD_BYTES_MAX {
                return Err(RequestError::Malformed);
            }
            if !self.more()? {
                return Err(RequestError::Closed);
            }
        }
    }

    fn body(&mut self, head: &Head, is_head: bool) -> Result<Vec<u8>, RequestError> {
        if is_head || matches!(head.status, 204 | 304) {
            return Ok(Vec::new());
        }
        match head.framing {
            Framing::Length(length) => {
                let length = usize::try_from(length)
                    .ok()
                    .filter(|n| *n <= BODY_BYTES_MAX)
                    .ok_or(RequestError::Malformed)?;
                while self.buffer.len() < length {
                    if !self.more()? {
                        return Err(RequestError::Closed);
                    }
                }
                Ok(self.buffer.drain(..length).collect())
            }
            Framing::Chunked => loop {
                match chunked::decode(self.buffer).ok_or(RequestError::Malformed)? {
                    chunked::Decoded::Complete { body, used } => {
                        self.buffer.drain(..used);
                        return Ok(body);
                    }
                    chunked::Decoded::Partial if self.buffer.len() > BODY_BYTES_MAX => {
                        return Err(RequestError::Malformed);
                    }
                    chunked::Decoded::Partial if self.more()? => {}
                    chunked::Decoded::Partial => return Err(RequestError::Closed),
                }
            },
            Framing::UntilClose => {
                while self.more()? {
                    if self.buffer.len() > BODY_BYTES_MAX {
                        return Err(RequestError::Malformed);
                    }
                }
                Ok(std::mem::take(self.buffer))
            }
        }
    }
}

#[cfg(test)]
mod tests;
