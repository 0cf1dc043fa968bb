//! A single request with its whole response: for readiness checks, response checks and counters.
//! It uses the requests and the parser of a run, on a connection of its own. It is not fast, and
//! everything is bounded.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use hotrow_transport::explain;
use hotrow_transport::stream::BlockingStream;
use hotrow_transport::target::Address;
use hotrow_transport::tls::Tls;

use crate::request::RequestMix;
use crate::response::{HEAD_BYTES_MAX, INTERIM_MAX, Malformed, Parser, StreamEnd, head};

/// Bytes per read.
const READ_BYTES: usize = 64 * 1024;
/// The most that heads and chunk framing may add to a body, as a share of the body and in bytes.
const FRAMING_SHARE: usize = 8;
const FRAMING_BYTES_MAX: usize = HEAD_BYTES_MAX * (INTERIM_MAX as usize + 1);

/// A complete response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedResponse {
    /// The status code, 200 to 999.
    pub status: u16,
    /// Header fields in order; bytes that are not ASCII are replaced.
    pub headers: Vec<(String, String)>,
    /// The body, without chunk framing.
    pub body: Vec<u8>,
}

/// Reasons for a missing response.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The connection broke.
    #[error("{0}")]
    Socket(#[from] io::Error),
    /// The connection could not be opened, or TLS was refused.
    #[error("{0}")]
    NoConnection(String),
    /// The time-out expired.
    #[error("no whole answer within {0:?}")]
    Late(Duration),
    /// The server closed the connection before the response was complete.
    #[error("the connection was closed before the answer was complete")]
    Closed,
    /// The response is not valid HTTP/1.1.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The body is larger than allowed.
    #[error("the answer's body is larger than {0} bytes")]
    TooLarge(usize),
}

impl FetchedResponse {
    /// Returns the value of the first field with this name, in any case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// Returns the body as text; invalid UTF-8 is replaced.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Sends the first request of `requests` for this `seed` and waits for the whole response.
/// `timeout` bounds the whole exchange.
/// # Errors
/// Fails without a whole response in that time, or with a body larger than `body_bytes_max`.
pub fn fetch(
    address: &Address,
    tls: Option<&Tls>,
    requests: &RequestMix,
    seed: u64,
    timeout: Duration,
    body_bytes_max: usize,
) -> Result<FetchedResponse, FetchError> {
    let deadline = Deadline { timeout, at: Instant::now() + timeout };
    let mut requests = requests.share(seed, 0, 1);
    let request = requests.next();
    let mut line = BlockingStream::connect(address, tls, deadline.remaining()?)
        .map_err(|e| deadline.connect_error(e, address))?;
    line.handshake(deadline.remaining()?).map_err(|e| deadline.connect_error(e, address))?;
    line.set_timeout(deadline.remaining()?)?;
    line.write_all(request.bytes).and_then(|()| line.flush()).map_err(|e| deadline.error(e))?;
    let bytes_max = body_bytes_max + body_bytes_max / FRAMING_SHARE + FRAMING_BYTES_MAX;
    let raw =
        read_response(&mut line, request.answer_has_body, &deadline, bytes_max, body_bytes_max)?;
    line.close();
    let reply = parse_response(&raw, request.answer_has_body)?;
    if reply.body.len() > body_bytes_max {
        Err(FetchError::TooLarge(body_bytes_max))
    } else {
        Ok(reply)
    }
}

struct Deadline {
    timeout: Duration,
    at: Instant,
}

impl Deadline {
    /// Returns the remaining time; an error when none is left.
    fn remaining(&self) -> Result<Duration, FetchError> {
        let remaining = self.at.saturating_duration_since(Instant::now());
        if remaining.is_zero() { Err(FetchError::Late(self.timeout)) } else { Ok(remaining) }
    }

    fn connect_error(&self, error: io::Error, address: &Address) -> FetchError {
        match self.error(error) {
            FetchError::Socket(error) => FetchError::NoConnection(explain::socket(&error, address)),
            FetchError::Closed => FetchError::NoConnection(explain::socket(
                &io::ErrorKind::UnexpectedEof.into(),
                address,
            )),
            other => other,
        }
    }

    /// A blocking socket reports its time-out as "would block".
    fn error(&self, error: io::Error) -> FetchError {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => FetchError::Late(self.timeout),
            io::ErrorKind::UnexpectedEof => FetchError::Closed,
            _ => FetchError::Socket(error),
        }
    }
}

/// Reads until the parser reports a complete response; returns all its bytes.
fn read_response(
    line: &mut BlockingStream,
    has_body: bool,
    deadline: &Deadline,
    bytes_max: usize,
    told_max: usize,
) -> Result<Vec<u8>, FetchError> {
    let (mut parser, mut raw) = (Parser::default(), Vec::new());
    let mut buffer = vec![0; READ_BYTES];
    loop {
        line.set_timeout(deadline.remaining()?)?;
        let n = match line.read(&mut buffer) {
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            // Some servers end TLS without a close notification; the stream ends all the same.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => 0,
            Err(e) => return Err(deadline.error(e)),
        };
        if n == 0 {
            return match parser.end() {
                StreamEnd::Complete(_) => Ok(raw),
                StreamEnd::BetweenResponses | StreamEnd::Truncated => Err(FetchError::Closed),
            };
        }
        let fed = parser.feed(&buffer[..n], has_body)?;
        raw.extend_from_slice(&buffer[..fed.used]);
        if raw.len() > bytes_max {
            return Err(FetchError::TooLarge(told_max));
        }
        if fed.answer.is_some() {
            return Ok(raw);
        }
    }
}

/// Splits a response that the parser has found to be complete.
fn parse_response(mut raw: &[u8], has_body: bool) -> Result<FetchedResponse, FetchError> {
    loop {
        let (found, length) = head::parse(raw)?.ok_or(FetchError::Closed)?;
        let (text, rest) = raw.split_at(length);
        raw = rest;
        // Interim responses precede the final one.
        if found.status < 200 {
            continue;
        }
        let bodyless = !has_body || matches!(found.status, 204 | 304);
        let body = match found.framing {
            _ if bodyless => Vec::new(),
            head::Framing::Chunked => decode_chunked(rest),
            head::Framing::Fixed(_) | head::Framing::None => rest.to_vec(),
        };
        return Ok(FetchedResponse { status: found.status, headers: parse_fields(text), body });
    }
}

fn parse_fields(head: &[u8]) -> Vec<(String, String)> {
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in String::from_utf8_lossy(head).lines().skip(1) {
        if line.starts_with([' ', '\t']) {
            // A fold is a blank.
            if let Some((_, value)) = fields.last_mut() {
                value.push(' ');
                value.push_str(line.trim());
            }
        } else if let Some((name, value)) = line.split_once(':') {
            fields.push((name.trim().to_owned(), value.trim().to_owned()));
        }
    }
    fields
}

/// Returns the data of chunks that are known to be valid.
fn decode_chunked(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = rest.iter().position(|b| *b == b'\n') {
        let digits: String =
            rest[..end].iter().map_while(|b| b.is_ascii_hexdigit().then_some(*b as char)).collect();
        let size = usize::from_str_radix(&digits, 16).unwrap_or(0);
        let data = &rest[end + 1..];
        let taken = size.min(data.len());
        body.extend_from_slice(&data[..taken]);
        // Each chunk's data ends with CR LF.
        rest = data.get(taken + 2..).unwrap_or_default();
        if size == 0 {
            break;
        }
    }
    body
}

#[cfg(test)]
mod tests;
