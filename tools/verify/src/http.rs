//! A small HTTP client: one connection, one request at a time, with the times of sending and
//! receipt.
//!
//! Reading order: [`Target`], [`Client`], [`http1`] with [`head`] (the head of a response) and
//! [`chunked`] (chunked bodies from balancers), [`http2`], [`coding`] (compressed bodies).

mod chunked;
mod coding;
mod head;
mod http1;
mod http2;

use std::sync::Arc;
use std::time::Duration;

use hotrow_transport::explain;
use hotrow_transport::stream::BlockingStream;
use hotrow_transport::target::{Address, Url};
use hotrow_transport::tls::{HttpVersion, Tls};

use self::head::Head;
use self::http1::Http1Connection;
use self::http2::Http2Connection;
use crate::history::Ns;

/// Longest response head, in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Longest response body, in bytes; a batch of a thousand rows is far smaller.
const BODY_BYTES_MAX: usize = 64 << 20;
/// Time limit of a connect to one address, TLS included.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);

/// Target of requests.
#[derive(Clone, Debug)]
pub struct Target {
    /// The URL as given.
    pub url: String,
    host: String,
    addresses: Vec<Address>,
    /// Path prefix before the collection; empty, or `/…` without a trailing slash.
    prefix: String,
    tls: Option<Tls>,
    version: HttpVersion,
    headers: Vec<Header>,
}

/// A header of every request. Its value may be a secret, so `Debug` omits it.
#[derive(Clone, PartialEq, Eq)]
struct Header {
    name: String,
    value: String,
}

impl std::fmt::Debug for Header {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: …", self.name)
    }
}

impl Target {
    /// Resolves the host of `http://HOST[:PORT][/PREFIX]`, `https://…` or `unix:SOCKET[:/PREFIX]`;
    /// `tls` is for `https://`.
    ///
    /// # Errors
    /// A query in the URL, or an unknown host.
    pub fn new(text: &str, url: &Url, tls: Option<Tls>) -> Result<Self, String> {
        if text.contains(['?', '#']) {
            return Err("must have at most a path after the host, without ? and #".to_owned());
        }
        let addresses = url.addresses().map_err(|error| error.to_string())?;
        Ok(Self {
            url: text.to_owned(),
            host: url.host_header(),
            addresses,
            prefix: url.path.trim_end_matches('/').to_owned(),
            tls,
            version: HttpVersion::Http1,
            headers: Vec::new(),
        })
    }

    /// Adds headers to every request; [`crate::http::Target`] checks nothing about them.
    ///
    /// # Errors
    /// A name or value that no request can carry; the text has only the name.
    pub fn with_headers(mut self, headers: &[(String, String)]) -> Result<Self, String> {
        for (name, value) in headers {
            let fits = |byte: u8| byte == b'\t' || (b' '..0x7f).contains(&byte);
            let token =
                |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            if name.is_empty() || !name.bytes().all(token) || !value.bytes().all(fits) {
                return Err(format!("the header {name:?} is not valid"));
            }
            self.headers.push(Header { name: name.clone(), value: value.clone() });
        }
        Ok(self)
    }

    /// Creates the target of an address without TLS.
    #[must_use]
    pub fn at(address: std::net::SocketAddr) -> Self {
        Self {
            url: format!("http://{address}"),
            host: address.to_string(),
            addresses: vec![Address::Tcp(address)],
            prefix: String::new(),
            tls: None,
            version: HttpVersion::Http1,
            headers: Vec::new(),
        }
    }

    pub(crate) fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    pub(crate) fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    pub(crate) fn is_http1(&self) -> bool {
        self.version == HttpVersion::Http1
    }

    /// Returns the bytes of a request for a stream of events.
    pub(crate) fn follow_request(&self, path: &str, last_id: Option<&str>) -> Vec<u8> {
        let last_id = last_id.map(|id| ("Last-Event-ID", id.to_owned()));
        let headers = last_id.into_iter().collect();
        let request = Request { headers, ..Request::get(path.to_owned()) };
        http1::bytes(&request, self, "1.0")
    }

