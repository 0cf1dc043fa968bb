//! A row as JSON, written straight into bytes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hotrow_cache::key::KeyType;
use rusqlite::Row;
use rusqlite::types::ValueRef;

use super::inspect::Served;

/// Largest record in bytes as JSON. A larger one is not served; SQLite itself allows values of up to 1 GB.
pub const BODY_BYTES_MAX: usize = 16 << 20;

/// A column on its way into JSON.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    /// `"name":`, escaped once.
    label: Box<[u8]>,
    blob: BlobForm,
}

/// How a BLOB is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlobForm {
    Base64,
    /// Key columns are served in the form in which an id names them.
    Uuid,
    Hex,
}

impl Field {
    pub(crate) fn new(column: &Served) -> Self {
        let mut label = Vec::new();
        write_text(&mut label, column.name.as_bytes());
        label.push(b':');
        let blob = match column.key {
            Some(KeyType::Uuid) => BlobForm::Uuid,
            Some(KeyType::Bytes) => BlobForm::Hex,
            Some(KeyType::Integer | KeyType::Text(_)) | None => BlobForm::Base64,
        };
        Self { label: label.into(), blob }
    }
}

/// The record would be larger than [`BODY_BYTES_MAX`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

/// Writes the columns from `first` on as one object.
///
/// # Errors
/// [`TooLarge`]; an error of the driver means that the statement does not have these columns.
pub(crate) fn row(fields: &[Field], row: &Row<'_>, first: usize) -> rusqlite::Result<Result<Vec<u8>, TooLarge>> {
    let mut out = Vec::with_capacity(256);
    out.push(b'{');
    for (i, field) in fields.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        out.extend_from_slice(&field.label);
        let value = row.get_ref(first + i)?;
        let bytes = match value {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len(),
            _ => 0,
        };
        // Before writing, so that a huge value is not even copied; JSON is never shorter than it.
        if out.len() + bytes > BODY_BYTES_MAX {
            return Ok(Err(TooLarge));
        }
        write_value(&mut out, value, field.blob);
    }
    out.push(b'}');
    // A query's records are all held at once before any is taken over.
    out.shrink_to_fit();
    Ok(if out.len() > BODY_BYTES_MAX { Err(TooLarge) } else { Ok(out) })
}

fn write_value(out: &mut Vec<u8>, value: ValueRef<'_>, blob: BlobForm) {
    match (value, blob) {
        (ValueRef::Null, _) => out.extend_from_slice(b"null"),
        (ValueRef::Integer(i), _) => out.extend_from_slice(itoa::Buffer::new().format(i).as_bytes()),
        (ValueRef::Real(r), _) => write_real(out, r),
        (ValueRef::Text(bytes), _) => write_text(out, bytes),
        (ValueRef::Blob(bytes), BlobForm::Uuid) if bytes.len() == 16 => write_uuid(out, bytes),
        (ValueRef::Blob(bytes), BlobForm::Hex) => {
            out.push(b'"');
            bytes.iter().for_each(|b| push_hex(out, *b));
            out.push(b'"');
        }
        (ValueRef::Blob(bytes), _) => write_base64(out, bytes),
    }
}

/// The shortest decimal that reads back as the same number, always with a point or an exponent, so that it stays a
/// floating-point number. JSON has no infinities; SQLite stores no NaN.
fn write_real(out: &mut Vec<u8>, real: f64) {
    use std::io::Write as _;
    if real.is_finite() {
        // Writing to a Vec cannot fail.
        let _ = write!(out, "{real:?}");
    } else if real.is_nan() {
        out.extend_from_slice(b"\"NaN\"");
    } else if real > 0.0 {
        out.extend_from_slice(b"\"Infinity\"");
    } else {
        out.extend_from_slice(b"\"-Infinity\"");
    }
}

/// Writes a JSON string; what is not UTF-8 becomes U+FFFD.
fn write_text(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    // Checking a whole text is much faster than looking for its bad places.
    match std::str::from_utf8(bytes) {
        Ok(text) => write_escaped(out, text.as_bytes()),
        Err(_) => {
            for chunk in bytes.utf8_chunks() {
                write_escaped(out, chunk.valid().as_bytes());
                if !chunk.invalid().is_empty() {
                    out.extend_from_slice("\u{fffd}".as_bytes());
                }
            }
        }
    }
    out.push(b'"');
}

fn write_escaped(out: &mut Vec<u8>, text: &[u8]) {
    let mut plain = 0;
    for (i, byte) in text.iter().enumerate() {
        if *byte >= 0x20 && *byte != b'"' && *byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&text[plain..i]);
        plain = i + 1;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            _ => {
                out.extend_from_slice(b"\\u00");
                push_hex(out, *byte);
            }
        }
    }
    out.extend_from_slice(&text[plain..]);
}

fn write_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    // The space is exactly what base64 with padding takes.
    let written = STANDARD.encode_slice(bytes, &mut out[start..]).unwrap_or(0);
    out.truncate(start + written);
    out.push(b'"');
}

fn write_uuid(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    for (i, byte) in bytes.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            out.push(b'-');
        }
        push_hex(out, *byte);
    }
    out.push(b'"');
}

fn push_hex(out: &mut Vec<u8>, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.push(DIGITS[usize::from(byte >> 4)]);
    out.push(DIGITS[usize::from(byte & 15)]);
}

#[cfg(test)]
mod tests;
