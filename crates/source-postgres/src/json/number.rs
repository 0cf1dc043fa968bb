//! Numbers whose form differs from the machine's.

use std::io::Write as _;

use super::{JsonError, Wire, Written, quoted};

const NUMERIC_NEGATIVE: i16 = 0x4000;
const NUMERIC_NAN: u16 = 0xc000;
const NUMERIC_INFINITY: u16 = 0xd000;
const NUMERIC_MINUS_INFINITY: u16 = 0xf000;

/// Like [`hotrow_source::json::write_real`]; with fewer bits the shortest form of a number is
/// shorter.
pub(super) fn write_float4(out: &mut Vec<u8>, real: f32) {
    if real.is_finite() {
        // Writing to a Vec cannot fail.
        let _ = write!(out, "{real:?}");
    } else {
        hotrow_source::json::write_real(out, f64::from(real));
    }
}

/// Writes a JSON number with exactly the database's digits, including those after the point.
pub(super) fn write_numeric(out: &mut Vec<u8>, wire: &mut Wire<'_>) -> Written {
    let count = wire.i16()?;
    let weight = wire.i16()?;
    let sign = wire.i16()?;
    let scale = wire.i16()?;
    match sign.cast_unsigned() {
        NUMERIC_NAN => return special(out, b"\"NaN\""),
        NUMERIC_INFINITY => return special(out, b"\"Infinity\""),
        NUMERIC_MINUS_INFINITY => return special(out, b"\"-Infinity\""),
        _ => {}
    }
    let (Ok(count), Ok(scale)) = (usize::try_from(count), usize::try_from(scale)) else {
        return Err(JsonError::Shape);
    };
    let mut groups = Vec::with_capacity(count);
    for _ in 0..count {
        groups.push(wire.i16()?);
    }
    // Groups of four digits; the first counts multiples of 10000^weight.
    let group = |place: i32| {
        usize::try_from(i32::from(weight) - place)
            .ok()
            .and_then(|i| groups.get(i))
            .map_or(0, |g| *g)
    };
    if sign == NUMERIC_NEGATIVE {
        out.push(b'-');
    }
    out.extend_from_slice(
        itoa::Buffer::new()
            .format(if weight < 0 { 0 } else { group(i32::from(weight)) })
            .as_bytes(),
    );
    for place in (0..i32::from(weight)).rev() {
        out.extend_from_slice(&four_digits(group(place)));
    }
    if scale > 0 {
        out.push(b'.');
        let start = out.len();
        let mut place = -1;
        while out.len() < start + scale {
            out.extend_from_slice(&four_digits(group(place)));
            place -= 1;
        }
        out.truncate(start + scale);
    }
    Ok(())
}

fn special(out: &mut Vec<u8>, text: &[u8]) -> Written {
    out.extend_from_slice(text);
    Ok(())
}

fn four_digits(group: i16) -> [u8; 4] {
    // A group is below 10,000; any other value must still give digits.
    let digit = |by: i16| b'0' + (group.unsigned_abs() / by.unsigned_abs() % 10) as u8;
    [digit(1000), digit(100), digit(10), digit(1)]
}

/// Writes a position of the log as PostgreSQL prints it.
pub(super) fn write_lsn(out: &mut Vec<u8>, lsn: u64) {
    quoted(out, |out| {
        let _ = write!(out, "{:X}/{:X}", lsn >> 32, lsn & 0xffff_ffff);
    });
}
