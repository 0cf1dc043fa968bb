//! Rendering of a batch's answer: `{"items":{…},"missing":[…]}`, each id as it was requested.
//!
//! Small records are copied into one text, because a segment of its own costs more than some
//! hundred bytes. A large answer consists of segments: it must not exist twice.

use std::collections::TryReserveError;

use bytes::Bytes;
use hotrow_admission::byte_budget::AnswerReservation;
use hotrow_cache::Record;

use crate::body::Segments;
use crate::ids::Ids;

/// A record of a batch as its sender sees it.
#[derive(Clone, Debug)]
pub enum Item {
    /// The whole record.
    Whole(Record),
    /// Some columns of it.
    View(Bytes),
}

impl Item {
    /// Returns the record's bytes.
    pub fn body(&self) -> &[u8] {
        match self {
            Self::Whole(record) => record.body(),
            Self::View(view) => view,
        }
    }
}

/// The records of a batch that is not rendered, in the order of its keys.
#[derive(Debug)]
pub struct BatchParts {
    /// `None`: absent.
    pub items: Vec<Option<Item>>,
    /// Reservation of the answer.
    pub size: AnswerReservation,
}

impl BatchParts {
    /// Returns the bytes of the records.
    pub(crate) fn body_bytes(&self) -> u64 {
        self.items.iter().flatten().map(|item| item.body().len() as u64).sum()
    }
}

/// Bytes around a name: quotes, a colon, a comma.
const BYTES_PER_NAME: usize = 4;
/// Bytes around all names.
const FRAME_BYTES: usize = 32;

/// Largest answer whose records are copied.
const COPIED_BYTES_MAX: usize = 64 << 10;

/// Renders the answer. Ids without an item are missing. Names and punctuation are written once.
///
/// # Errors
/// If the system has no memory for the text.
pub fn render(ids: &Ids, items: &[Option<Item>]) -> Result<Segments, TryReserveError> {
    let mut text = Vec::new();
    let name_bytes = ids.name_bytes() + BYTES_PER_NAME * ids.names() + FRAME_BYTES;
    // By name: a record that is requested in two spellings counts twice.
    let record_bytes = ids
        .named()
        .filter_map(|(_, place)| items[place].as_ref())
        .fold(0_usize, |sum, item| sum.saturating_add(item.body().len()));
    let is_copied = record_bytes <= COPIED_BYTES_MAX;
    text.try_reserve_exact(name_bytes + if is_copied { record_bytes } else { 0 })?;
    let mut cuts: Vec<(usize, &Item)> = Vec::new();
    cuts.try_reserve_exact(if is_copied { 0 } else { ids.names() })?;
    let mut missing = Vec::new();
    let mut is_first = true;
    text.extend_from_slice(b"{\"items\":{");
    for (name, place) in ids.named() {
        let Some(item) = &items[place] else {
            missing.push(name);
            continue;
        };
        if !std::mem::take(&mut is_first) {
            text.push(b',');
        }
        push_json_string(&mut text, name);
        text.push(b':');
        if is_copied {
            text.extend_from_slice(item.body());
        } else {
            cuts.push((text.len(), item));
        }
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
fn cut(text: &Bytes, cuts: Vec<(usize, &Item)>) -> Segments {
    let mut segments = Segments::default();
    let mut from = 0;
    for (at, item) in cuts {
        segments.push_text(text.slice(from..at));
        match item {
            Item::Whole(record) => segments.push_record(record.clone()),
            Item::View(view) => segments.push_text(view.clone()),
        }
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
