//! Rendering of a batch's answer: `{"items":{…},"missing":[…]}`, each id as it was requested.

use std::collections::TryReserveError;

use bytes::Bytes;
use hotrow_cache::{Presence, Record};

use super::ids::Ids;
use crate::body::Segments;

/// Bytes around a name: quotes, a colon, a comma.
const BYTES_PER_NAME: usize = 4;
/// Bytes around all names.
const FRAME_BYTES: usize = 32;

/// Renders the answer. Names and punctuation are written once, into one text; records are not
/// copied.
///
/// # Errors
/// If the system has no memory for the names.
pub(super) fn render(ids: &Ids, records: &[Option<Record>]) -> Result<Segments, TryReserveError> {
    let mut text = Vec::new();
    text.try_reserve_exact(ids.names.len() + BYTES_PER_NAME * ids.texts.len() + FRAME_BYTES)?;
    let mut cuts: Vec<(usize, &Record)> = Vec::new();
    cuts.try_reserve_exact(ids.texts.len())?;
    let mut missing = Vec::new();
    text.extend_from_slice(b"{\"items\":{");
    for (name, place) in ids.named() {
        let Some(record) = &records[place] else { continue };
        if record.presence() == Presence::Missing {
            missing.push(name);
            continue;
        }
        if !cuts.is_empty() {
            text.push(b',');
        }
        push_json_string(&mut text, name);
        text.push(b':');
        cuts.push((text.len(), record));
    }
    text.extend_from_slice(b"},\"missing\":[");
    for (i, name) in missing.into_iter().enumerate() {
        if i > 0 {
            text.push(b',');
        }
        push_json_string(&mut text, name);
    }
    text.extend_from_slice(b"]}");
    Ok(cut(&Bytes::from(text), cuts))
}

/// Returns the text with each record in its position.
fn cut(text: &Bytes, cuts: Vec<(usize, &Record)>) -> Segments {
    let mut segments = Segments::default();
    let mut from = 0;
    for (at, record) in cuts {
        segments.push_text(text.slice(from..at));
        segments.push_record(record.clone());
        from = at;
    }
    segments.push_text(text.slice(from..));
    segments
}

/// A URL form contains no control characters; quotes and backslashes are escaped nevertheless.
fn push_json_string(out: &mut Vec<u8>, text: &str) {
    if text.bytes().all(|b| b >= b' ' && b != b'"' && b != b'\\') {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        out.extend_from_slice(serde_json::Value::from(text).to_string().as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_for_json() {
        let mut out = Vec::new();
        push_json_string(&mut out, "a\"b");
        push_json_string(&mut out, "plain");
        assert_eq!(out, br#""a\"b""plain""#);
    }
}
