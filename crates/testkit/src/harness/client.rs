//! A small HTTP/1.1 client: sends exact bytes and parses answers strictly. It never repeats or
//! corrects anything.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::SOON;
use super::answer::{Answer, Framing, Malformed};

/// Largest head or framing line of an answer; longer ones are malformed.
const HEAD_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    held: Vec<u8>,
}

/// Reason for a missing answer.
#[derive(Debug)]
pub enum Fault {
    /// The server closed or reset the connection before the first byte of an answer.
    Closed,
    /// It closed the connection within an answer.
    Cut(Vec<u8>),
    /// No answer arrived in time.
    Timeout,
    /// The received bytes are not HTTP.
    Malformed(Malformed),
}

impl Client {
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).unwrap_or_else(|e| panic!("cannot connect to {address}: {e}"))
    }

    /// Connects.
    pub fn try_connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, SOON)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(SOON))?;
        Ok(Self { stream, held: Vec::new() })
    }

    /// Sends these bytes and nothing else.
    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).unwrap_or_else(|e| panic!("cannot send: {e}"));
    }

    /// Sends these bytes and nothing else.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// Closes the sending side of the connection.
    pub fn end_sending(&self) {
        self.stream.shutdown(Shutdown::Write).expect("shut down");
    }

    /// Does as [`Self::end_sending`], for a server that may have closed already.
    pub fn try_end_sending(&self) {
        // A connection closed by the server needs no shutdown.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends `GET path` and returns the answer.
    #[track_caller]
    pub fn get(&mut self, path: &str) -> Answer {
        self.request("GET", path, &[], b"")
    }

    /// Sends `GET path` with headers and returns the answer.
    #[track_caller]
    pub fn get_with(&mut self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.request("GET", path, headers, b"")
    }

    /// Sends `POST path` with a body and returns the answer.
    #[track_caller]
    pub fn post(&mut self, path: &str, body: impl AsRef<[u8]>) -> Answer {
        self.request("POST", path, &[], body.as_ref())
    }

    /// Sends a change to the admin API: a `POST` with the header that every change needs.
    #[track_caller]
    pub fn change(&mut self, path: &str, body: impl AsRef<[u8]>) -> Answer {
        self.request("POST", path, &[("Hotrow-Admin", "1")], body.as_ref())
    }

    /// Sends one request and returns its answer. A body, or a POST, gets a Content-Length.
    #[track_caller]
    pub fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        self.send(request_bytes(method, path, headers, body));
        self.answer_to(method)
    }

    /// Returns the next answer, which must not be one to a HEAD.
    #[track_caller]
    pub fn answer(&mut self) -> Answer {
        self.answer_to("GET")
    }

    /// Returns the next answer, to a request of that method.
    #[track_caller]
    pub fn answer_to(&mut self, method: &str) -> Answer {
        self.try_answer(method, SOON)
            .unwrap_or_else(|fault| panic!("no answer to {method}: {fault:?}"))
    }

    /// Returns the next answer, to a request of that method, within a time. `100 Continue` counts
    /// as one.
    pub fn try_answer(&mut self, method: &str, within: Duration) -> Result<Answer, Fault> {
        let deadline = Instant::now() + within;
        let head = self.until(b"\r\n\r\n", deadline)?;
        let mut answer = Answer::parse_head(&head).map_err(Fault::Malformed)?;
        answer.body = match answer.framing(method == "HEAD").map_err(Fault::Malformed)? {
            Framing::Length(bytes) => self.exactly(bytes, deadline)?,
            Framing::Chunked => self.chunks(deadline)?,
            Framing::UntilClosed => {
                while self.read_some(deadline)? {}
                std::mem::take(&mut self.held)
            }
        };
        Ok(answer)
    }

    /// Asserts that the server closes the connection within a time, without another byte.
    #[track_caller]
    pub fn closed(&mut self, within: Duration) {
        match self.try_answer("GET", within) {
            Err(Fault::Closed) => {}
            other => panic!("expected a closed connection, got {other:?}"),
        }
    }

    /// Returns everything until the server closes, unparsed.
    ///
    /// # Errors
    /// Fails with [`Fault::Timeout`].
    pub fn rest(&mut self, within: Duration) -> Result<Vec<u8>, Fault> {
        let deadline = Instant::now() + within;
        while self.read_some(deadline)? {}
        Ok(std::mem::take(&mut self.held))
    }

    /// Returns everything up to `end`, and removes both from the buffer.
    fn until(&mut self, end: &[u8], deadline: Instant) -> Result<Vec<u8>, Fault> {
        loop {
            if let Some(at) = self.held.windows(end.len()).position(|w| w == end) {
                let line = self.held.drain(..at + end.len()).take(at).collect();
                return Ok(line);
            }
            if self.held.len() > HEAD_BYTES_MAX {
                return Err(Fault::Malformed(Malformed("endless head".to_owned())));
            }
            if !self.read_some(deadline)? {
                return Err(if self.held.is_empty() {
                    Fault::Closed
                } else {
                    Fault::Cut(self.held.clone())
                });
            }
        }
    }

    fn exactly(&mut self, bytes: usize, deadline: Instant) -> Result<Vec<u8>, Fault> {
        while self.held.len() < bytes {
            if !self.read_some(deadline)? {
                return Err(Fault::Cut(self.held.clone()));
            }
        }
        Ok(self.held.drain(..bytes).collect())
    }

    fn chunks(&mut self, deadline: Instant) -> Result<Vec<u8>, Fault> {
        let mut body = Vec::new();
        loop {
            let line = self.until(b"\r\n", deadline)?;
            let size = std::str::from_utf8(&line)
                .ok()
                .and_then(|line| usize::from_str_radix(line, 16).ok());
            let size =
                size.ok_or_else(|| Fault::Malformed(Malformed(format!("chunk size {line:?}"))))?;
            body.extend(self.exactly(size, deadline)?);
            if self.exactly(2, deadline)? != b"\r\n" {
                return Err(Fault::Malformed(Malformed(
                    "a chunk longer than its size, or trailers".to_owned(),
                )));
            }
            if size == 0 {
                return Ok(body);
            }
        }
    }

    /// Reads the available bytes, at least one; `false` if the server closed the connection.
    fn read_some(&mut self, deadline: Instant) -> Result<bool, Fault> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Fault::Timeout);
        }
        self.stream.set_read_timeout(Some(left)).expect("set a time-out");
        let mut bytes = [0; 16 * 1024];
        match self.stream.read(&mut bytes) {
            Ok(0) => Ok(false),
            Ok(n) => {
                self.held.extend_from_slice(&bytes[..n]);
                Ok(true)
            }
            Err(e) => match e.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Err(Fault::Timeout),
                io::ErrorKind::Interrupted => Ok(true),
                _ => Ok(false),
            },
        }
    }
}

/// Returns a request as the client sends it.
pub fn request_bytes(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() || method == "POST" {
        text.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    text.push_str("\r\n");
    let mut bytes = text.into_bytes();
    bytes.extend_from_slice(body);
    bytes
}
