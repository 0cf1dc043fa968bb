//! A small client of `GET /_changes/COLLECTION` (docs/changes.md): one connection, whose events it
//! parses. It shares no code with the service.

use std::time::{Duration, Instant};

use hyper::body::Incoming;
use serde_json::Value;

use crate::http::connection::Connection;
use crate::http::{CONNECT_TIME_MAX, Request, RequestError, Target};
use crate::observation::Position;

/// Most bytes of one event.
const EVENT_BYTES_MAX: usize = 64 << 10;

/// What an event says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// All changes after its position follow.
    Begin,
    /// The record of this key was inserted, updated or deleted.
    Change {
        /// The key as in URLs.
        key: String,
    },
    /// Any record of the collection may have changed.
    Flush,
    /// Changes may have been missed. All after its position follow; without one, a reset with one
    /// follows.
    Reset,
    /// Everything up to its position was sent.
    Heartbeat,
    /// The server ends the stream.
    End {
        /// Its reason.
        reason: String,
    },
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What it says.
    pub kind: EventKind,
    /// What a client sends when it returns.
    pub id: Option<String>,
    /// Its position.
    pub position: Option<Position>,
}

impl Event {
    /// Returns the point up to which everything was sent, if the event says so.
    pub fn covered(&self) -> Option<Position> {
        covered_by(self.id.as_deref()?)
    }
}

/// Returns the position of an id, which is one and the generation of the window that gave it.
pub(crate) fn covered_by(id: &str) -> Option<Position> {
    Position::parse(id.rsplit_once('-')?.0)
}

/// A request that got no events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FollowError {
    /// There was no response.
    Lost(RequestError),
    /// It was answered with this status.
    Refused(u16),
}

/// A stream of events.
#[derive(Debug)]
pub struct EventStream {
    connection: Connection,
    body: Incoming,
    /// Received and not used.
    held: Vec<u8>,
}

impl EventStream {
    /// Follows the path, from behind an id if there is one.
    ///
    /// # Errors
    /// There is no response, or a refusal.
    pub fn open(
        target: &Target,
        path: &str,
        last_id: Option<&str>,
        timeout: Duration,
    ) -> Result<Self, FollowError> {
        let lost = FollowError::Lost;
        let mut connection = Connection::open(target, timeout.min(CONNECT_TIME_MAX))
            .map_err(|_| lost(RequestError::Connect))?;
        let last_id = last_id.map(|id| ("Last-Event-ID", id.to_owned()));
        let headers = last_id.into_iter().collect();
        let request = Request { headers, ..Request::get(path.to_owned()) };
        let begun = connection.begin(target, &request, timeout);
        let response = begun.map_err(|(error, _)| lost(error))?;
        match response.status().as_u16() {
            200 => Ok(Self { connection, body: response.into_body(), held: Vec::new() }),
            status => Err(FollowError::Refused(status)),
        }
    }

    /// Returns the next event, or `None` if there is none within `wait`, which must not be zero.
    ///
    /// # Errors
    /// The stream has ended, or is malformed.
    pub fn next(&mut self, wait: Duration) -> Result<Option<Event>, RequestError> {
        let end = Instant::now() + wait;
        loop {
            while let Some(length) = self.held.windows(2).position(|two| two == b"\n\n") {
                let block: Vec<u8> = self.held.drain(..length + 2).collect();
                // Comments and the time after which to return are no events.
                if let Some(event) = parse(&block).ok_or(RequestError::Malformed)? {
                    return Ok(Some(event));
                }
            }
            if self.held.len() > EVENT_BYTES_MAX {
                return Err(RequestError::Malformed);
            }
            let left = end.saturating_duration_since(Instant::now());
            match self.connection.more(&mut self.body, left)? {
                Some(piece) if piece.is_empty() => return Err(RequestError::Closed),
                Some(piece) => self.held.extend_from_slice(&piece),
                None => return Ok(None),
            }
        }
    }
}

/// Parses a block of lines: `Some(None)` if it is no event, `None` if it is malformed.
#[expect(clippy::option_option, reason = "no event is not a malformed one")]
fn parse(block: &[u8]) -> Option<Option<Event>> {
    let text = std::str::from_utf8(block).ok()?;
    let (mut name, mut id, mut data) = (None, None, None);
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with(':')) {
        match line.split_once(": ")? {
            ("event", value) => name = Some(value),
            ("id", value) => id = Some(value.to_owned()),
            ("data", value) => data = Some(value),
            ("retry", _) => {}
            _ => return None,
        }
    }
    let Some(name) = name else { return Some(None) };
    let data: Value = serde_json::from_str(data?).ok()?;
    let text = |name: &str| data.get(name).and_then(Value::as_str);
    let position = match text("position") {
        Some(text) => Some(Position::parse(text)?),
        None => None,
    };
    let kind = match name {
        "begin" => EventKind::Begin,
        "change" => EventKind::Change { key: text("key")?.to_owned() },
        "flush" => EventKind::Flush,
        "reset" => EventKind::Reset,
        "heartbeat" => EventKind::Heartbeat,
        "end" => EventKind::End { reason: text("reason")?.to_owned() },
        _ => return None,
    };
    let has_no_position = matches!(kind, EventKind::Reset | EventKind::End { .. });
    (position.is_some() || has_no_position).then_some(Some(Event { kind, id, position }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(text: &str) -> Event {
        parse(text.as_bytes()).flatten().unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn an_event_is_parsed() {
        let change = "event: change\nid: 00000000000000ab-204350-9d3c02aa\ndata: \
                      {\"key\":\"7\",\"kind\":\"change\",\"position\":\"00000000000000ab-204349\"}\
                      \n\n";
        let position = |at| Some(Position { log: 0xab, at });
        let parsed = event(change);
        assert_eq!(parsed.kind, EventKind::Change { key: "7".to_owned() });
        assert_eq!((parsed.position, parsed.covered()), (position(204_349), position(204_350)));
        let reset = event("event: reset\ndata: {\"position\":null}\n\n");
        assert_eq!(
            (reset.kind.clone(), reset.position, reset.covered()),
            (EventKind::Reset, None, None)
        );
        let end = event("event: end\ndata: {\"reason\":\"slow\"}\n\n");
        assert_eq!(end.kind, EventKind::End { reason: "slow".to_owned() });
    }

    #[test]
    fn what_is_no_event_is_told_from_what_is_malformed() {
        for none in ["retry: 1729\n\n", ": behind\n\n", "\n\n"] {
            assert_eq!(parse(none.as_bytes()), Some(None), "{none:?}");
        }
        for bad in [
            "event: change\n\n",
            "event: other\ndata: {}\n\n",
            "event: change\ndata: {\"position\":\"00000000000000ab-1\"}\n\n",
            "event: heartbeat\ndata: {\"staleness_ms\":1}\n\n",
            "event: begin\ndata: {\"position\":\"ab-1\"}\n\n",
            "event: begin\ndata: {\n\n",
            "something\n\n",
        ] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad:?}");
        }
        assert_eq!(parse(b"\xff\n\n"), None);
    }
}
