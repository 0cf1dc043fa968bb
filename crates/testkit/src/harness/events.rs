//! A client of server-sent events over HTTP/1.1.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use super::SOON;

/// An event as a client sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct SentEvent {
    pub name: String,
    pub id: Option<String>,
    pub data: Value,
}

impl SentEvent {
    /// Returns the position within the log.
    pub fn at(&self) -> Option<u64> {
        let (_, at) = self.data["position"].as_str()?.split_once('-').expect("a position");
        Some(at.parse().expect("a position"))
    }

    /// Returns its key and its position.
    pub fn change(&self) -> (&str, u64) {
        assert_eq!(self.name, "change", "{self:?}");
        assert_eq!(self.data["kind"], "change");
        (self.data["key"].as_str().expect("well-formed"), self.at().expect("well-formed"))
    }
}

/// A follower.
pub struct EventStream {
    input: BufReader<TcpStream>,
    pub head: String,
    chunk: usize,
    is_chunked: bool,
    /// Comment lines so far.
    pub comments: usize,
    /// The body has ended.
    pub has_ended: bool,
}

impl EventStream {
    /// Follows, which must be answered with 200.
    pub fn open(address: SocketAddr, target: &str, fields: &str) -> Self {
        let mut stream =
            Self::request(address, &format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
        assert!(stream.head.starts_with("HTTP/1.1 200"), "{}", stream.head);
        assert!(stream.head.contains("content-type: text/event-stream\r\n"), "{}", stream.head);
        assert!(stream.head.contains("cache-control: no-store\r\n"), "{}", stream.head);
        stream.is_chunked = stream.head.contains("transfer-encoding: chunked\r\n");
        stream
    }

    /// Sends a request, and reads the head of its answer.
    pub fn request(address: SocketAddr, request: &str) -> Self {
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(SOON)).expect("a socket");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut input = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let read = input.read_line(&mut head).expect("well-formed");
            assert!(read > 0, "closed within the head: {head}");
        }
        Self { input, head, chunk: 0, is_chunked: false, comments: 0, has_ended: false }
    }

    pub fn status(&self) -> &str {
        self.head.split(' ').nth(1).expect("well-formed")
    }

    fn byte(&mut self) -> Option<u8> {
        let mut byte = [0];
        if self.is_chunked && self.chunk == 0 {
            let mut size = String::new();
            self.input.read_line(&mut size).expect("well-formed");
            self.chunk = usize::from_str_radix(size.trim_end(), 16).expect("well-formed");
            if self.chunk == 0 {
                self.input.read_line(&mut size).expect("well-formed");
                self.has_ended = true;
                return None;
            }
        }
        if self.input.read(&mut byte).expect("well-formed") == 0 {
            assert!(!self.is_chunked, "closed without an end");
            self.has_ended = true;
            return None;
        }
        if self.is_chunked {
            self.chunk -= 1;
            if self.chunk == 0 {
                let mut end = [0; 2];
                self.input.read_exact(&mut end).expect("well-formed");
                assert_eq!(end, *b"\r\n");
            }
        }
        Some(byte[0])
    }

    fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        loop {
            match self.byte()? {
                b'\n' => return Some(String::from_utf8(line).expect("well-formed")),
                byte => line.push(byte),
            }
        }
    }

    /// Returns the next event; `None` at the end of the body.
    pub fn next_event(&mut self) -> Option<SentEvent> {
        self.next_unless(usize::MAX)
    }

    /// Returns the next event; `None` too when a comment follows `comments` of them.
    fn next_unless(&mut self, comments: usize) -> Option<SentEvent> {
        let (mut name, mut id, mut data) = (None, None, None);
        loop {
            let line = self.line()?;
            if let Some(text) = line.strip_prefix("event: ") {
                name = Some(text.to_owned());
            } else if let Some(text) = line.strip_prefix("id: ") {
                id = Some(text.to_owned());
            } else if let Some(text) = line.strip_prefix("data: ") {
                data = Some(serde_json::from_str(text).expect("well-formed"));
            } else if line.starts_with(':') {
                self.comments += 1;
                if self.comments > comments {
                    return None;
                }
            } else if line.is_empty() {
                if let Some(name) = name.take() {
                    return Some(SentEvent { name, id, data: data.unwrap_or(Value::Null) });
                }
            } else {
                assert!(line.starts_with("retry: "), "{line}");
            }
        }
    }

    /// Returns the next event, or `None` after a comment.
    pub fn next_or_comment(&mut self) -> Option<SentEvent> {
        let before = self.comments;
        let event = self.next_unless(before);
        event.filter(|_| self.comments == before)
    }

    /// Returns the next event that is no heartbeat.
    pub fn next_news(&mut self) -> SentEvent {
        loop {
            let event = self.next_event().expect("well-formed");
            if event.name != "heartbeat" {
                return event;
            }
        }
    }

    /// Reads up to a heartbeat at this point of the log, which no other event must precede.
    pub fn heartbeat_at(&mut self, at: u64) -> SentEvent {
        loop {
            let event = self.next_event().expect("well-formed");
            assert_eq!(event.name, "heartbeat", "{event:?}");
            if event.at() == Some(at) {
                return event;
            }
        }
    }
}
