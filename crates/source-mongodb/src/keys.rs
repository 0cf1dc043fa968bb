//! Types of `_id`s, and conversion between BSON values and keys.
//!
//! MongoDB compares numbers by value and not by type: 7, NumberLong(7) and 7.0 are one `_id`.
//! Every such spelling becomes one key here. Texts compare byte by byte and ignore the
//! collection's collation.

use std::collections::HashMap;

use hotrow_types::key::{Collation, CollectionId, Key, KeyPart, KeySchema, KeyType};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, Decimal128, Document as BsonDocument};

use super::bson::{BINARY_GENERIC, BINARY_UUID, Document, Value};
use hotrow_source::spec::KeyTypeName;

/// Shape of the `_id`s that can be requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyShape {
    /// Values of one type.
    Plain(KeyTypeName),
    /// Documents with exactly these fields in this order.
    Document(Vec<(String, KeyTypeName)>),
}

impl KeyShape {
    pub(crate) fn schema(&self, collection: CollectionId) -> KeySchema {
        let types = match self {
            Self::Plain(ty) => vec![key_type(*ty)],
            Self::Document(fields) => fields.iter().map(|(_, ty)| key_type(*ty)).collect(),
        };
        KeySchema::new(collection, types)
    }

    /// Returns the key of an `_id`, or `None` if the `_id` has another shape, so that no URL names
    /// it.
    pub(crate) fn key(&self, schema: &KeySchema, id: Value<'_>) -> Option<Key> {
        match self {
            Self::Plain(ty) => schema.key(&[part(*ty, id)?]).ok(),
            Self::Document(fields) => {
                let Value::Document(document) = id else { return None };
                let mut parts = Vec::with_capacity(fields.len());
                let mut elements = document.elements();
                for (name, ty) in fields {
                    let (found, value) = elements.next()?.ok()?;
                    parts.push(part(*ty, value).filter(|_| found == name.as_bytes())?);
                }
                if elements.next().is_some() { None } else { schema.key(&parts).ok() }
            }
        }
    }

    pub(crate) fn id(&self, key: &Key) -> Bson {
        match self {
            Self::Plain(ty) => key.parts().next().map_or(Bson::Null, |part| value(*ty, part)),
            Self::Document(fields) => {
                let fields = fields.iter().zip(key.parts());
                Bson::Document(
                    fields
                        .map(|((name, ty), part)| (name.clone(), value(*ty, part)))
                        .collect::<BsonDocument>(),
                )
            }
        }
    }
}

pub(crate) fn key_type(ty: KeyTypeName) -> KeyType {
    match ty {
        KeyTypeName::Integer => KeyType::Integer,
        KeyTypeName::Text => KeyType::Text(Collation::Binary),
        KeyTypeName::Uuid => KeyType::Uuid,
        KeyTypeName::ObjectId => KeyType::ObjectId,
        KeyTypeName::Bytes => KeyType::Bytes,
    }
}

/// Returns the value as a part of a key; `None` if it is of another type.
pub(crate) fn part(ty: KeyTypeName, value: Value<'_>) -> Option<KeyPart<'_>> {
    Some(match (ty, value) {
        (KeyTypeName::Integer, value) => KeyPart::Integer(integer(value)?),
        (KeyTypeName::Text, Value::Text(text)) => KeyPart::Text(std::str::from_utf8(text).ok()?),
        (KeyTypeName::Uuid, Value::Binary { subtype: BINARY_UUID, bytes })
        | (KeyTypeName::Bytes, Value::Binary { subtype: BINARY_GENERIC, bytes }) => {
            KeyPart::Bytes(bytes)
        }
        (KeyTypeName::ObjectId, Value::ObjectId(id)) => KeyPart::Bytes(id),
        _ => return None,
    })
}

pub(crate) fn value(ty: KeyTypeName, part: KeyPart<'_>) -> Bson {
    let binary = |subtype, bytes: &[u8]| Bson::Binary(Binary { subtype, bytes: bytes.to_vec() });
    match (ty, part) {
        (_, KeyPart::Integer(v)) => Bson::Int64(v),
        (_, KeyPart::Text(text)) => Bson::String(text.to_owned()),
        (KeyTypeName::Uuid, KeyPart::Bytes(bytes)) => binary(BinarySubtype::Uuid, bytes),
        (KeyTypeName::ObjectId, KeyPart::Bytes(bytes)) => match bytes.try_into() {
            Ok(id) => Bson::ObjectId(ObjectId::from_bytes(id)),
            Err(_) => binary(BinarySubtype::Generic, bytes),
        },
        (_, KeyPart::Bytes(bytes)) => binary(BinarySubtype::Generic, bytes),
    }
}

/// Returns the 64-bit integer that MongoDB compares as equal to this number.
fn integer(value: Value<'_>) -> Option<i64> {
    match value {
        Value::Int32(v) => Some(v.into()),
        Value::Int64(v) => Some(v),
        // The bounds are powers of two, and so exact; within them a whole number converts without
        // loss.
        Value::Double(v) if v.fract() == 0.0 && (-TWO_POW_63..TWO_POW_63).contains(&v) => {
            Some(v as i64)
        }
        Value::Decimal128(bytes) => whole_decimal(&Decimal128::from_bytes(*bytes).to_string()),
        _ => None,
    }
}

const TWO_POW_63: f64 = 9_223_372_036_854_775_808.0;

fn whole_decimal(text: &str) -> Option<i64> {
    let (sign, text) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let (mantissa, exponent) = text.split_once('E').unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut scale =
        exponent.parse::<i32>().ok()?.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    // At most 34 digits: fits.
    let mut digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    while digits != 0 && scale != 0 {
        if scale > 0 {
            (digits, scale) = (digits.checked_mul(10)?, scale - 1);
        } else if digits % 10 == 0 {
            (digits, scale) = (digits / 10, scale + 1);
        } else {
            return None;
        }
    }
    i64::try_from(sign * digits).ok()
}

/// Type of a sample of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SampledType {
    Empty,
    One(KeyTypeName),
    /// The values are of several types, or of one that cannot be an id.
    Mixed,
}

pub(crate) fn sampled_type<'a>(values: impl Iterator<Item = Value<'a>>) -> SampledType {
    const TYPES: [KeyTypeName; 5] = [
        KeyTypeName::ObjectId,
        KeyTypeName::Text,
        KeyTypeName::Integer,
        KeyTypeName::Uuid,
        KeyTypeName::Bytes,
    ];
    let mut counts: HashMap<usize, usize> = HashMap::new();
    let mut total = 0;
    for value in values {
        total += 1;
        for index in (0..TYPES.len()).filter(|index| part(TYPES[*index], value).is_some()) {
            *counts.entry(index).or_default() += 1;
        }
    }
    if total == 0 {
        return SampledType::Empty;
    }
    counts
        .iter()
        .find(|(_, count)| **count == total)
        .map_or(SampledType::Mixed, |(index, _)| SampledType::One(TYPES[*index]))
}

/// Returns the document's first value of this name, for a sample.
pub(crate) fn field<'a>(id: Option<Value<'a>>, name: Option<&str>) -> Option<Value<'a>> {
    match (id, name) {
        (id, None) => id,
        (Some(Value::Document(document)), Some(name)) => Document::get(document, name),
        // A value that is no such document makes the sample mixed, as it should.
        (Some(_), Some(_)) => Some(Value::Undefined),
        (None, _) => None,
    }
}

#[cfg(test)]
mod tests;
