//! JSON writers shared by all engines; they append to a byte buffer.
//!
//! Reference `databases`: # Values and errors of databases
//!
//! How each type of column is shown as JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::Row;

/// Largest record in bytes as JSON. Larger records are not served; databases themselves allow
/// values of up to 1 GB.
pub const BODY_BYTES_MAX: usize = 16 << 20;

/// Reason that a record is not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonError {
    /// The record would be larger than [`BODY_BYTES_MAX`].
    TooLarge,
    /// The system has no memory for the record.
    NoMemory,
    /// A value does not have its column's type: the table has changed since its inspection.
    Shape,
}

/// Returns `"name":`, the label of a column, so that it is escaped once.
pub fn label(name: &str) -> Box<[u8]> {
    let mut label = Vec::new();
    write_text(&mut label, name.as_bytes());
    label.push(b':');
    label.into()
}

/// Label of a column that stands before the object ([`CollectionConfig::tenant`]). No column has
/// it, because the label of an empty name has quotes.
///
/// [`CollectionConfig::tenant`]: crate::spec::CollectionConfig::tenant
pub const BEFORE_OBJECT: &[u8] = b"";

/// Writes one object: each label, and after it what `write` appends for the value of that index. A
/// first label [`BEFORE_OBJECT`] puts its value before the object.
///
/// # Errors
/// The error of `write`, and [`JsonError::TooLarge`].
pub fn object<'a>(
    labels: impl Iterator<Item = &'a [u8]>,
    mut write: impl FnMut(&mut Vec<u8>, usize) -> Result<(), JsonError>,
) -> Result<Vec<u8>, JsonError> {
    let mut out = Vec::with_capacity(256);
    let mut labels = labels.enumerate().peekable();
    if labels.next_if(|(_, label)| *label == BEFORE_OBJECT).is_some() {
        write(&mut out, 0)?;
    }
    out.push(b'{');
    let mut is_first = true;
    for (i, label) in labels {
        if !std::mem::take(&mut is_first) {
            out.push(b',');
        }
        out.extend_from_slice(label);
        write(&mut out, i)?;
    }
    out.push(b'}');
    // All records of a query are in memory at once.
    out.shrink_to_fit();
    if out.len() > BODY_BYTES_MAX { Err(JsonError::TooLarge) } else { Ok(out) }
}

/// Appends a member with embedded rows to a record: `,"name":[…]`, in place of its closing brace.
/// `next` returns the rows, each as an object.
///
/// # Errors
/// The error of `next`, and [`JsonError::TooLarge`].
pub fn with_rows(
    record: &mut Vec<u8>,
    label: &[u8],
    mut next: impl FnMut() -> Result<Option<Vec<u8>>, JsonError>,
) -> Result<(), JsonError> {
    let closing = record.pop();
    debug_assert_eq!(closing, Some(b'}'));
    // A collection serves at least one column, so there is a member before.
    record.push(b',');
    record.extend_from_slice(label);
    record.push(b'[');
    let mut separator: &[u8] = b"";
    while let Some(row) = next()? {
        make_room(record, row.len())?;
        record.extend_from_slice(separator);
        record.extend_from_slice(&row);
        separator = b",";
    }
    record.extend_from_slice(b"]}");
    if record.len() > BODY_BYTES_MAX { Err(JsonError::TooLarge) } else { Ok(()) }
}

/// Returns a record as a row of an answer. A record that is too large is an answer too.
///
/// # Errors
/// [`JsonError::Shape`].
pub fn into_row(record: Result<Vec<u8>, JsonError>) -> Result<Row, JsonError> {
    match record {
        Ok(json) => Ok(Row::Found(json)),
        Err(JsonError::TooLarge) => {
            Ok(Row::Unreadable(format!("the record is larger than {BODY_BYTES_MAX} bytes as JSON")))
        }
        Err(JsonError::NoMemory) => Ok(Row::NoRoom),
        Err(JsonError::Shape) => Err(JsonError::Shape),
    }
}

