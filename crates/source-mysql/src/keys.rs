//! Conversions of key values between ids, statements and the log, so that all three identify the
//! same row.
//!
//! Most text collations treat `'A'` and `'a'`, or `'e'` and `'é'`, as equal, each by its own
//! tables. A key is therefore always the text as the row spells it, byte for byte. The database
//! finds a row by every spelling that its collation treats as equal. Only an answer for the row's
//! own spelling may be cached, because the log contains only that spelling when the row changes.
//! See [`Spelling`].

mod latin1;

use std::borrow::Cow;
use std::fmt::Write as _;

use hotrow_types::key::{Collation, Key, KeyPart, KeySchema, KeyType};
use mysql_async::Value;

/// Column of the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyColumn {
    pub(crate) name: String,
    /// Index in the table's columns, from 0.
    pub(crate) position: usize,
    /// Storage type in the database.
    pub(crate) stored: KeyStored,
    /// Type in ids.
    pub(crate) ty: KeyType,
    pub(crate) spelling: Spelling,
}

/// Storage type of a key column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyStored {
    /// Integer of 1, 2, 3, 4 or 8 bytes.
    Integer {
        bytes: u8,
        unsigned: bool,
    },
    /// VARCHAR, or CHAR if `padded`, whose trailing blanks are not part of the value.
    Text {
        charset: Charset,
        padded: bool,
    },
    /// BINARY of this many bytes. The log omits trailing zeros.
    Binary {
        bytes: u16,
    },
    VarBinary,
    /// UUID type of MariaDB.
    Uuid,
}

/// Supported character sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Charset {
    Utf8mb4,
    /// At most three bytes per character.
    Utf8mb3,
    /// latin1 of the servers, which is Windows code page 1252.
    Latin1,
    Ascii,
}

/// Number of spellings, as bytes, of equal keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// One, after the normalisation by [`KeyType`].
    One,
    /// Several, which the collation treats as equal.
    Many,
}

/// Key of a row.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LogKey {
    Key(Key),
    /// No id can address it, so no answer is cached for it: NULL in a unique index, a text with a
    /// NUL byte, or a key that is too long.
    Unaddressable,
    /// The values do not match the table's columns as inspected.
    Mismatch,
}

