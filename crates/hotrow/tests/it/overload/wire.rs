//! Exchange of raw bytes with a server, and parsing of everything that it sends until the
//! connection is closed.
//!
//! No fixed waits: the bytes are followed by a probe, then the sending side is closed. A server
//! that is ready for another request answers the probe; one that has closed, or reads the probe as
//! a part of an unfinished message, does not. In both cases the connection ends.

use std::net::SocketAddr;

use hotrow_testkit::harness::answer::{Answer, Framing, Malformed};
use hotrow_testkit::harness::client::Fault;
use hotrow_testkit::harness::{Client, SOON};

/// A well-formed request for a record that no other request here names.
const PROBE: &str = "GET /products/9 HTTP/1.1\r\nHost: probe\r\n\r\n";

/// Bytes sent after the case, before the sending side is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Then {
    Probe,
    End,
}

/// One final answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// Its body as sent, even where none is allowed.
    pub(crate) body: Vec<u8>,
}

/// Everything that the server sent.
#[derive(Debug)]
pub(crate) struct Received {
    /// Final answers, including that to the probe; interim ones (1xx) are left out.
    pub(crate) replies: Vec<Reply>,
    /// The last of them answers the probe.
    pub(crate) probed: bool,
}

impl Received {
    /// Returns the answers to the bytes before the probe.
    pub(crate) fn to_case(&self) -> &[Reply] {
        &self.replies[..self.replies.len() - usize::from(self.probed)]
    }
}

/// Reason for a missing result.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The server did not close.
    Open(Fault),
    /// The received bytes are no sequence of HTTP answers.
    NotHttp(Malformed),
}

/// Sends `bytes` on a connection of their own and parses everything until the server closes.
pub(crate) fn exchange(server: SocketAddr, bytes: &[u8], then: Then) -> Result<Received, Failed> {
    let mut client = Client::connect(server);
    let behind = match then {
        Then::Probe => PROBE.as_bytes(),
        Then::End => b"",
    };
    // Rejected bytes may not be read completely.
    let _ = client.try_send([bytes, behind].concat());
    client.try_end_sending();
    let received = client.rest(SOON).map_err(Failed::Open)?;
    let replies = replies(&received).map_err(Failed::NotHttp)?;
    let is_probe = |reply: &Reply| {
        reply.status == 200
            && serde_json::from_slice(&reply.body)
                .is_ok_and(|json: serde_json::Value| json["id"] == 9)
    };
    let probed = then == Then::Probe && replies.last().is_some_and(is_probe);
    Ok(Received { replies, probed })
}

/// Splits everything that a server sent into answers. Answers to HEAD are recognized by the bytes
/// after their heads, so that a body that should not exist is found.
fn replies(mut bytes: &[u8]) -> Result<Vec<Reply>, Malformed> {
    const EMPTY_LINE: &[u8] = b"\r\n\r\n";
    let mut replies = Vec::new();
    while !bytes.is_empty() {
        let head_bytes = bytes.windows(EMPTY_LINE.len()).position(|window| window == EMPTY_LINE);
        let head_bytes = head_bytes.ok_or_else(|| bad("a head without an end", bytes))?;
        let head = Answer::parse_head(&bytes[..head_bytes])?;
        bytes = &bytes[head_bytes + EMPTY_LINE.len()..];
        let body_bytes = match head.framing(false)? {
            Framing::Length(_) if bytes.is_empty() || bytes.starts_with(b"HTTP/1.") => 0,
            Framing::Length(length) => length,
            Framing::UntilClosed => bytes.len(),
            Framing::Chunked => return Err(bad("no server here sends chunks", bytes)),
        };
        let (body, behind) =
            bytes.split_at_checked(body_bytes).ok_or_else(|| bad("a cut body", bytes))?;
        bytes = behind;
        if head.status >= 200 {
            replies.push(Reply { status: head.status, body: body.to_vec() });
        }
    }
    Ok(replies)
}

fn bad(what: &str, bytes: &[u8]) -> Malformed {
    Malformed(format!("{what}: {:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(100)])))
}

#[test]
fn answers_are_split_and_forbidden_bodies_are_detected() {
    let statuses = |text: &str| {
        replies(text.as_bytes())
            .map(|all| all.iter().map(|r| (r.status, r.body.len())).collect::<Vec<_>>())
            .ok()
    };
    let head = |status: u16, length: usize| {
        format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n")
    };
    let ok = head(200, 2);
    let bad = head(400, 3);
    assert_eq!(statuses(""), Some(vec![]));
    assert_eq!(statuses(&format!("{ok}{{}}{bad}xyz")), Some(vec![(200, 2), (400, 3)]));
    assert_eq!(statuses(&format!("{ok}{bad}")), Some(vec![(200, 0), (400, 0)]), "answers to HEAD");
    assert_eq!(statuses(&format!("HTTP/1.1 100 Continue\r\n\r\n{ok}{{}}")), Some(vec![(200, 2)]));
    assert_eq!(statuses("HTTP/1.1 204 X\r\n\r\nbody"), None, "a body that no status 204 has");
    assert_eq!(statuses(&format!("{ok}{{")), None, "cut");
    assert_eq!(statuses("{\"id\":1}"), None, "HTTP/0.9");
}
