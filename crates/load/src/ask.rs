//! One request, asked once, with its whole answer: whether a service is ready, whether it answers rightly, what it counted.
//!
//! The same requests and the same parser as in a run, on a connection of its own. Nothing here is fast, and all is bounded.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustls::{ClientConnection, StreamOwned};

use crate::request::Mix;
use crate::response::{Ended, HEAD_BYTES_MAX, INTERIM_MAX, Malformed, Parser, head};
use crate::target::Address;
use crate::tls::Tls;

/// Bytes read at once.
const READ_BYTES: usize = 64 * 1024;
/// What heads and the framing of chunks may add to a body, as a share of it and in bytes.
const FRAMING_SHARE: usize = 8;
const FRAMING_BYTES_MAX: usize = HEAD_BYTES_MAX * (INTERIM_MAX as usize + 1);

/// A whole answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The status code, 200 to 999.
    pub status: u16,
    /// Header fields in their order; bytes that are not ASCII are replaced.
    pub headers: Vec<(String, String)>,
    /// The body, without the framing of its chunks.
    pub body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The connection could not be opened, or broke.
    #[error("{0}")]
    Socket(#[from] io::Error),
    /// TLS could not begin.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The time was over.
    #[error("no whole answer within {0:?}")]
    Late(Duration),
    /// The connection was closed too early.
    #[error("the connection was closed before the answer was complete")]
    Closed,
    /// The answer is no HTTP/1.1.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The body is larger than what was allowed.
    #[error("the answer's body is larger than {0} bytes")]
    TooLarge(usize),
}

impl Reply {
    /// The value of the first field of this name, whatever its case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The body as text; what is not UTF-8 is replaced.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Sends the first request of `requests` for this `seed` and waits for its whole answer, at most `patience` from here to there.
///
/// # Errors
/// When there is no whole answer in that time, or its body is larger than `body_bytes_max`.
pub fn once(
    address: &Address,
    tls: Option<&Tls>,
    requests: &Mix,
    seed: u64,
    patience: Duration,
    body_bytes_max: usize,
) -> Result<Reply, AskError> {
    let deadline = Deadline { patience, at: Instant::now() + patience };
    let mut requests = requests.share(seed, 0, 1);
    let request = requests.next();
    let mut line = Line::open(address, tls, &deadline)?;
    line.allow(&deadline)?;
    line.write_all(request.bytes).map_err(|e| deadline.error(e))?;
    let bytes_max = body_bytes_max + body_bytes_max / FRAMING_SHARE + FRAMING_BYTES_MAX;
    let raw = whole(&mut line, request.answer_has_body, &deadline, bytes_max, body_bytes_max)?;
    line.close();
    let reply = taken_apart(&raw, request.answer_has_body)?;
    if reply.body.len() > body_bytes_max { Err(AskError::TooLarge(body_bytes_max)) } else { Ok(reply) }
}

struct Deadline {
    patience: Duration,
    at: Instant,
}

impl Deadline {
    /// What is left; an error when that is nothing.
    fn left(&self) -> Result<Duration, AskError> {
        let left = self.at.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(AskError::Late(self.patience)) } else { Ok(left) }
    }

    /// A blocking socket tells its time-out as "would block".
    fn error(&self, error: io::Error) -> AskError {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => AskError::Late(self.patience),
            io::ErrorKind::UnexpectedEof => AskError::Closed,
            _ => AskError::Socket(error),
        }
    }
}

/// A blocking connection.
enum Line {
    Tcp(TcpStream),
    Unix(UnixStream),
    SecureTcp(Box<StreamOwned<ClientConnection, TcpStream>>),
    SecureUnix(Box<StreamOwned<ClientConnection, UnixStream>>),
}

