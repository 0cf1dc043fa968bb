//! One connection: requests in, answers out.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use httparse::{EMPTY_HEADER, Request, Status};
use rustix::io::Errno;
use rustix::io::writev;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::date::Date;
use crate::records::Records;

/// Bytes per read, and so the longest request.
pub const INPUT_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 32;
const PREFIX: &str = "/products/";
const NOT_FOUND: &[u8] = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";

/// Event that a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Requests.
    Reading,
    /// Room for the rest of the answers.
    Writing,
    /// None: the connection is closed.
    Closed,
}

/// A client's connection. Both buffers stay empty and unallocated while requests and answers pass
/// in one piece.
pub struct Connection {
    socket: OwnedFd,
    /// Beginning of an incomplete request.
    partial: Vec<u8>,
    /// Answers that the socket did not take.
    unsent: Vec<u8>,
    /// Large body behind them, and its bytes that are sent.
    body: Option<(Rc<[u8]>, usize)>,
}

impl Connection {
    /// Creates a connection from a non-blocking socket.
    pub fn new(socket: OwnedFd) -> Self {
        Self { socket, partial: Vec::new(), unsent: Vec::new(), body: None }
    }

    /// Returns the event that the connection waits for.
    pub fn state(&self) -> State {
        let all_sent = self.unsent.is_empty() && self.body.is_none();
        if all_sent { State::Reading } else { State::Writing }
    }

    /// Processes what is ready. `input` and `output` are scratch space shared by all connections.
    pub fn advance(
        &mut self,
        records: &Records,
        date: &Date,
        input: &mut [u8],
        output: &mut Vec<u8>,
    ) -> State {
        match self.state() {
            State::Writing => self.write_unsent(),
            State::Reading | State::Closed => self.read(records, date, input, output),
        }
    }

    fn read(
        &mut self,
        records: &Records,
        date: &Date,
        input: &mut [u8],
        output: &mut Vec<u8>,
    ) -> State {
        let held = self.partial.len();
        input[..held].copy_from_slice(&self.partial);
        let filled = match recv(&self.socket, &mut input[held..], RecvFlags::empty()) {
            Ok((0, _)) => return State::Closed,
            Ok((bytes, _)) => held + bytes,
            Err(Errno::AGAIN | Errno::INTR) => return State::Reading,
            Err(_) => return State::Closed,
        };
        output.clear();
        let Some((consumed, body)) = answer_all(&input[..filled], records, date, output) else {
            return State::Closed;
        };
        self.partial.clear();
        self.partial.extend_from_slice(&input[consumed..filled]);
        if self.partial.len() == input.len() {
            return State::Closed;
        }
        match body {
            None => self.write(output),
            Some(body) => self.write_large(output, body),
        }
    }

    /// Sends `output` and the body behind it with one call, and the rest when there is room.
    fn write_large(&mut self, output: &[u8], body: Rc<[u8]>) -> State {
        match writev(&self.socket, &[IoSlice::new(output), IoSlice::new(&body)]) {
            Ok(sent) if sent == output.len() + body.len() => State::Reading,
            Ok(sent) => {
                self.unsent.extend_from_slice(output.get(sent..).unwrap_or_default());
                self.body = Some((body, sent.saturating_sub(output.len())));
                State::Writing
            }
            Err(Errno::AGAIN | Errno::INTR) => {
                self.body = Some((body, 0));
                self.store_unsent(output)
            }
            Err(_) => State::Closed,
        }
    }

    fn write(&mut self, output: &[u8]) -> State {
        if output.is_empty() {
            return State::Reading;
        }
        match send(&self.socket, output, SendFlags::NOSIGNAL) {
            Ok(sent) if sent == output.len() => State::Reading,
            Ok(sent) => self.store_unsent(&output[sent..]),
            Err(Errno::AGAIN | Errno::INTR) => self.store_unsent(output),
            Err(_) => State::Closed,
        }
    }

    fn store_unsent(&mut self, rest: &[u8]) -> State {
        self.unsent.extend_from_slice(rest);
        State::Writing
    }

    fn write_unsent(&mut self) -> State {
        let body = self.body.as_ref().map_or(&[][..], |(body, sent)| &body[*sent..]);
        match writev(&self.socket, &[IoSlice::new(&self.unsent), IoSlice::new(body)]) {
            Ok(sent) => {
                let of_unsent = sent.min(self.unsent.len());
                self.unsent.drain(..of_unsent);
                if let Some((body, sent_before)) = &mut self.body {
                    *sent_before += sent - of_unsent;
                    if *sent_before == body.len() {
                        self.body = None;
                    }
                }
                self.state()
            }
            Err(Errno::AGAIN | Errno::INTR) => State::Writing,
            Err(_) => State::Closed,
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Answers every complete request in `input`, up to one with a large body, which is returned with
/// the consumed bytes; `None` for anything but a GET request. A client that sends more behind that
/// one waits for ever: those of the measurements do not.
fn answer_all(
    input: &[u8],
    records: &Records,
    date: &Date,
    output: &mut Vec<u8>,
) -> Option<(usize, Option<Rc<[u8]>>)> {
    let mut consumed = 0;
    while consumed < input.len() {
        let mut headers = [EMPTY_HEADER; HEADERS_MAX];
        let mut request = Request::new(&mut headers);
        let Status::Complete(bytes) = request.parse(&input[consumed..]).ok()? else { break };
        if request.method != Some("GET") {
            return None;
        }
        consumed += bytes;
        let id = request.path.and_then(|path| path.strip_prefix(PREFIX)?.parse().ok());
        match id.and_then(|id| records.get(id)) {
            Some(record) => {
                let start = output.len();
                output.extend_from_slice(&record.answer);
                let at = start + record.date_at;
                output[at..at + date.text().len()].copy_from_slice(date.text());
                if !record.large_body.is_empty() {
                    return Some((consumed, Some(Rc::clone(&record.large_body))));
                }
            }
            None => output.extend_from_slice(NOT_FOUND),
        }
    }
    Some((consumed, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipelined_and_partial_requests() {
        let records =
            Records::parse(b"7 30 3 0\n000000000000000000000000000000abc\n").expect("well formed");
        let mut output = Vec::new();
        let input =
            b"GET /products/7 HTTP/1.1\r\nhost: x\r\n\r\nGET /products/8 HTTP/1.1\r\n\r\nGET /pro";
        let consumed = answer_all(input, &records, &Date::now(), &mut output);
        assert_eq!(consumed, Some((input.len() - 8, None)));
        assert_eq!(&output[29..33], b"0abc");
        assert_eq!(&output[33..], NOT_FOUND);
        assert_eq!(
            answer_all(b"POST / HTTP/1.1\r\n\r\n", &records, &Date::now(), &mut output),
            None
        );
        assert_eq!(answer_all(b"\0\0", &records, &Date::now(), &mut output), None);
    }
}
