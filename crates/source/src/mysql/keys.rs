//! Key columns: how one value is written in an id, in a statement and in the log, so that all three name the same row.
//!
//! Texts are the hard part: most collations take `'A'` and `'a'`, or `'e'` and `'é'`, for equal, each by tables of its own.
//! A key is therefore always the text as the row spells it, byte for byte. The database finds a row by any spelling that
//! its collation takes for equal; only an answer found under the row's own spelling may be kept, because only that
//! spelling is what the log tells when the row changes. See [`Spelling`].

mod latin1;

use std::borrow::Cow;
use std::fmt::Write as _;

use hotrow_cache::key::{Collation, Key, KeyPart, KeySchema, KeyType};
use mysql_async::Value;

use super::inspect::{KeyColumn, Table};

/// How the database stores a column that ids can be of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyStored {
    /// 1, 2, 3, 4 or 8 bytes.
    Integer {
        bytes: u8,
        unsigned: bool,
    },
    /// VARCHAR, or CHAR (`padded`), whose trailing blanks are no part of the value.
    Text {
        charset: Charset,
        padded: bool,
    },
    /// BINARY of that many bytes; the log leaves trailing zeros out.
    Binary {
        bytes: u16,
    },
    VarBinary,
    /// MariaDB's own type.
    Uuid,
}

/// Character sets whose texts we can tell from their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Charset {
    Utf8mb4,
    /// At most three bytes per character.
    Utf8mb3,
    /// What the servers call latin1: Windows code page 1252.
    Latin1,
    Ascii,
}

/// Whether equal keys of a column always are the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// As [`KeyType`] normalises them.
    One,
    /// The collation takes several for equal.
    Many,
}

/// What a row of the log is as a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LogKey {
    Key(Key),
    /// No id can name it, so no answer is kept under it (an unsigned integer beyond 63 bits, a text with NUL, too long).
    Unaskable,
    /// The values are not of the table's columns as they were looked up.
    Mismatch,
}