/// Value of one key column in the form of the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    Integer(i64),
    /// BIGINT UNSIGNED, big-endian.
    Unsigned([u8; 8]),
    Text(Cow<'a, str>),
    Bytes(Cow<'a, [u8]>),
    /// NULL in a unique index, which no id can address.
    Unaddressable,
}

/// Returns the key of a row image of the log. `values` are those of the key's columns, in their
/// order.
pub(crate) fn of_log(columns: &[KeyColumn], schema: &KeySchema, values: &[&Value]) -> LogKey {
    if values.len() != columns.len() {
        return LogKey::Mismatch;
    }
    let parts: Option<Vec<Part<'_>>> =
        columns.iter().zip(values).map(|(k, value)| k.stored.of_log(value)).collect();
    parts.map_or(LogKey::Mismatch, |parts| key(schema, &parts))
}

/// Returns the key of an answer's row. `values` are those of the key's columns in the text
/// protocol.
pub(crate) fn of_answer(columns: &[KeyColumn], schema: &KeySchema, values: &[&Value]) -> LogKey {
    let parts: Option<Vec<Part<'_>>> =
        columns.iter().zip(values).map(|(k, v)| k.stored.of_answer(v)).collect();
    parts.map_or(LogKey::Mismatch, |parts| key(schema, &parts))
}

fn key(schema: &KeySchema, parts: &[Part<'_>]) -> LogKey {
    let mut key_parts = Vec::with_capacity(parts.len());
    for part in parts {
        key_parts.push(match part {
            Part::Integer(v) => KeyPart::Integer(*v),
            Part::Unsigned(bytes) => KeyPart::Bytes(bytes),
            Part::Text(text) => KeyPart::Text(text),
            Part::Bytes(bytes) => KeyPart::Bytes(bytes),
            Part::Unaddressable => return LogKey::Unaddressable,
        });
    }
    schema.key(&key_parts).map_or(LogKey::Unaddressable, LogKey::Key)
}

impl KeyStored {
    /// Converts a value of a row image. Without signedness in the log
    /// (`binlog_row_metadata=NO_LOG`) every integer arrives as signed, and the column's type
    /// decides.
    fn of_log<'a>(&self, value: &'a Value) -> Option<Part<'a>> {
        Some(match (self, value) {
            (_, Value::NULL) => Part::Unaddressable,
            (Self::Integer { bytes, unsigned }, Value::Int(v)) => integer(*bytes, *unsigned, *v),
            (Self::Integer { bytes, unsigned }, Value::UInt(v)) => {
                integer(*bytes, *unsigned, v.cast_signed())
            }
            (Self::Text { charset, padded }, Value::Bytes(raw)) => {
                let text = charset.decode(raw)?;
                Part::Text(if *padded { trimmed(text) } else { text })
            }
            (Self::Binary { bytes }, Value::Bytes(raw)) if raw.len() <= usize::from(*bytes) => {
                let mut whole = raw.clone();
                whole.resize(usize::from(*bytes), 0);
                Part::Bytes(whole.into())
            }
            (Self::VarBinary, Value::Bytes(raw)) => Part::Bytes(raw.into()),
            (Self::Uuid, Value::Bytes(raw)) if raw.len() <= 16 => {
                // Bytes of the UUID's text form, independent of their order in the record, without
                // trailing zeros.
                let mut whole = raw.clone();
                whole.resize(16, 0);
                Part::Bytes(whole.into())
            }
            _ => return None,
        })
    }

    /// Converts a value of the text protocol, in utf8mb4.
    fn of_answer<'a>(&self, value: &'a Value) -> Option<Part<'a>> {
        let Value::Bytes(raw) = value else { return None };
        Some(match self {
            Self::Integer { bytes: 8, unsigned: true } => {
                let value: u64 = std::str::from_utf8(raw).ok()?.parse().ok()?;
                Part::Unsigned(value.to_be_bytes())
            }
            Self::Integer { .. } => Part::Integer(std::str::from_utf8(raw).ok()?.parse().ok()?),
            Self::Text { .. } => Part::Text(std::str::from_utf8(raw).ok()?.into()),
            Self::Binary { .. } | Self::VarBinary => Part::Bytes(raw.into()),
            Self::Uuid => Part::Bytes(uuid_of_text(raw)?.to_vec().into()),
        })
    }

    /// Writes a key's part as a literal in the column's own character set, so that the index
    /// applies. Returns false and writes nothing if the column cannot hold the value: no such row
    /// exists.
    pub(crate) fn write_literal(&self, part: KeyPart<'_>, sql: &mut String) -> bool {
        match (self, part) {
            (Self::Integer { bytes, unsigned }, KeyPart::Integer(v)) => {
                if !holds(*bytes, *unsigned, v) {
                    return false;
                }
                // Writing to a String cannot fail.
                let _ = write!(sql, "{v}");
            }
            (Self::Integer { bytes: 8, unsigned: true }, KeyPart::Bytes(raw)) => {
                let Ok(value) = <[u8; 8]>::try_from(raw).map(u64::from_be_bytes) else {
                    return false;
                };
                let _ = write!(sql, "{value}");
            }
            (Self::Text { charset, .. }, KeyPart::Text(text)) => {
                let Some(raw) = charset.encode(text) else { return false };
                sql.push_str(charset.introducer());
                write_hex(&raw, sql);
            }
            (Self::Binary { bytes }, KeyPart::Bytes(raw)) if raw.len() != usize::from(*bytes) => {
                return false;
            }
            (Self::Binary { .. } | Self::VarBinary, KeyPart::Bytes(raw)) => write_hex(raw, sql),
            (Self::Uuid, KeyPart::Bytes(raw)) => {
                let _ = write!(sql, "'");
                raw.iter().for_each(|b| _ = write!(sql, "{b:02x}"));
                let _ = write!(sql, "'");
            }
            _ => return false,
        }
        true
    }
}

