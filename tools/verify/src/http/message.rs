//! Requests and responses.

use http::response::Parts;

use crate::history::Ns;

/// Longest response body, in bytes; a batch of a thousand rows is far smaller.
pub(super) const BODY_BYTES_MAX: usize = 64 << 20;

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

    pub(crate) fn post(path: String, body: &serde_json::Value) -> Self {
        Self { method: "POST", path, headers: Vec::new(), body: Some(body.to_string()) }
    }
}

/// A complete response.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(super) head: Parts,
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
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a status");
        let mut response = http::Response::builder().status(status);
        for line in lines {
            let (name, value) = line.split_once(": ").expect("a header");
            response = response.header(name, value);
        }
        let head = response.body(()).expect("a head").into_parts().0;
        Self { head, body: body.as_bytes().to_vec(), sent_ns: 1, received_ns: 2 }
    }

    pub(crate) fn status(&self) -> u16 {
        self.head.status.as_u16()
    }

    /// Returns the value of a header; the name is in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.headers.get(name)?.to_str().ok()
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
