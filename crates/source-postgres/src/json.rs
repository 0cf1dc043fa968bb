//! JSON of a row in PostgreSQL's binary form, written directly as bytes. docs/postgres.md lists the
//! forms.
//!
//! Source for the binary forms: the `*_send` functions of PostgreSQL; they have not changed since
//! version 13.
//!
//! Reference `databases`: Values of PostgreSQL
//!
//! - integers, `oid`, `boolean`: number, boolean.
//! - `numeric`: number as stored; `NaN` and infinities are strings.
//! - `real`, `double precision`: shortest exact number; `"NaN"`, `"Infinity"`, `"-Infinity"`.
//! - `timestamptz`: `"2026-11-20T22:35:09.37875Z"`; `timestamp` without `Z`; `"infinity"`,
//!   `"-infinity"`.
//! - years beyond 9999 or BC: all digits; ` BC` at the end: `"4713-01-01T00:00:00Z BC"`.
//! - `date`, `time`, `timetz`: `"2026-11-20"`, `"22:35:09.5"`, `"22:35:09+01:00"`.
//! - `interval`: ISO 8601, a sign per part.
//! - `bytea`: base64; in a key hexadecimal.
//! - `json`, `jsonb`: as stored; `json` may repeat keys.
//! - arrays: nested arrays, without lower bounds.
//! - ranges: `{"lower":…,"upper":…,"bounds":"[)"}`, `{"empty":true}`; multiranges: lists of these.
//! - composite types: objects.
//! - these three with a type served as text: the server's `to_json`.
//! - `regclass` and the other references to objects: the OID, as the text would change with a name.
//!   Refused for the same reason: `aclitem`, and composites of a reference and a type served as
//!   text.
//! - others (texts, enums, `xml`, `money` in the locale `C`, extensions): the server's text.

mod forms;
mod nested;
mod network;
mod number;
mod time;

pub(crate) use hotrow_source::json::JsonError;
use hotrow_source::json::{
    self, BEFORE_OBJECT, label, make_room, push_hex, write_base64, write_real, write_text,
    write_uuid,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Scalar(Scalar),
    /// A text, one of these labels.
    Enum(Vec<String>),
    Array(Box<Shape>),
    Range(Box<Shape>),
    Multirange(Box<Shape>),
    Composite(Vec<Field>),
}

/// A member of an object: a column or a member of a composite type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    /// `"name":`, escaped once.
    label: Box<[u8]>,
    name: Box<str>,
    /// OID of the type in the catalogue.
    oid: u32,
    shape: Shape,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    Bool,
    Int2,
    Int4,
    Int8,
    Oid,
    Float4,
    Float8,
    Numeric,
    /// Text, and enums, whose binary form is their name.
    Text,
    /// The server's JSON, embedded unchanged.
    Json,
    Jsonb,
    Bytea,
    /// A bytea that is a key, in the form of ids.
    Hex,
    Uuid,
    Date,
    Time,
    TimeTz,
    Timestamp,
    TimestampTz,
    Interval,
    Inet,
    MacAddr,
    Bit,
    Lsn,
}

pub(crate) type Written = Result<(), JsonError>;

impl Field {
    pub(crate) fn new(name: &str, oid: u32, shape: Shape) -> Self {
        Self { label: label(name), name: name.into(), oid, shape }
    }

    /// Creates the field of the tenant.
    pub(crate) fn before_object(oid: u32, shape: Shape) -> Self {
        Self { label: BEFORE_OBJECT.into(), name: Box::default(), oid, shape }
    }
}

/// Writes fields with their values as one object. `None` is NULL.
///
/// # Errors
/// See [`JsonError`].
pub(crate) fn object<'a>(
    fields: &[Field],
    mut values: impl FnMut(usize) -> Result<Option<&'a [u8]>, JsonError>,
) -> Result<Vec<u8>, JsonError> {
    json::object(fields.iter().map(|field| &*field.label), |out, i| {
        write(out, &fields[i].shape, values(i)?)
    })
}