    /// Uses this version of HTTP; `tls` must offer it.
    #[must_use]
    pub fn with_version(mut self, version: HttpVersion) -> Self {
        self.version = version;
        self
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
pub enum RequestError {
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
    connection: Option<Connection>,
    /// Explanation of the last failure to connect.
    failure: Option<String>,
}

#[derive(Debug)]
enum Connection {
    Http1(Http1Connection),
    Http2(Box<Http2Connection>),
}

/// A failed request, and what the connection reported.
type Failure = (RequestError, Option<std::io::Error>);

impl Client {
    pub(crate) fn new(target: Arc<Target>, timeout: Duration) -> Self {
        Self { target, timeout, connection: None, failure: None }
    }

    /// Makes the next request use a new connection, because the other end may have closed an idle
    /// one.
    pub(crate) fn connect_anew(&mut self) {
        self.connection = None;
    }

    /// Returns why the last attempt to connect failed, in words; `None` after a success.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Sends a request and waits for its response. `on_send` receives the time just before sending.
    pub(crate) fn ask(
        &mut self,
        request: &Request,
        on_send: impl FnOnce(Ns),
    ) -> Result<Response, RequestError> {
        let asked = self
            .try_ask(request, on_send)
            .and_then(|response| coding::decoded(response).ok_or((RequestError::Malformed, None)));
        let reusable = match (&asked, &self.connection) {
            (Ok(response), Some(Connection::Http1(http1))) => {
                response.head.keep && http1.is_clean()
            }
            (Ok(_), Some(Connection::Http2(_))) => true,
            (Err(_), _) | (_, None) => false,
        };
        if !reusable {
            self.connection = None;
        }
        asked.map_err(|(lost, error)| {
            if let (Some(error), Some(address)) = (error, self.target.addresses.first()) {
                self.failure = Some(explain::socket(&error, address));
            }
            lost
        })
    }

    fn try_ask(
        &mut self,
        request: &Request,
        on_send: impl FnOnce(Ns),
    ) -> Result<Response, Failure> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => {
                self.failure = None;
                let opened = open(&self.target, self.timeout.min(CONNECT_TIME_MAX));
                none.insert(opened.map_err(|error| (RequestError::Connect, Some(error)))?)
            }
        };
        match connection {
            Connection::Http1(http1) => http1.ask(&self.target, request, self.timeout, on_send),
            Connection::Http2(http2) => http2.ask(&self.target, request, self.timeout, on_send),
        }
    }
}

/// Connects to the first address that accepts; returns the last failure.
fn open(target: &Target, limit: Duration) -> Result<Connection, std::io::Error> {
    let mut failure = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
    for address in &target.addresses {
        let opened = match target.version {
            HttpVersion::Http1 => open_http1(address, target.tls.as_ref(), limit),
            HttpVersion::Http2 => Http2Connection::open(address, target.tls.as_ref(), limit)
                .map(|http2| Connection::Http2(Box::new(http2))),
        };
        match opened {
            Ok(connection) => return Ok(connection),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn open_http1(
    address: &Address,
    tls: Option<&Tls>,
    limit: Duration,
) -> Result<Connection, std::io::Error> {
    let mut stream = BlockingStream::connect(address, tls, limit)?;
    stream.handshake(limit)?;
    Ok(Connection::Http1(Http1Connection::new(stream)))
}

fn lost(error: std::io::Error) -> Failure {
    let kind = match error.kind() {
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => RequestError::TimedOut,
        _ => RequestError::Closed,
    };
    // TLS 1.3 reports a rejected client only after the handshake.
    let is_tls = error.get_ref().is_some_and(|inner| inner.is::<hotrow_transport::tls::Error>());
    (kind, is_tls.then_some(error))
}

#[cfg(test)]
mod tests;