/// Returns the key type and spelling of a text column by its collation.
///
/// Only `…_bin` collations compare by characters alone. They ignore trailing blanks unless the name
/// says otherwise. Source: MariaDB documentation, "NO PAD Collations"; MySQL 8.0 reference manual,
/// section 12.10.1.
pub(crate) fn text_type(collation: &str) -> (KeyType, Spelling) {
    if !collation.ends_with("_bin") {
        return (KeyType::Text(Collation::Binary), Spelling::Many);
    }
    let no_pad = collation.ends_with("_nopad_bin") || collation.ends_with("_0900_bin");
    (KeyType::Text(if no_pad { Collation::Binary } else { Collation::RightTrim }), Spelling::One)
}

impl Charset {
    /// Returns the character set by the server's name. None if it is not supported.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "utf8mb4" => Self::Utf8mb4,
            "utf8mb3" | "utf8" => Self::Utf8mb3,
            "latin1" => Self::Latin1,
            "ascii" => Self::Ascii,
            _ => return None,
        })
    }

    fn introducer(self) -> &'static str {
        match self {
            Self::Utf8mb4 => "_utf8mb4 ",
            Self::Utf8mb3 => "_utf8mb3 ",
            Self::Latin1 => "_latin1 ",
            Self::Ascii => "_ascii ",
        }
    }

    fn decode(self, raw: &[u8]) -> Option<Cow<'_, str>> {
        match self {
            Self::Latin1 => Some(latin1::decode(raw)),
            Self::Utf8mb4 | Self::Utf8mb3 | Self::Ascii => {
                std::str::from_utf8(raw).ok().map(Cow::Borrowed)
            }
        }
    }

    fn encode(self, text: &str) -> Option<Cow<'_, [u8]>> {
        match self {
            Self::Utf8mb4 => Some(text.as_bytes().into()),
            Self::Utf8mb3 => {
                text.chars().all(|c| c.len_utf8() <= 3).then(|| text.as_bytes().into())
            }
            Self::Latin1 => latin1::encode(text),
            Self::Ascii => text.is_ascii().then(|| text.as_bytes().into()),
        }
    }
}

/// Interprets `bytes` bytes of an integer. Less than eight bytes always fit a signed integer.
fn integer(bytes: u8, unsigned: bool, v: i64) -> Part<'static> {
    let shift = 64 - 8 * u32::from(bytes.clamp(1, 8));
    if !unsigned {
        return Part::Integer((v << shift) >> shift);
    }
    let v = (v.cast_unsigned() << shift) >> shift;
    if shift == 0 { Part::Unsigned(v.to_be_bytes()) } else { Part::Integer(v.cast_signed()) }
}

fn holds(bytes: u8, unsigned: bool, v: i64) -> bool {
    integer(bytes, unsigned, v) == Part::Integer(v)
}

fn trimmed(text: Cow<'_, str>) -> Cow<'_, str> {
    match text {
        Cow::Borrowed(text) => text.trim_end_matches(' ').into(),
        Cow::Owned(text) => text.trim_end_matches(' ').to_owned().into(),
    }
}

fn write_hex(raw: &[u8], sql: &mut String) {
    sql.push_str("x'");
    for byte in raw {
        let _ = write!(sql, "{byte:02x}");
    }
    sql.push('\'');
}

/// Parses 36 characters with hyphens.
fn uuid_of_text(text: &[u8]) -> Option<[u8; 16]> {
    let mut digits = text.iter().filter(|b| **b != b'-').map(|b| char::from(*b).to_digit(16));
    let mut uuid = [0; 16];
    for byte in &mut uuid {
        // Two hexadecimal digits fit a byte.
        *byte = (digits.next()?? * 16 + digits.next()??) as u8;
    }
    digits.next().is_none().then_some(uuid)
}

#[cfg(test)]
mod tests;
