//! HTTP/1.1 on a blocking connection.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use hotrow_measure::clock::Nanos;
use hotrow_transport::stream::BlockingStream;

use super::head::{self, Framing, Head};
use super::{
    BODY_BYTES_MAX, Failure, HEAD_BYTES_MAX, Header, Request, RequestError, Response, Target,
    chunked, lost,
};
use crate::history::Ns;

/// Bytes read from a socket at once.
const PIECE_BYTES: usize = 32 << 10;
const MALFORMED: Failure = (RequestError::Malformed, None);
const CLOSED: Failure = (RequestError::Closed, None);

/// One connection.
#[derive(Debug)]
pub(super) struct Http1Connection {
    stream: BlockingStream,
    /// Bytes received beyond the last response: none from a correct server.
    buffer: Vec<u8>,
}

impl Http1Connection {
    pub(super) fn new(stream: BlockingStream) -> Self {
        Self { stream, buffer: Vec::new() }
    }

    /// Returns whether nothing arrived beyond the last response.
    pub(super) fn is_clean(&self) -> bool {
        self.buffer.is_empty()
    }

    pub(super) fn ask(
        &mut self,
        target: &Target,
        request: &Request,
        timeout: Duration,
        on_send: impl FnOnce(Ns),
    ) -> Result<Response, Failure> {
        let bytes = bytes(request, target, "1.1");
        self.stream.set_timeout(timeout).map_err(lost)?;
        let end = Instant::now() + timeout;
        let sent_ns = Nanos::now().0;
        on_send(sent_ns);
        self.stream.write_all(&bytes).and_then(|()| self.stream.flush()).map_err(lost)?;
        let mut incoming = Incoming { stream: &mut self.stream, buffer: &mut self.buffer, end };
        let head = incoming.head()?;
        let body = incoming.body(&head, request.method == "HEAD")?;
        Ok(Response { head, body, sent_ns, received_ns: Nanos::now().0 })
    }
}

/// Returns the bytes of a request of this version of HTTP.
pub(super) fn bytes(request: &Request, target: &Target, version: &str) -> Vec<u8> {
    let Request { method, path, headers, body } = request;
    let mut text =
        format!("{method} {}{path} HTTP/{version}\r\nHost: {}\r\n", target.prefix, target.host);
    for Header { name, value } in &target.headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
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

/// Bytes being received.
struct Incoming<'a> {
    stream: &'a mut BlockingStream,
    buffer: &'a mut Vec<u8>,
    end: Instant,
}

impl Incoming<'_> {
    /// Receives more bytes; returns false at the end of the stream.
    fn more(&mut self) -> Result<bool, Failure> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err((RequestError::TimedOut, None));
        }
        self.stream.set_timeout(left).map_err(lost)?;
        let had = self.buffer.len();
        self.buffer.resize(had + PIECE_BYTES, 0);
        let read = self.stream.read(&mut self.buffer[had..]);
        self.buffer.truncate(had + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(read) => Ok(read > 0),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(lost(error)),
        }
    }

    /// Receives the head of the final response.
    fn head(&mut self) -> Result<Head, Failure> {
        loop {
            while let Some(end) = head::end(self.buffer) {
                let head = Head::parse(&self.buffer[..end]).ok_or(MALFORMED)?;
                self.buffer.drain(..end);
                // Interim responses (1xx) are skipped.
                if head.status >= 200 {
                    return Ok(head);
                }
            }
            if self.buffer.len() > HEAD_BYTES_MAX {
                return Err(MALFORMED);
            }
            if !self.more()? {
                return Err(CLOSED);
            }
        }
    }

    fn body(&mut self, head: &Head, is_head: bool) -> Result<Vec<u8>, Failure> {
        if is_head || matches!(head.status, 204 | 304) {
            return Ok(Vec::new());
        }
        match head.framing {
            Framing::Length(length) => {
                let length = usize::try_from(length)
                    .ok()
                    .filter(|n| *n <= BODY_BYTES_MAX)
                    .ok_or(MALFORMED)?;
                while self.buffer.len() < length {
                    if !self.more()? {
                        return Err(CLOSED);
                    }
                }
                Ok(self.buffer.drain(..length).collect())
            }
            Framing::Chunked => loop {
                match chunked::decode(self.buffer).ok_or(MALFORMED)? {
                    chunked::Decoded::Complete { body, used } => {
                        self.buffer.drain(..used);
                        return Ok(body);
                    }
                    chunked::Decoded::Partial if self.buffer.len() > BODY_BYTES_MAX => {
                        return Err(MALFORMED);
                    }
                    chunked::Decoded::Partial if self.more()? => {}
                    chunked::Decoded::Partial => return Err(CLOSED),
                }
            },
            Framing::UntilClose => {
                while self.more()? {
                    if self.buffer.len() > BODY_BYTES_MAX {
                        return Err(MALFORMED);
                    }
                }
                Ok(std::mem::take(self.buffer))
            }
        }
    }
}
