//! Key of a row from the text of its columns.

use std::borrow::Cow;

use hotrow_types::key::{KEY_PARTS_MAX, Key, KeyPart, KeySchema, KeyType};

use super::super::key_text::from_server;
use super::super::pgoutput::{Old, Tuple, Value};

/// Result of reading a row's key columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// The key.
    Key(Key),
    /// No id names such a row.
    NoKey,
    /// The row cannot be identified.
    Unknown,
}

/// Decoded value of a column.
enum Part<'a> {
    Integer(i64),
    Text(Cow<'a, str>),
    Bytes(Vec<u8>),
}

/// Returns the key of the old row.
pub(super) fn of_old(schema: &KeySchema, places: &[usize], old: Old<'_>) -> Read {
    let values = pick(places, old.tuple());
    match old {
        // Columns outside of the replica identity are read as NULL, so a NULL is ambiguous.
        Old::Key(_) if values.contains(&Some(Value::Null)) => Read::Unknown,
        _ => read(schema, places, values),
    }
}

/// Returns the key of the new row. A value that was not sent because it did not change is taken
/// from the old row, if it is there.
pub(super) fn of_new(
    schema: &KeySchema,
    places: &[usize],
    new: Tuple<'_>,
    old: Option<Old<'_>>,
) -> Read {
    let mut values = pick(places, new);
    if let Some(old) = old {
        for (value, before) in values.iter_mut().zip(pick(places, old.tuple())) {
            if *value == Some(Value::Unchanged) {
                *value = before.filter(|v| *v != Value::Null);
            }
        }
    }
    read(schema, places, values)
}

type Values<'a> = [Option<Value<'a>>; KEY_PARTS_MAX];

/// Returns the key columns' values in the key's order. `places` are their positions in the row.
fn pick<'a>(places: &[usize], row: Tuple<'a>) -> Values<'a> {
    let mut values = [None; KEY_PARTS_MAX];
    for (place, value) in row.values().enumerate() {
        for (slot, _) in values.iter_mut().zip(places).filter(|(_, wanted)| **wanted == place) {
            *slot = Some(value);
        }
    }
    values
}

fn read(schema: &KeySchema, places: &[usize], values: Values<'_>) -> Read {
    if places.len() != schema.types().len() {
        return Read::Unknown;
    }
    let mut parts = Vec::with_capacity(places.len());
    for (value, ty) in values.iter().zip(schema.types()) {
        match value {
            Some(Value::Text(text)) => match part(*ty, text) {
                Some(part) => parts.push(part),
                None => return Read::NoKey,
            },
            // NULL is equal to nothing, so no read finds the row by this key.
            Some(Value::Null) => return Read::NoKey,
            Some(Value::Unchanged | Value::Binary(_)) | None => return Read::Unknown,
        }
    }
    let parts: Vec<KeyPart<'_>> = parts.iter().map(Part::as_key).collect();
    schema.key(&parts).map_or(Read::NoKey, Read::Key)
}

impl Part<'_> {
    fn as_key(&self) -> KeyPart<'_> {
        match self {
            Self::Integer(value) => KeyPart::Integer(*value),
            Self::Text(text) => KeyPart::Text(text),
            Self::Bytes(bytes) => KeyPart::Bytes(bytes),
        }
    }
}

/// Returns the value of a key column; `None` if the text is not of that type: no URL names such a
/// row.
fn part(ty: KeyType, text: &[u8]) -> Option<Part<'_>> {
    let text = std::str::from_utf8(text).ok()?;
    match ty {
        KeyType::Integer => text.parse().ok().map(Part::Integer),
        KeyType::Text(_) | KeyType::Canonical(_) => Some(Part::Text(from_server(ty, text))),
        KeyType::Uuid => {
            let plain: String = text.chars().filter(|c| *c != '-').collect();
            hex(&plain).map(Part::Bytes)
        }
        // No column has these types.
        KeyType::ObjectId | KeyType::Unsigned => None,
        KeyType::Bytes => hex(text.strip_prefix("\\x")?).map(Part::Bytes),
    }
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    let digit = |b: u8| char::from(b).to_digit(16);
    // Two hexadecimal digits fit a byte.
    pairs.iter().map(|[high, low]| Some((digit(*high)? * 16 + digit(*low)?) as u8)).collect()
}
