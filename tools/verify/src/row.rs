//! Content of the rows. Every byte of a row follows from its key and version, so a response proves
//! its version and contains no part of another one.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::random::mix;

/// Prefix of every payload; rows without it are foreign.
pub const MARK: &str = "hotrow-verify:";
/// Column of versions.
pub const VERSION: &str = "version";
/// Column of payloads.
pub const PAYLOAD: &str = "payload";
/// Range of payload lengths, in bytes.
const PAYLOAD_BYTES: std::ops::Range<usize> = 40..1200;

/// Type of the key column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyType {
    /// 64-bit integers: 1, 2, 3 …
    Integer,
    /// Texts: `k1`, `k2`, `k3` …
    Text,
}

impl KeyType {
    /// Returns the key as in URLs and batches.
    #[must_use]
    pub fn text(self, key: u32) -> String {
        match self {
            Self::Integer => key.to_string(),
            Self::Text => format!("k{key}"),
        }
    }

    /// Parses a key's text; `None` if it is not one of the checker's.
    #[must_use]
    pub fn parse(self, text: &str) -> Option<u32> {
        let number = match self {
            Self::Integer => text,
            Self::Text => text.strip_prefix('k')?,
        };
        let key = number.parse().ok()?;
        (self.text(key) == text).then_some(key)
    }

    pub(crate) fn is(self, value: &Value, key: u32) -> bool {
        match self {
            Self::Integer => value.as_u64() == Some(u64::from(key)),
            Self::Text => value.as_str() == Some(&self.text(key)),
        }
    }
}

/// Returns the payload: the prefix, then hexadecimal digits, with a length that varies by version.
pub fn payload(key: u32, version: u64) -> String {
    let seed = mix(u64::from(key) << 40 ^ version);
    let spread = (PAYLOAD_BYTES.end - PAYLOAD_BYTES.start) as u64;
    let length = PAYLOAD_BYTES.start + (mix(seed) % spread) as usize;
    let mut text = String::with_capacity(length + 16);
    text.push_str(MARK);
    let mut block = seed;
    while text.len() < length {
        block = block.wrapping_add(0x9e37_79b9_7f4a_7c15);
        // Writing to a string cannot fail.
        _ = write!(text, "{:016x}", mix(block));
    }
    text.truncate(length);
    text
}

/// Returns the version of a record in a response. Members besides key, version and payload are
/// ignored.
///
/// # Errors
/// The difference from a valid record.
pub fn version_of(
    record: &Map<String, Value>,
    column: &str,
    key_type: KeyType,
    key: u32,
) -> Result<u64, String> {
    if !record.get(column).is_some_and(|value| key_type.is(value, key)) {
        return Err(format!("its {column} is {}", shown(record.get(column))));
    }
    let Some(version) = record.get(VERSION).and_then(Value::as_u64) else {
        return Err(format!("its version is {}", shown(record.get(VERSION))));
    };
    let expected = payload(key, version);
    match record.get(PAYLOAD) {
        Some(Value::String(text)) if *text == expected => Ok(version),
        other => Err(format!("its payload is not that of version {version}: {}", shown(other))),
    }
}

/// Returns the beginning of a value.
fn shown(value: Option<&Value>) -> String {
    /// Characters of a value in a message.
    const SHOWN_MAX: usize = 80;
    value.map_or("missing".to_owned(), |value| value.to_string().chars().take(SHOWN_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(text: &str) -> Map<String, Value> {
        serde_json::from_str(text).expect("an object")
    }

    #[test]
    fn a_record_belongs_to_exactly_one_version() {
        let good = format!(r#"{{"id":7,"version":3,"payload":"{}","more":null}}"#, payload(7, 3));
        assert_eq!(version_of(&record(&good), "id", KeyType::Integer, 7), Ok(3));
        for bad in [
            good.replace("\"version\":3", "\"version\":4"),
            good.replace("\"version\":3", "\"version\":\"3\""),
            good.replace("\"id\":7", "\"id\":8"),
            good.replace("\"id\":7", "\"id\":\"7\""),
            good.replace(MARK, "hotrow-verify;"),
            "{}".to_owned(),
        ] {
            assert!(version_of(&record(&bad), "id", KeyType::Integer, 7).is_err(), "{bad}");
        }
        assert_ne!(payload(7, 3), payload(7, 4));
        assert_ne!(payload(7, 3), payload(8, 3));
        assert!((0..500).all(|version| PAYLOAD_BYTES.contains(&payload(1, version).len())));
    }

    #[test]
    fn a_key_has_exactly_one_text() {
        for kind in [KeyType::Integer, KeyType::Text] {
            assert_eq!(kind.parse(&kind.text(12)), Some(12));
            for bad in ["", "k", "012", "k012", "+12", "x12"] {
                assert_eq!(kind.parse(bad), None, "{bad}");
            }
        }
        assert_eq!(KeyType::Text.parse("12"), None);
        assert_eq!(KeyType::Integer.parse("k12"), None);
    }
}
