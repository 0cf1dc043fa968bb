//! Equality and order of values, as in MongoDB: 7, `NumberLong(7)` and 7.0 are one `_id`.

use std::cmp::Ordering;

use mongodb::bson::{Bson, Document, doc};

/// Returns bytes that are equal exactly if the values are.
pub fn canonical(value: &Bson) -> Vec<u8> {
    match value {
        Bson::Int32(n) => integer(i64::from(*n)),
        Bson::Int64(n) => integer(*n),
        Bson::Double(n) => {
            whole(*n).map_or_else(|| tagged(b'd', &n.to_bits().to_be_bytes()), integer)
        }
        Bson::Decimal128(n) => {
            let text = n.to_string();
            text.parse().map_or_else(|_| tagged(b'D', text.as_bytes()), integer)
        }
        Bson::String(text) | Bson::Symbol(text) => tagged(b's', text.as_bytes()),
        Bson::Document(fields) => {
            tagged(b'o', &listed(fields.iter().map(|(name, value)| (name.as_str(), value))))
        }
        Bson::Array(values) => tagged(b'a', &listed(values.iter().map(|value| ("", value)))),
        other => {
            tagged(b'r', &doc! { "v": other.clone() }.to_vec().expect("a value that BSON has"))
        }
    }
}

fn integer(n: i64) -> Vec<u8> {
    // Ordered as the numbers are.
    tagged(b'n', &(n ^ i64::MIN).to_be_bytes())
}

/// Returns the integer equal to a double, if there is one.
fn whole(n: f64) -> Option<i64> {
    let in_range = n.fract() == 0.0
        && (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&n);
    in_range.then_some(n as i64)
}

fn tagged(tag: u8, bytes: &[u8]) -> Vec<u8> {
    [&[tag], bytes].concat()
}

fn listed<'a>(fields: impl Iterator<Item = (&'a str, &'a Bson)>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        for part in [name.as_bytes(), &canonical(value)] {
            bytes.extend((part.len() as u32).to_be_bytes());
            bytes.extend(part);
        }
    }
    bytes
}

pub fn equal(a: &Bson, b: &Bson) -> bool {
    canonical(a) == canonical(b)
}

/// Returns the order of two values of one kind; `None` for values of two kinds.
pub fn order(a: &Bson, b: &Bson) -> Option<Ordering> {
    match (a, b) {
        (Bson::String(a), Bson::String(b)) => Some(a.cmp(b)),
        (Bson::DateTime(a), Bson::DateTime(b)) => Some(a.cmp(b)),
        (Bson::ObjectId(a), Bson::ObjectId(b)) => Some(a.bytes().cmp(&b.bytes())),
        (Bson::Timestamp(a), Bson::Timestamp(b)) => {
            Some((a.time, a.increment).cmp(&(b.time, b.increment)))
        }
        (Bson::Boolean(a), Bson::Boolean(b)) => Some(a.cmp(b)),
        (Bson::Int32(_) | Bson::Int64(_), Bson::Int32(_) | Bson::Int64(_)) => {
            Some(canonical(a).cmp(&canonical(b)))
        }
        _ => number(a)?.partial_cmp(&number(b)?),
    }
}

fn number(value: &Bson) -> Option<f64> {
    match value {
        Bson::Int32(n) => Some(f64::from(*n)),
        Bson::Int64(n) => Some(*n as f64),
        Bson::Double(n) => Some(*n),
        _ => None,
    }
}

/// Returns an integer of any numeric type.
pub fn as_integer(value: &Bson) -> Option<i64> {
    match value {
        Bson::Int32(n) => Some(i64::from(*n)),
        Bson::Int64(n) => Some(*n),
        Bson::Double(n) => whole(*n),
        _ => None,
    }
}

/// Returns the value at a path like `a.b`, through documents only.
pub fn at_path<'a>(fields: &'a Document, path: &str) -> Option<&'a Bson> {
    match path.split_once('.') {
        None => fields.get(path),
        Some((first, rest)) => at_path(fields.get(first)?.as_document()?, rest),
    }
}