fn write(out: &mut Vec<u8>, shape: &Shape, value: Option<&[u8]>) -> Written {
    let Some(value) = value else {
        out.extend_from_slice(b"null");
        return Ok(());
    };
    // The size is known only of values that are written byte by byte.
    let bytes = match shape {
        Shape::Scalar(
            Scalar::Text | Scalar::Json | Scalar::Jsonb | Scalar::Bytea | Scalar::Hex,
        ) => value.len(),
        Shape::Scalar(Scalar::Bit) => value.len().saturating_mul(8),
        _ => 0,
    };
    make_room(out, bytes)?;
    match shape {
        Shape::Scalar(scalar) => write_scalar(out, *scalar, value),
        Shape::Enum(_) => write_scalar(out, Scalar::Text, value),
        Shape::Array(element) => nested::array(out, element, value),
        Shape::Range(subtype) => nested::range(out, subtype, value),
        Shape::Multirange(subtype) => nested::multirange(out, subtype, value),
        Shape::Composite(fields) => nested::composite(out, fields, value),
    }
}

fn write_scalar(out: &mut Vec<u8>, scalar: Scalar, value: &[u8]) -> Written {
    let mut wire = Wire(value);
    match scalar {
        Scalar::Text => write_text(out, wire.rest()),
        Scalar::Int8 => write_integer(out, wire.i64()?),
        Scalar::Int4 => write_integer(out, i64::from(wire.i32()?)),
        Scalar::Int2 => write_integer(out, i64::from(wire.i16()?)),
        Scalar::Oid => write_integer(out, i64::from(wire.i32()?.cast_unsigned())),
        Scalar::Bool => out.extend_from_slice(if wire.u8()? == 0 { b"false" } else { b"true" }),
        Scalar::Float8 => write_real(out, f64::from_bits(wire.i64()?.cast_unsigned())),
        Scalar::Float4 => number::write_float4(out, f32::from_bits(wire.i32()?.cast_unsigned())),
        Scalar::Numeric => number::write_numeric(out, &mut wire)?,
        Scalar::Json => out.extend_from_slice(wire.rest()),
        Scalar::Jsonb => match wire.u8()? {
            1 => out.extend_from_slice(wire.rest()),
            _ => return Err(JsonError::Shape),
        },
        Scalar::Bytea => write_base64(out, wire.rest()),
        Scalar::Hex => quoted(out, |out| wire.rest().iter().for_each(|b| push_hex(out, *b))),
        Scalar::Uuid if value.len() == 16 => write_uuid(out, wire.rest()),
        Scalar::Uuid => return Err(JsonError::Shape),
        Scalar::Date => time::write_date(out, wire.i32()?),
        Scalar::Time => time::write_time(out, wire.i64()?),
        Scalar::TimeTz => time::write_timetz(out, wire.i64()?, wire.i32()?),
        Scalar::Timestamp => time::write_timestamp(out, wire.i64()?, ""),
        Scalar::TimestampTz => time::write_timestamp(out, wire.i64()?, "Z"),
        Scalar::Interval => time::write_interval(out, wire.i64()?, wire.i32()?, wire.i32()?),
        Scalar::Inet => network::write_inet(out, &mut wire)?,
        Scalar::MacAddr => network::write_mac(out, wire.rest()),
        Scalar::Bit => network::write_bits(out, &mut wire)?,
        Scalar::Lsn => number::write_lsn(out, wire.i64()?.cast_unsigned()),
    }
    if wire.0.is_empty() { Ok(()) } else { Err(JsonError::Shape) }
}

fn write_integer(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Writes a JSON string of characters that need no escape.
fn quoted(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(b'"');
    write(out);
    out.push(b'"');
}

/// Bytes in network order, read from the front.
pub(crate) struct Wire<'a>(pub(crate) &'a [u8]);

impl<'a> Wire<'a> {
    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], JsonError> {
        let (chunk, rest) = self.0.split_first_chunk::<N>().ok_or(JsonError::Shape)?;
        self.0 = rest;
        Ok(*chunk)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, JsonError> {
        self.chunk::<1>().map(|[byte]| byte)
    }

    pub(crate) fn i16(&mut self) -> Result<i16, JsonError> {
        self.chunk().map(i16::from_be_bytes)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, JsonError> {
        self.chunk().map(i32::from_be_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, JsonError> {
        self.chunk().map(i64::from_be_bytes)
    }

    /// Reads a value preceded by its length; a length of -1 is NULL.
    pub(crate) fn value(&mut self) -> Result<Option<&'a [u8]>, JsonError> {
        let len = self.i32()?;
        if len == -1 {
            return Ok(None);
        }
        let len = usize::try_from(len).map_err(|_| JsonError::Shape)?;
        let (value, rest) = self.0.split_at_checked(len).ok_or(JsonError::Shape)?;
        self.0 = rest;
        Ok(Some(value))
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests;