/// Reserves memory for a value of `bytes` before it is written, so that a huge value is not copied;
/// JSON never makes a value shorter. Large values are the likely cause of a failed allocation,
/// which must end one answer and not the process.
///
/// # Errors
/// [`JsonError::TooLarge`] and [`JsonError::NoMemory`].
pub fn make_room(out: &mut Vec<u8>, bytes: usize) -> Result<(), JsonError> {
    if out.len().saturating_add(bytes) > BODY_BYTES_MAX {
        return Err(JsonError::TooLarge);
    }
    out.try_reserve(bytes).map_err(|_| JsonError::NoMemory)
}

/// Writes the shortest decimal that parses as the same number. It always has a point or an
/// exponent, so that it stays a floating-point number. JSON has no NaN and no infinities: they
/// become strings.
pub fn write_real(out: &mut Vec<u8>, real: f64) {
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

/// Writes a JSON string; bytes that are not UTF-8 become U+FFFD.
pub fn write_text(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    // Validating the whole text first is much faster than searching for invalid bytes.
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

/// Appends bytes as a JSON string in Base64 (RFC 4648, section 4).
pub fn write_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    // The reserved space is exactly the length of base64 with padding.
    let written = STANDARD.encode_slice(bytes, &mut out[start..]).unwrap_or(0);
    out.truncate(start + written);
    out.push(b'"');
}

/// Appends 16 bytes as a JSON string in the form of RFC 9562.
pub fn write_uuid(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    for (i, byte) in bytes.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            out.push(b'-');
        }
        push_hex(out, *byte);
    }
    out.push(b'"');
}

/// Appends a byte as two hexadecimal digits.
pub fn push_hex(out: &mut Vec<u8>, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.push(DIGITS[usize::from(byte >> 4)]);
    out.push(DIGITS[usize::from(byte & 15)]);
}

/// Bytes of JSON written between two yields: some tenths of a millisecond of work.
const BYTES_PER_TURN: usize = 128 << 10;

/// Limit on the work of one task: a counter of written bytes that yields to the thread's other
/// tasks after each portion.
#[derive(Debug, Default)]
pub struct Pace {
    bytes: usize,
}

impl Pace {
    /// Counts `bytes` as written, and yields after [`BYTES_PER_TURN`].
    pub async fn wrote(&mut self, bytes: usize) {
        self.bytes += bytes;
        if self.bytes >= BYTES_PER_TURN {
            self.bytes = 0;
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn a_tenant_stands_before_the_object() {
        let written = |labels: &[&[u8]]| {
            let value = |out: &mut Vec<u8>, i: usize| {
                out.extend_from_slice(i.to_string().as_bytes());
                Ok(())
            };
            object(labels.iter().copied(), value)
                .map(|json| String::from_utf8(json).expect("ASCII"))
        };
        let (a, b) = (label("a"), label(""));
        assert_eq!(written(&[]), Ok("{}".to_owned()));
        assert_eq!(written(&[&a, &b]), Ok("{\"a\":0,\"\":1}".to_owned()));
        assert_eq!(written(&[BEFORE_OBJECT, &a, &b]), Ok("0{\"a\":1,\"\":2}".to_owned()));
        assert_eq!(written(&[BEFORE_OBJECT]), Ok("0{}".to_owned()));
    }

    #[test]
    fn a_task_yields_once_per_so_many_bytes() {
        let mut pace = Pace::default();
        let mut yields = |bytes| {
            let mut wrote = pin!(pace.wrote(bytes));
            // Outside a runtime a yield wakes at once; the test needs only that the future was
            // pending.
            wrote.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Pending
        };
        assert_eq!([yields(BYTES_PER_TURN - 1), yields(1), yields(1)], [false, true, false]);
        assert!(yields(10 * BYTES_PER_TURN));
    }
}