impl Line {
    fn open(address: &Address, tls: Option<&Tls>, deadline: &Deadline) -> Result<Self, AskError> {
        Ok(match address {
            Address::Tcp(to) => {
                let stream = TcpStream::connect_timeout(to, deadline.left()?).map_err(|e| deadline.error(e))?;
                stream.set_nodelay(true)?;
                match tls {
                    None => Self::Tcp(stream),
                    Some(tls) => Self::SecureTcp(Box::new(StreamOwned::new(tls.connect()?, stream))),
                }
            }
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                match tls {
                    None => Self::Unix(stream),
                    Some(tls) => Self::SecureUnix(Box::new(StreamOwned::new(tls.connect()?, stream))),
                }
            }
        })
    }

    /// The next call may last until the deadline.
    fn allow(&self, deadline: &Deadline) -> Result<(), AskError> {
        let left = Some(deadline.left()?);
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(left).and(stream.set_write_timeout(left)),
            Self::Unix(stream) => stream.set_read_timeout(left).and(stream.set_write_timeout(left)),
            Self::SecureTcp(stream) => stream.sock.set_read_timeout(left).and(stream.sock.set_write_timeout(left)),
            Self::SecureUnix(stream) => stream.sock.set_read_timeout(left).and(stream.sock.set_write_timeout(left)),
        }
        .map_err(AskError::Socket)
    }

    /// Nobody waits for what the other side still has to say, and a failure to part is no failure to ask.
    fn close(&self) {
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
            Self::SecureTcp(stream) => stream.sock.shutdown(Shutdown::Both),
            Self::SecureUnix(stream) => stream.sock.shutdown(Shutdown::Both),
        };
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        fn all(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
            out.write_all(bytes)?;
            out.flush()
        }
        match self {
            Self::Tcp(stream) => all(stream, bytes),
            Self::Unix(stream) => all(stream, bytes),
            Self::SecureTcp(stream) => all(&mut **stream, bytes),
            Self::SecureUnix(stream) => all(&mut **stream, bytes),
        }
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(into),
            Self::Unix(stream) => stream.read(into),
            Self::SecureTcp(stream) => stream.read(into),
            Self::SecureUnix(stream) => stream.read(into),
        }
    }
}

/// Reads until the parser says that the answer is complete; all its bytes.
fn whole(
    line: &mut Line,
    has_body: bool,
    deadline: &Deadline,
    bytes_max: usize,
    told_max: usize,
) -> Result<Vec<u8>, AskError> {
    let (mut parser, mut raw) = (Parser::default(), Vec::new());
    let mut buffer = vec![0; READ_BYTES];
    loop {
        line.allow(deadline)?;
        let n = match line.read(&mut buffer) {
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            // A server that ends TLS without saying so ends the stream all the same.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => 0,
            Err(e) => return Err(deadline.error(e)),
        };
        if n == 0 {
            return match parser.end() {
                Ended::Complete(_) => Ok(raw),
                Ended::Between | Ended::Inside => Err(AskError::Closed),
            };
        }
        let fed = parser.feed(&buffer[..n], has_body)?;
        raw.extend_from_slice(&buffer[..fed.used]);
        if raw.len() > bytes_max {
            return Err(AskError::TooLarge(told_max));
        }
        if fed.answer.is_some() {
            return Ok(raw);
        }
    }
}

/// Takes an answer apart that the parser has found to be whole.
fn taken_apart(mut raw: &[u8], has_body: bool) -> Result<Reply, AskError> {
    loop {
        let (found, length) = head::parse(raw)?.ok_or(AskError::Closed)?;
        let (text, rest) = raw.split_at(length);
        raw = rest;
        // Interim answers come before the final one.
        if found.status < 200 {
            continue;
        }
        let bodyless = !has_body || matches!(found.status, 204 | 304);
        let body = match found.framing {
            _ if bodyless => Vec::new(),
            head::Framing::Chunked => dechunked(rest),
            head::Framing::Fixed(_) | head::Framing::None => rest.to_vec(),
        };
        return Ok(Reply { status: found.status, headers: fields(text), body });
    }
}

fn fields(head: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(head);
    let pair = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.trim().to_owned(), value.trim().to_owned()))
    };
    text.lines().skip(1).filter_map(pair).collect()
}

/// The data of chunks that were found to be valid.
fn dechunked(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = rest.iter().position(|b| *b == b'\n') {
        let digits: String = rest[..end].iter().map_while(|b| b.is_ascii_hexdigit().then_some(*b as char)).collect();
        let size = usize::from_str_radix(&digits, 16).unwrap_or(0);
        let data = &rest[end + 1..];
        let taken = size.min(data.len());
        body.extend_from_slice(&data[..taken]);
        // After the data come a carriage return and a line feed.
        rest = data.get(taken + 2..).unwrap_or_default();
        if size == 0 {
            break;
        }
    }
    body
}

#[cfg(test)]
mod tests;
