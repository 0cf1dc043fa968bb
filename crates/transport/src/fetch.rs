//! A single request with its whole response, on a connection of its own: for probes of health and
//! readiness, checks of responses, and counters. It is not fast, and everything is bounded.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::time::{Duration, Instant};

use crate::explain;
use crate::stream::BlockingStream;
use crate::target::Address;
use crate::tls::Tls;

/// Bytes of one head, or of one line between chunks.
const HEAD_BYTES_MAX: u64 = 64 << 10;
/// Header fields of one head.
const FIELDS_MAX: usize = 256;
/// Interim responses (1xx) before the final one.
const INTERIM_MAX: usize = 64;

/// A request as its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Head and body, as they are sent.
    pub bytes: &'a [u8],
    /// False for HEAD: the response ends with its head.
    pub answer_has_body: bool,
}

/// A complete response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedResponse {
    /// The status code, 200 to 999.
    pub status: u16,
    /// Header fields in order; bytes that are not UTF-8 are replaced.
    pub headers: Vec<(String, String)>,
    /// The body, without chunk framing.
    pub body: Vec<u8>,
}

/// Reasons for a missing response.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The connection broke.
    #[error("{0}")]
    Socket(io::Error),
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
    #[error("the answer is not HTTP/1.1: {0}")]
    Malformed(String),
    /// The body is larger than allowed.
    #[error("the answer's body is larger than {0} bytes")]
    TooLarge(usize),
}

impl FetchedResponse {
    /// Returns the value of the first field with this name, in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    /// Returns the body as text; invalid UTF-8 is replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Reasons why a request cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The path has a character that a URL cannot have (RFC 3986, section 2).
    #[error("the path {0:?} has a character that a URL cannot have; write it percent-encoded")]
    Path(String),
    /// A header's name or value is invalid.
    #[error(
        "the header {0:?} is not valid: it must have a name of letters, digits and dashes, and a \
         value without line breaks"
    )]
    Header(String),
}

/// Returns the bytes of a GET request that ends its connection.
///
/// # Errors
/// Fails if the path or a header does not fit into the head of a request.
pub fn get(path: &str, host: &str, headers: &[(String, String)]) -> Result<Vec<u8>, RequestError> {
    let in_urls = |byte: u8| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte);
    if !path.bytes().all(in_urls) {
        return Err(RequestError::Path(path.to_owned()));
    }
    let mut text = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
    for (name, value) in headers {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if name.is_empty() || !name.bytes().all(is_name) || value.contains(['\r', '\n', '\0']) {
            return Err(RequestError::Header(name.clone()));
        }
        text += &format!("{name}: {value}\r\n");
    }
    Ok((text + "\r\n").into_bytes())
}

/// Sends a request and waits for the whole response. `timeout` bounds the whole exchange.
///
/// # Errors
/// Fails without a whole response in that time, or with a body larger than `body_bytes_max`.
pub fn fetch(
    address: &Address,
    tls: Option<&Tls>,
    request: Request<'_>,
    timeout: Duration,
    body_bytes_max: usize,
) -> Result<FetchedResponse, FetchError> {
    let deadline = Deadline { timeout, at: Instant::now() + timeout };
    let mut stream = BlockingStream::connect(address, tls, deadline.remaining()?)
        .map_err(|e| deadline.connect_error(e, address))?;
    stream.handshake(deadline.remaining()?).map_err(|e| deadline.connect_error(e, address))?;
    stream.set_timeout(deadline.remaining()?).map_err(|e| deadline.error(e))?;
    stream.write_all(request.bytes).and_then(|()| stream.flush()).map_err(|e| deadline.error(e))?;
    let mut input = Input { reader: BufReader::new(Timed { stream, deadline }), body_bytes_max };
    let response = input.response(request.answer_has_body)?;
    input.reader.get_ref().stream.close();
    Ok(response)
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

/// A stream whose reads end at the deadline.
struct Timed {
    stream: BlockingStream,
    deadline: Deadline,
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let late = |_| io::Error::from(io::ErrorKind::TimedOut);
        self.stream.set_timeout(self.deadline.remaining().map_err(late)?)?;
        match self.stream.read(buffer) {
            // Some servers end TLS without a close notification; the stream ends all the same.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            read => read,
        }
    }
}

struct Input {
    reader: BufReader<Timed>,
    body_bytes_max: usize,
}

