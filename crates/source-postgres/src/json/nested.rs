//! Values with parts: arrays, ranges, composites.

use super::{Field, JsonError, Shape, Wire, Written, write};

/// `MAXDIM` of PostgreSQL.
const DIMENSIONS_MAX: i32 = 6;

const RANGE_EMPTY: u8 = 0x01;
const RANGE_LOWER_INCLUSIVE: u8 = 0x02;
const RANGE_UPPER_INCLUSIVE: u8 = 0x04;
const RANGE_LOWER_INFINITE: u8 = 0x08;
const RANGE_UPPER_INFINITE: u8 = 0x10;

/// Writes a JSON array, of arrays for several dimensions. Lower bounds are omitted.
pub(super) fn array(out: &mut Vec<u8>, element: &Shape, value: &[u8]) -> Written {
    let mut wire = Wire(value);
    let dimensions = wire.i32()?;
    let _has_null = wire.i32()?;
    let _oid = wire.i32()?;
    if !(0..=DIMENSIONS_MAX).contains(&dimensions) {
        return Err(JsonError::Shape);
    }
    let mut lengths = Vec::new();
    for _ in 0..dimensions {
        let length = wire.i32()?;
        let _lower_bound = wire.i32()?;
        lengths.push(length);
    }
    if lengths.is_empty() {
        out.extend_from_slice(b"[]");
        return Ok(());
    }
    dimension(out, element, &lengths, &mut wire)?;
    if wire.0.is_empty() { Ok(()) } else { Err(JsonError::Shape) }
}

fn dimension(out: &mut Vec<u8>, element: &Shape, lengths: &[i32], wire: &mut Wire<'_>) -> Written {
    let Some((length, inner)) = lengths.split_first() else {
        return write(out, element, wire.value()?);
    };
    // Each element takes bytes, so a wrong length ends in an error, not in an endless loop.
    for i in 0..*length {
        out.push(if i == 0 { b'[' } else { b',' });
        dimension(out, element, inner, wire)?;
    }
    if *length <= 0 {
        return Err(JsonError::Shape);
    }
    out.push(b']');
    Ok(())
}

/// Writes `{"lower":1,"upper":10,"bounds":"[)"}`, null for a missing bound, or `{"empty":true}`.
pub(super) fn range(out: &mut Vec<u8>, subtype: &Shape, value: &[u8]) -> Written {
    let mut wire = Wire(value);
    let flags = wire.u8()?;
    if flags & RANGE_EMPTY != 0 {
        out.extend_from_slice(b"{\"empty\":true}");
        return Ok(());
    }
    for (label, infinite) in
        [("{\"lower\":", RANGE_LOWER_INFINITE), (",\"upper\":", RANGE_UPPER_INFINITE)]
    {
        out.extend_from_slice(label.as_bytes());
        let bound = if flags & infinite != 0 { None } else { wire.value()? };
        write(out, subtype, bound)?;
    }
    out.extend_from_slice(b",\"bounds\":\"");
    out.push(if flags & RANGE_LOWER_INCLUSIVE != 0 { b'[' } else { b'(' });
    out.push(if flags & RANGE_UPPER_INCLUSIVE != 0 { b']' } else { b')' });
    out.extend_from_slice(b"\"}");
    if wire.0.is_empty() { Ok(()) } else { Err(JsonError::Shape) }
}

pub(super) fn multirange(out: &mut Vec<u8>, subtype: &Shape, value: &[u8]) -> Written {
    let mut wire = Wire(value);
    let count = wire.i32()?;
    out.push(b'[');
    for i in 0..count {
        if i > 0 {
            out.push(b',');
        }
        range(out, subtype, wire.value()?.ok_or(JsonError::Shape)?)?;
    }
    out.push(b']');
    if wire.0.is_empty() { Ok(()) } else { Err(JsonError::Shape) }
}

pub(super) fn composite(out: &mut Vec<u8>, fields: &[Field], value: &[u8]) -> Written {
    let mut wire = Wire(value);
    if usize::try_from(wire.i32()?) != Ok(fields.len()) {
        return Err(JsonError::Shape);
    }
    out.push(b'{');
    for (i, field) in fields.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        if wire.i32()?.cast_unsigned() != field.oid {
            return Err(JsonError::Shape);
        }
        out.extend_from_slice(&field.label);
        write(out, &field.shape, wire.value()?)?;
    }
    out.push(b'}');
    if wire.0.is_empty() { Ok(()) } else { Err(JsonError::Shape) }
}