/// One column's value, as the cache wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    Integer(i64),
    Text(Cow<'a, str>),
    Bytes(Cow<'a, [u8]>),
    /// Beyond what an id can name.
    Unaskable,
}

/// The key of a row image of the log; `values` are those of [`Table::key`], in its order.
pub(crate) fn of_log(table: &Table, schema: &KeySchema, values: &[&Value]) -> LogKey {
    if values.len() != table.key.len() {
        return LogKey::Mismatch;
    }
    let parts: Option<Vec<Part<'_>>> = table.key.iter().zip(values).map(|(k, value)| k.stored.of_log(value)).collect();
    parts.map_or(LogKey::Mismatch, |parts| key(schema, &parts))
}

/// The key of a row of an answer; `values` are those of the key's columns in the text protocol.
pub(crate) fn of_answer(columns: &[KeyColumn], schema: &KeySchema, values: &[&Value]) -> LogKey {
    let parts: Option<Vec<Part<'_>>> = columns.iter().zip(values).map(|(k, v)| k.stored.of_answer(v)).collect();
    parts.map_or(LogKey::Mismatch, |parts| key(schema, &parts))
}

fn key(schema: &KeySchema, parts: &[Part<'_>]) -> LogKey {
    let mut of_cache = Vec::with_capacity(parts.len());
    for part in parts {
        of_cache.push(match part {
            Part::Integer(v) => KeyPart::Integer(*v),
            Part::Text(text) => KeyPart::Text(text),
            Part::Bytes(bytes) => KeyPart::Bytes(bytes),
            Part::Unaskable => return LogKey::Unaskable,
        });
    }
    schema.key(&of_cache).map_or(LogKey::Unaskable, LogKey::Key)
}

impl KeyStored {
    /// A value of a row image. Without the log's own notes on signedness (`binlog_row_metadata=NO_LOG`) every integer comes
    /// as signed: the column's type tells what its bits mean.
    fn of_log<'a>(&self, value: &'a Value) -> Option<Part<'a>> {
        Some(match (self, value) {
            (Self::Integer { bytes, unsigned }, Value::Int(v)) => integer(*bytes, *unsigned, *v),
            (Self::Integer { bytes, unsigned }, Value::UInt(v)) => integer(*bytes, *unsigned, v.cast_signed()),
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
                // The bytes of its text, whatever order the record has them in; without trailing zeros.
                let mut whole = raw.clone();
                whole.resize(16, 0);
                Part::Bytes(whole.into())
            }
            _ => return None,
        })
    }

    /// A value of the text protocol, in utf8mb4.
    fn of_answer<'a>(&self, value: &'a Value) -> Option<Part<'a>> {
        let Value::Bytes(raw) = value else { return None };
        Some(match self {
            Self::Integer { .. } => {
                let text = std::str::from_utf8(raw).ok()?;
                match text.parse::<i64>() {
                    Ok(v) => Part::Integer(v),
                    Err(_) => text.parse::<u64>().ok().map(|_| Part::Unaskable)?,
                }
            }
            Self::Text { .. } => Part::Text(std::str::from_utf8(raw).ok()?.into()),
            Self::Binary { .. } | Self::VarBinary => Part::Bytes(raw.into()),
            Self::Uuid => Part::Bytes(uuid_of_text(raw)?.to_vec().into()),
        })
    }

    /// Writes a key's part as a literal that the column's index can be searched by, in the column's own character set.
    /// False, and nothing written, where the column cannot hold such a value: there is no such row.
    pub(crate) fn write_literal(&self, part: KeyPart<'_>, sql: &mut String) -> bool {
        match (self, part) {
            (Self::Integer { bytes, unsigned }, KeyPart::Integer(v)) => {
                if !holds(*bytes, *unsigned, v) {
                    return false;
                }
                // Writing to a String cannot fail.
                let _ = write!(sql, "{v}");
            }
            (Self::Text { charset, .. }, KeyPart::Text(text)) => {
                let Some(raw) = charset.encode(text) else { return false };
                sql.push_str(charset.introducer());
                write_hex(&raw, sql);
            }
            (Self::Binary { bytes }, KeyPart::Bytes(raw)) if raw.len() != usize::from(*bytes) => return false,
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

/// How a text column with this collation takes texts for equal: None for a collation of another character set.
///
/// Only `…_bin` compares by the characters alone; it passes trailing blanks over unless its name says otherwise.
/// Source: MariaDB documentation, "NO PAD Collations"; MySQL 8.0 reference manual, section 12.10.1.
pub(crate) fn text_type(collation: &str) -> (KeyType, Spelling) {
    if !collation.ends_with("_bin") {
        return (KeyType::Text(Collation::Binary), Spelling::Many);
    }
    let no_pad = collation.ends_with("_nopad_bin") || collation.ends_with("_0900_bin");
    (KeyType::Text(if no_pad { Collation::Binary } else { Collation::RightTrim }), Spelling::One)
}

impl Charset {
    /// By the server's name; None for one that we cannot read.
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
            Self::Utf8mb4 | Self::Utf8mb3 | Self::Ascii => std::str::from_utf8(raw).ok().map(Cow::Borrowed),
        }
    }

    fn encode(self, text: &str) -> Option<Cow<'_, [u8]>> {
        match self {
            Self::Utf8mb4 => Some(text.as_bytes().into()),
            Self::Utf8mb3 => text.chars().all(|c| c.len_utf8() <= 3).then(|| text.as_bytes().into()),
            Self::Latin1 => latin1::encode(text),
            Self::Ascii => text.is_ascii().then(|| text.as_bytes().into()),
        }
    }
}

/// What `bytes` bytes of an integer mean.
fn integer(bytes: u8, unsigned: bool, v: i64) -> Part<'static> {
    let above = 64 - 8 * u32::from(bytes.clamp(1, 8));
    if !unsigned {
        return Part::Integer((v << above) >> above);
    }
    let v = (v.cast_unsigned() << above) >> above;
    i64::try_from(v).map_or(Part::Unaskable, Part::Integer)
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

/// 36 characters with hyphens.
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