impl Input {
    fn response(&mut self, has_body: bool) -> Result<FetchedResponse, FetchError> {
        for _ in 0..=INTERIM_MAX {
            let head = self.head()?;
            let (status, headers) = parse_head(&head)?;
            if status < 200 {
                continue;
            }
            let mut response = FetchedResponse { status, headers, body: Vec::new() };
            if has_body && !matches!(status, 204 | 304) {
                response.body = self.body(&response)?;
            }
            return Ok(response);
        }
        Err(FetchError::Malformed(format!("more than {INTERIM_MAX} interim answers")))
    }

    /// Reads up to the empty line.
    fn head(&mut self) -> Result<Vec<u8>, FetchError> {
        let mut head = Vec::new();
        loop {
            let line = self.line()?;
            if head.is_empty() && !line.starts_with(b"HTTP/") {
                return Err(FetchError::Malformed("it does not begin with HTTP/".to_owned()));
            }
            head.extend_from_slice(&line);
            if matches!(line.as_slice(), b"\r\n" | b"\n") {
                return Ok(head);
            }
            if head.len() as u64 > HEAD_BYTES_MAX {
                let what = format!("its head is larger than {HEAD_BYTES_MAX} bytes");
                return Err(FetchError::Malformed(what));
            }
        }
    }

    /// Reads a line with its end.
    fn line(&mut self) -> Result<Vec<u8>, FetchError> {
        let mut line = Vec::new();
        let read = (&mut self.reader).take(HEAD_BYTES_MAX).read_until(b'\n', &mut line);
        read.map_err(|e| self.error(e))?;
        if line.ends_with(b"\n") {
            Ok(line)
        } else if line.len() as u64 == HEAD_BYTES_MAX {
            Err(FetchError::Malformed(format!("a line is longer than {HEAD_BYTES_MAX} bytes")))
        } else {
            Err(FetchError::Closed)
        }
    }

    fn body(&mut self, response: &FetchedResponse) -> Result<Vec<u8>, FetchError> {
        let mut body = Vec::new();
        let coding = response.header("transfer-encoding").map(str::to_ascii_lowercase);
        if coding.is_some_and(|coding| coding.ends_with("chunked")) {
            while let Some(bytes) = self.chunk_bytes()? {
                self.exactly(bytes, &mut body)?;
                self.line()?;
            }
            while !matches!(self.line()?.as_slice(), b"\r\n" | b"\n") {}
        } else if let Some(text) = response.header("content-length") {
            let wrong = |_| FetchError::Malformed(format!("its length is {text:?}"));
            self.exactly(text.parse().map_err(wrong)?, &mut body)?;
        } else {
            let allowed = self.body_bytes_max as u64 + 1;
            let read = (&mut self.reader).take(allowed).read_to_end(&mut body);
            read.map_err(|e| self.error(e))?;
            self.check_size(body.len() as u64)?;
        }
        Ok(body)
    }

    /// Reads the size of the next chunk; `None` at the last one.
    fn chunk_bytes(&mut self) -> Result<Option<u64>, FetchError> {
        let line = self.line()?;
        match httparse::parse_chunk_size(&line) {
            Ok(httparse::Status::Complete((_, bytes))) => Ok((bytes > 0).then_some(bytes)),
            _ => Err(FetchError::Malformed("the size of a chunk is wrong".to_owned())),
        }
    }

    fn exactly(&mut self, bytes: u64, body: &mut Vec<u8>) -> Result<(), FetchError> {
        self.check_size(bytes.saturating_add(body.len() as u64))?;
        let read = (&mut self.reader).take(bytes).read_to_end(body);
        let read = read.map_err(|e| self.error(e))?;
        if (read as u64) < bytes { Err(FetchError::Closed) } else { Ok(()) }
    }

    fn check_size(&self, bytes: u64) -> Result<(), FetchError> {
        if bytes > self.body_bytes_max as u64 {
            return Err(FetchError::TooLarge(self.body_bytes_max));
        }
        Ok(())
    }

    fn error(&self, error: io::Error) -> FetchError {
        self.reader.get_ref().deadline.error(error)
    }
}

fn parse_head(head: &[u8]) -> Result<(u16, Vec<(String, String)>), FetchError> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut parsed = httparse::Response::new(&mut fields);
    let mut config = httparse::ParserConfig::default();
    // A folded line continues its field (RFC 9112, section 5.2).
    config.allow_obsolete_multiline_headers_in_responses(true);
    config.parse_response(&mut parsed, head).map_err(|e| FetchError::Malformed(e.to_string()))?;
    let owned = |field: &httparse::Header<'_>| {
        (field.name.to_owned(), String::from_utf8_lossy(field.value).trim().to_owned())
    };
    Ok((parsed.code.unwrap_or(0), parsed.headers.iter().map(owned).collect()))
}

#[cfg(test)]
mod tests;
