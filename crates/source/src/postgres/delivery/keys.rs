//! A row's key, from the text of its columns.

use hotrow_cache::key::{KEY_PARTS_MAX, Key, KeyPart, KeySchema, KeyType};

use super::super::pgoutput::{Old, Tuple, Value};

/// What a row's key columns hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// The key.
    Key(Key),
    /// Nothing that can be asked for.
    NoKey,
    /// It cannot be told which row it is.
    Unknown,
}

/// Where a column's decoded bytes are held while the key is made.
enum Part<'a> {
    Integer(i64),
    Text(&'a str),
    Bytes(Vec<u8>),
}

/// The key of the row as it was.
pub(super) fn of_old(schema: &KeySchema, places: &[usize], old: Old<'_>) -> Read {
    let values = pick(places, old.tuple());
    match old {
        // Columns outside of the replica identity read as NULL, so a NULL tells nothing.
        Old::Key(_) if values.contains(&Some(Value::Null)) => Read::Unknown,
        _ => read(schema, places, values),
    }
}

/// The key of the row as it is now. What was not sent because it did not change is in the old row, if anywhere.
pub(super) fn of_new(schema: &KeySchema, places: &[usize], new: Tuple<'_>, old: Option<Old<'_>>) -> Read {
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

/// `places` are the key columns' places among the row's columns, in the key's order.
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
            // Equal to nothing, so no read finds it by this key.
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

/// None when the text is none of that type: no URL names such a row.
fn part(ty: KeyType, text: &[u8]) -> Option<Part<'_>> {
    let text = std::str::from_utf8(text).ok()?;
    match ty {
        KeyType::Integer => text.parse().ok().map(Part::Integer),
        KeyType::Text(_) => Some(Part::Text(text)),
        KeyType::Uuid => {
            let plain: String = text.chars().filter(|c| *c != '-').collect();
            hex(&plain).map(Part::Bytes)
        }
        // No column is of that type.
        KeyType::ObjectId => None,
        KeyType::Bytes => hex(text.strip_prefix("\\x")?).map(Part::Bytes),
    }
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    let digit = |b: u8| char::from(b).to_digit(16);
    // Two hexadecimal digits fit a byte.
    pairs.iter().map(|[high, low]| Some((digit(*high)? * 16 + digit(*low)?) as u8)).collect()
}
