//! Rows of the text protocol as JSON, written directly to bytes. docs/mysql.md lists the forms.
//!
//! The session's settings make texts UTF-8 and times UTC.
//!
//! Reference `databases`: Values of MySQL and MariaDB
//!
//! Generated columns are served, invisible ones only where `columns` names them.
//!
//! - integers, `YEAR`, `BIT`: number, without the zeros of ZEROFILL; `BOOLEAN` is 0 or 1.
//! - `DECIMAL`: number as stored. `FLOAT`, `DOUBLE`: shortest exact number.
//! - texts, `UUID`, `INET4`, `INET6`, `ENUM`, `SET`: text; a SET's members with commas.
//! - `DATE`, `TIME`: `"2026-11-20"`, `"-22:35:09.5"`.
//! - `DATETIME`, `TIMESTAMP`: `"2026-11-20T22:35:09.5"`, `"2026-11-20T22:35:09.5Z"`.
//! - zero dates: `"0000-00-00"`, `"0000-00-00T00:00:00"`.
//! - `BINARY`, `VARBINARY`, `BLOB`, `VECTOR`: base64; in a key as its id.
//! - `JSON`: as stored; in MariaDB a string if it is no JSON.
//! - geometries: base64 of `ST_AsBinary`.

use mysql_async::Column;
use mysql_async::consts::ColumnType;

pub(crate) use hotrow_source::json::JsonError;
use hotrow_source::json::{
    self, BEFORE_OBJECT, label, make_room, push_hex, write_base64, write_real, write_text,
    write_uuid,
};

mod forms;

/// Character set number of the servers for bytes.
const BINARY_CHARSET: u16 = 63;

/// Parser of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    /// Any integer, and YEAR.
    Integer,
    Decimal,
    /// Number of single precision, sent as one of double precision.
    Float,
    Double,
    /// BIT, as an integer.
    Bit,
    Text,
    /// Server's text of a special type (UUID, INET6).
    Name,
    /// MySQL's JSON, embedded unchanged.
    Json,
    /// MariaDB's JSON, which is text with a check constraint: embedded if it is valid.
    CheckedJson,
    /// Bytes in base64.
    Binary,
    /// Bytes of a key, in the form of ids.
    Hex,
    /// BINARY(16) of a key.
    Uuid,
    Date,
    DateTime,
    Timestamp,
    Time,
}

/// Column of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    /// `"name":`, escaped once.
    label: Box<[u8]>,
    scalar: Scalar,
}

type Written = Result<(), JsonError>;

impl Field {
    pub(crate) fn new(name: &str, scalar: Scalar) -> Self {
        Self { label: label(name), scalar }
    }

    /// Creates the field of the tenant.
    pub(crate) fn before_object(scalar: Scalar) -> Self {
        Self { label: BEFORE_OBJECT.into(), scalar }
    }

    /// Returns true if an answer's column matches the inspected type.
    pub(crate) fn fits(&self, column: &Column) -> bool {
        use ColumnType as T;
        let is_bytes = column.character_set() == BINARY_CHARSET;
        let ty = column.column_type();
        let long = matches!(
            ty,
            T::MYSQL_TYPE_STRING
                | T::MYSQL_TYPE_VAR_STRING
                | T::MYSQL_TYPE_VARCHAR
                | T::MYSQL_TYPE_BLOB
                | T::MYSQL_TYPE_TINY_BLOB
                | T::MYSQL_TYPE_MEDIUM_BLOB
                | T::MYSQL_TYPE_LONG_BLOB
                | T::MYSQL_TYPE_ENUM
                | T::MYSQL_TYPE_SET
        );
        match self.scalar {
            Scalar::Integer => matches!(
                ty,
                T::MYSQL_TYPE_TINY
                    | T::MYSQL_TYPE_SHORT
                    | T::MYSQL_TYPE_INT24
                    | T::MYSQL_TYPE_LONG
                    | T::MYSQL_TYPE_LONGLONG
                    | T::MYSQL_TYPE_YEAR
            ),
            Scalar::Decimal => matches!(ty, T::MYSQL_TYPE_NEWDECIMAL | T::MYSQL_TYPE_DECIMAL),
            Scalar::Float | Scalar::Double => ty == T::MYSQL_TYPE_DOUBLE,
            Scalar::Bit => ty == T::MYSQL_TYPE_BIT,
            Scalar::Text | Scalar::CheckedJson => long && !is_bytes,
            Scalar::Name => long,
            Scalar::Json => ty == T::MYSQL_TYPE_JSON,
            // Vectors and geometries have separate types.
            Scalar::Binary => {
                is_bytes && (long || ty == T::MYSQL_TYPE_GEOMETRY || ty == T::MYSQL_TYPE_VECTOR)
            }
            Scalar::Hex | Scalar::Uuid => long && is_bytes,
            Scalar::Date => matches!(ty, T::MYSQL_TYPE_DATE | T::MYSQL_TYPE_NEWDATE),
            Scalar::DateTime => ty == T::MYSQL_TYPE_DATETIME,
            Scalar::Timestamp => ty == T::MYSQL_TYPE_TIMESTAMP,
            Scalar::Time => ty == T::MYSQL_TYPE_TIME,
        }
    }
}

