//! Scalar values as JSON.

use std::io::Write as _;

use hotrow_measure::calendar::{CivilDate, civil_date};
use mongodb::bson::Decimal128;

use super::super::bson::{BINARY_UUID, Timestamp, Value};
use hotrow_source::json::{push_hex, write_base64, write_real, write_text, write_uuid};

/// Writes the plain form. Values with parts are written by the caller.
pub(super) fn plain(out: &mut Vec<u8>, value: Value<'_>) {
    match value {
        Value::Double(v) => write_real(out, v),
        Value::Decimal128(bytes) => plain_decimal(out, bytes),
        Value::Date(ms) => quoted(out, |out| write_date(out, ms, Millis::Always)),
        Value::ObjectId(id) => quoted(out, |out| hex(out, id)),
        Value::Binary { subtype: BINARY_UUID, bytes } if bytes.len() == 16 => {
            write_uuid(out, bytes)
        }
        Value::Binary { bytes, .. } => write_base64(out, bytes),
        Value::Timestamp(t) => timestamp(out, t),
        Value::Regex { pattern, options } => {
            write_text(out, &[b"/", pattern, b"/", options].concat())
        }
        Value::Code(text) | Value::Symbol(text) => write_text(out, text),
        Value::DbPointer { namespace, id } => {
            out.extend_from_slice(b"{\"ref\":");
            write_text(out, namespace);
            out.extend_from_slice(b",\"id\":");
            quoted(out, |out| hex(out, id));
            out.push(b'}');
        }
        Value::MinKey => out.extend_from_slice(b"\"MinKey\""),
        Value::MaxKey => out.extend_from_slice(b"\"MaxKey\""),
        _ => out.extend_from_slice(b"null"),
    }
}

/// Writes relaxed Extended JSON. Values with parts are written by the caller.
pub(super) fn extended(out: &mut Vec<u8>, value: Value<'_>) {
    match value {
        Value::Double(v) => wrapped(out, "$numberDouble", |out| write_real(out, v)),
        Value::Decimal128(bytes) => wrapped(out, "$numberDecimal", |out| {
            quoted(out, |out| drop(write!(out, "{}", Decimal128::from_bytes(*bytes))));
        }),
        Value::Date(ms) => wrapped(out, "$date", |out| {
            if (0..=LAST_RELAXED_DATE_MS).contains(&ms) {
                quoted(out, |out| write_date(out, ms, Millis::IfNonZero));
            } else {
                wrapped(out, "$numberLong", |out| quoted(out, |out| drop(write!(out, "{ms}"))));
            }
        }),
        Value::ObjectId(id) => object_id(out, id),
        Value::Binary { subtype, bytes } => {
            out.extend_from_slice(b"{\"$binary\":{\"base64\":");
            write_base64(out, bytes);
            out.extend_from_slice(b",\"subType\":\"");
            push_hex(out, subtype);
            out.extend_from_slice(b"\"}}");
        }
        Value::Timestamp(t) => wrapped(out, "$timestamp", |out| timestamp(out, t)),
        Value::Regex { pattern, options } => {
            out.extend_from_slice(b"{\"$regularExpression\":{\"pattern\":");
            write_text(out, pattern);
            out.extend_from_slice(b",\"options\":");
            write_text(out, options);
            out.extend_from_slice(b"}}");
        }
        Value::Code(text) => wrapped(out, "$code", |out| write_text(out, text)),
        Value::Symbol(text) => wrapped(out, "$symbol", |out| write_text(out, text)),
        Value::DbPointer { namespace, id } => {
            out.extend_from_slice(b"{\"$dbPointer\":{\"$ref\":");
            write_text(out, namespace);
            out.extend_from_slice(b",\"$id\":");
            object_id(out, id);
            out.extend_from_slice(b"}}");
        }
        Value::MinKey => out.extend_from_slice(b"{\"$minKey\":1}"),
        Value::MaxKey => out.extend_from_slice(b"{\"$maxKey\":1}"),
        _ => out.extend_from_slice(b"{\"$undefined\":true}"),
    }
}

/// 9999-12-31T23:59:59.999Z.
const LAST_RELAXED_DATE_MS: i64 = 253_402_300_799_999;

fn wrapped(out: &mut Vec<u8>, name: &str, inner: impl FnOnce(&mut Vec<u8>)) {
    out.push(b'{');
    quoted(out, |out| out.extend_from_slice(name.as_bytes()));
    out.push(b':');
    inner(out);
    out.push(b'}');
}

fn quoted(out: &mut Vec<u8>, inner: impl FnOnce(&mut Vec<u8>)) {
    out.push(b'"');
    inner(out);
    out.push(b'"');
}

fn hex(out: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        push_hex(out, *byte);
    }
}

fn object_id(out: &mut Vec<u8>, id: &[u8; 12]) {
    wrapped(out, "$oid", |out| quoted(out, |out| hex(out, id)));
}

fn timestamp(out: &mut Vec<u8>, t: Timestamp) {
    // Writing to a Vec cannot fail.
    let _ = write!(out, "{{\"t\":{},\"i\":{}}}", t.seconds, t.increment);
}

/// Writes a JSON number with the digits stored in the database; its exponent form is valid JSON.
fn plain_decimal(out: &mut Vec<u8>, bytes: &[u8; 16]) {
    let text = Decimal128::from_bytes(*bytes).to_string();
    if text.ends_with(|c: char| c.is_ascii_digit()) {
        out.extend_from_slice(text.as_bytes());
    } else {
        quoted(out, |out| out.extend_from_slice(text.as_bytes()));
    }
}

/// Milliseconds of a date.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Millis {
    Always,
    /// Only if they are not zero.
    IfNonZero,
}

/// Writes a date as RFC 3339 in UTC. Years outside RFC 3339 have a sign and at least six digits, as
/// ISO 8601 allows.
fn write_date(out: &mut Vec<u8>, ms: i64, millis: Millis) {
    const DAY_MS: i64 = 86_400_000;
    let CivilDate { year, month, day } = civil_date(ms.div_euclid(DAY_MS));
    let in_day = ms.rem_euclid(DAY_MS);
    // Writing to a Vec cannot fail.
    let _ = if (0..=9999).contains(&year) {
        write!(out, "{year:04}")
    } else {
        write!(out, "{year:+07}")
    };
    let hour = in_day / 3_600_000;
    let minute = in_day / 60_000 % 60;
    let second = in_day / 1000 % 60;
    let _ = write!(out, "-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
    if millis == Millis::Always || in_day % 1000 != 0 {
        let _ = write!(out, ".{:03}", in_day % 1000);
    }
    out.push(b'Z');
}
