//! Text of a follower's events (WHATWG HTML, "Server-sent events").

use std::io::Write;
use std::time::Duration;

use hotrow_push::{Event, Opening, ResumeId};
use hotrow_types::key::KeySchema;

use hotrow_changes::follow::EndCause;

/// Line that keeps a connection and its proxies alive while there is no heartbeat. Not an event.
pub(crate) const BEHIND: &[u8] = b": behind\n\n";

/// Text of events, for one frame.
#[derive(Debug, Default)]
pub(crate) struct EventText(Vec<u8>);

impl EventText {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn comment(&mut self, comment: &[u8]) {
        self.0.extend_from_slice(comment);
    }

    // Writing to a `Vec` cannot fail.

    /// Adds the time after which a client returns.
    pub(crate) fn retry(&mut self, after: Duration) {
        _ = write!(self.0, "retry: {}\n\n", after.as_millis());
    }

    /// Adds what a follower gets first.
    pub(crate) fn opening(&mut self, opening: &Opening) {
        match opening {
            Opening::Begin(id) => {
                self.begin("begin", Some(*id));
                self.position(id.position);
            }
            Opening::Resumed => {}
            Opening::Reset(at) => self.reset(*at),
        }
    }

    /// Adds an event of the log.
    pub(crate) fn event(&mut self, event: &Event<'_>, schema: &KeySchema) {
        match event {
            Event::Change { key, position, id } => {
                self.begin("change", *id);
                // Percent-encoded: nothing in it needs an escape in JSON.
                let key = schema.id_of(key.as_bytes()).unwrap_or_default();
                _ = write!(self.0, "data: {{\"key\":\"{key}\",\"kind\":\"change\",");
                _ = write!(self.0, "\"position\":\"{position}\"}}\n\n");
            }
            Event::Flush { position, id } => {
                self.begin("flush", *id);
                _ = write!(self.0, "data: {{\"kind\":\"flush\",\"position\":\"{position}\"}}\n\n");
            }
            Event::Reset { at } => self.reset(*at),
        }
    }

    pub(crate) fn heartbeat(&mut self, id: ResumeId, staleness: Duration) {
        self.begin("heartbeat", Some(id));
        let (position, staleness_ms) = (id.position, staleness.as_millis());
        _ = write!(
            self.0,
            "data: {{\"position\":\"{position}\",\"staleness_ms\":{staleness_ms}}}\n\n"
        );
    }

    pub(crate) fn end(&mut self, cause: EndCause) {
        self.begin("end", None);
        _ = write!(self.0, "data: {{\"reason\":\"{}\"}}\n\n", cause.label());
    }

    fn reset(&mut self, at: Option<ResumeId>) {
        self.begin("reset", at);
        match at {
            Some(id) => self.position(id.position),
            None => self.0.extend_from_slice(b"data: {\"position\":null}\n\n"),
        }
    }

    fn begin(&mut self, name: &str, id: Option<ResumeId>) {
        _ = writeln!(self.0, "event: {name}");
        if let Some(id) = id {
            _ = writeln!(self.0, "id: {id}");
        }
    }

    fn position(&mut self, position: hotrow_types::version::Position) {
        _ = write!(self.0, "data: {{\"position\":\"{position}\"}}\n\n");
    }

    /// Returns it as a part of a body: a chunk (RFC 9112, section 7.1), the last one with the end
    /// of the body, or the plain bytes.
    pub(crate) fn into_frame(self, is_chunked: bool, is_last: bool) -> Vec<u8> {
        let Self(text) = self;
        if !is_chunked {
            return text;
        }
        let mut frame = Vec::with_capacity(text.len() + 16);
        if !text.is_empty() {
            _ = write!(frame, "{:x}\r\n", text.len());
            frame.extend_from_slice(&text);
            frame.extend_from_slice(b"\r\n");
        }
        if is_last {
            frame.extend_from_slice(b"0\r\n\r\n");
        }
        frame
    }
}

#[cfg(test)]
mod tests {
    use hotrow_types::key::{Collation, CollectionId, KeyPart, KeyType};
    use hotrow_types::version::Position;

    use super::*;

    fn text(add: impl FnOnce(&mut EventText)) -> String {
        let mut text = EventText::default();
        add(&mut text);
        String::from_utf8(text.into_frame(false, false)).unwrap()
    }

    #[test]
    fn events_as_clients_see_them() {
        let position = Position { incarnation: 0xab, at: 7 };
        let id = ResumeId { position, generation: Some(0x1f) };
        let schema = KeySchema::new(CollectionId(0), vec![KeyType::Text(Collation::Binary)]);
        let key = schema.key(&[KeyPart::Text("a\"\n,b")]).unwrap();
        let change = Event::Change { key: &key, position, id: None };
        assert_eq!(
            text(|text| text.event(&change, &schema)),
            "event: change\ndata: {\"key\":\"a%22%0A%2Cb\",\"kind\":\"change\",\
             \"position\":\"00000000000000ab-7\"}\n\n"
        );
        assert_eq!(
            text(|text| text.event(&Event::Flush { position, id: Some(id) }, &schema)),
            "event: flush\nid: 00000000000000ab-7-1f\ndata: {\"kind\":\"flush\",\
             \"position\":\"00000000000000ab-7\"}\n\n"
        );
        assert_eq!(
            text(|text| text.opening(&Opening::Reset(None))),
            "event: reset\ndata: {\"position\":null}\n\n"
        );
        assert_eq!(
            text(|text| text.heartbeat(id, Duration::from_millis(12))),
            "event: heartbeat\nid: 00000000000000ab-7-1f\n\
             data: {\"position\":\"00000000000000ab-7\",\"staleness_ms\":12}\n\n"
        );
    }

    #[test]
    fn frames_are_chunks() {
        let mut text = EventText::default();
        text.end(EndCause::Slow);
        let frame = String::from_utf8(text.into_frame(true, true)).unwrap();
        assert_eq!(frame, "24\r\nevent: end\ndata: {\"reason\":\"slow\"}\n\n\r\n0\r\n\r\n");
        assert_eq!(EventText::default().into_frame(true, true), b"0\r\n\r\n");
    }
}