/// Writes fields with their values as one object. None is NULL.
///
/// # Errors
/// See [`JsonError`].
pub(crate) fn object<'a>(
    fields: &[Field],
    mut values: impl FnMut(usize) -> Result<Option<&'a [u8]>, JsonError>,
) -> Result<Vec<u8>, JsonError> {
    json::object(fields.iter().map(|field| &*field.label), |out, i| {
        let Some(value) = values(i)? else {
            out.extend_from_slice(b"null");
            return Ok(());
        };
        make_room(out, value.len())?;
        write(out, fields[i].scalar, value)
    })
}

fn write(out: &mut Vec<u8>, scalar: Scalar, value: &[u8]) -> Written {
    match scalar {
        Scalar::Text | Scalar::Name => write_text(out, value),
        Scalar::Integer => write_number(out, value, Fraction::None)?,
        Scalar::Decimal => write_number(out, value, Fraction::Allowed)?,
        Scalar::Float => write_float(out, real(value)?),
        Scalar::Double => write_real(out, real(value)?),
        Scalar::Bit => {
            let mut bits = [0; 8];
            let from = bits.len().checked_sub(value.len()).ok_or(JsonError::Shape)?;
            bits[from..].copy_from_slice(value);
            out.extend_from_slice(itoa::Buffer::new().format(u64::from_be_bytes(bits)).as_bytes());
        }
        Scalar::Json => out.extend_from_slice(value),
        // The check can be off for a session, and the server accepts some texts that are not
        // standard JSON.
        Scalar::CheckedJson => match serde_json::from_slice::<serde::de::IgnoredAny>(value) {
            Ok(_) => out.extend_from_slice(value),
            Err(_) => write_text(out, value),
        },
        Scalar::Binary => write_base64(out, value),
        Scalar::Hex => quoted(out, |out| value.iter().for_each(|b| push_hex(out, *b))),
        Scalar::Uuid if value.len() == 16 => write_uuid(out, value),
        Scalar::Uuid => return Err(JsonError::Shape),
        Scalar::Date | Scalar::Time => write_time(out, value, "")?,
        Scalar::DateTime => write_time(out, value, "")?,
        Scalar::Timestamp => write_time(out, value, "Z")?,
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Fraction {
    None,
    Allowed,
}

/// Writes the server's digits without the leading zeros of ZEROFILL, which JSON does not allow.
fn write_number(out: &mut Vec<u8>, value: &[u8], fraction: Fraction) -> Written {
    let (sign, digits) =
        value.strip_prefix(b"-").map_or((&b""[..], value), |digits| (b"-", digits));
    let point = digits.iter().position(|b| *b == b'.').unwrap_or(digits.len());
    let (whole, rest) = digits.split_at(point);
    let is_number = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let rest_fits = match (fraction, rest.split_first()) {
        (_, None) => true,
        (Fraction::Allowed, Some((_, after))) => is_number(after),
        (Fraction::None, Some(_)) => false,
    };
    if !is_number(whole) || !rest_fits {
        return Err(JsonError::Shape);
    }
    let zeros = whole[..whole.len() - 1].iter().take_while(|b| **b == b'0').count();
    out.extend_from_slice(sign);
    out.extend_from_slice(&whole[zeros..]);
    out.extend_from_slice(rest);
    Ok(())
}

fn real(value: &[u8]) -> Result<f64, JsonError> {
    std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).ok_or(JsonError::Shape)
}

/// Writes the shortest decimal that parses to the same number of single precision.
fn write_float(out: &mut Vec<u8>, value: f64) {
    use std::io::Write as _;
    // Writing to a Vec cannot fail. Narrowing a number that the server widened is exact.
    let _ = write!(out, "{:?}", value as f32);
}

/// Writes `2026-11-20 22:35:09.500000` as `"2026-11-20T22:35:09.5"`. Dates and times beyond a day
/// stay as they are. A zero date is all zeros.
fn write_time(out: &mut Vec<u8>, value: &[u8], zone: &str) -> Written {
    if value.is_empty()
        || !value.iter().all(|b| b.is_ascii_digit() || matches!(b, b'-' | b':' | b'.' | b' '))
    {
        return Err(JsonError::Shape);
    }
    quoted(out, |out| {
        let trimmed = match value.contains(&b'.') {
            true => {
                let digits = value.iter().rposition(|b| *b != b'0').map_or(0, |last| last + 1);
                value[..digits].strip_suffix(b".").unwrap_or(&value[..digits])
            }
            false => value,
        };
        out.extend(trimmed.iter().map(|b| if *b == b' ' { b'T' } else { *b }));
        out.extend_from_slice(zone.as_bytes());
    });
    Ok(())
}

/// Writes a JSON string of characters that need no escape.
fn quoted(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(b'"');
    write(out);
    out.push(b'"');
}

#[cfg(test)]
mod tests;
