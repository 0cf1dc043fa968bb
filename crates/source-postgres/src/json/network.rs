//! Addresses and bit strings.

use std::io::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::{JsonError, Wire, Written, push_hex, quoted};

const FAMILY_V4: u8 = 2;
const FAMILY_V6: u8 = 3;

/// Writes `inet` and `cidr` as PostgreSQL prints them: a host's address without its netmask.
pub(super) fn write_inet(out: &mut Vec<u8>, wire: &mut Wire<'_>) -> Written {
    let family = wire.u8()?;
    let bits = wire.u8()?;
    let is_cidr = wire.u8()?;
    let length = wire.u8()?;
    out.push(b'"');
    let host_bits = match (family, length) {
        (FAMILY_V4, 4) => {
            // Writing to a Vec cannot fail.
            let _ = write!(out, "{}", Ipv4Addr::from(wire.chunk::<4>()?));
            32
        }
        (FAMILY_V6, 16) => {
            write_v6(out, Ipv6Addr::from(wire.chunk::<16>()?));
            128
        }
        _ => return Err(JsonError::Shape),
    };
    if bits != host_bits || is_cidr != 0 {
        let _ = write!(out, "/{bits}");
    }
    out.push(b'"');
    Ok(())
}

/// Writes an IPv6 address. PostgreSQL prints the last 32 bits as an IPv4 address if exactly the six
/// words before them are zero.
fn write_v6(out: &mut Vec<u8>, address: Ipv6Addr) {
    let words = address.segments();
    let _ = match words {
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 => {
            let [a, b] = high.to_be_bytes();
            let [c, d] = low.to_be_bytes();
            write!(out, "::{a}.{b}.{c}.{d}")
        }
        _ => write!(out, "{address}"),
    };
}

/// Writes six or eight bytes.
pub(super) fn write_mac(out: &mut Vec<u8>, bytes: &[u8]) {
    quoted(out, |out| {
        for (i, byte) in bytes.iter().enumerate() {
            if i > 0 {
                out.push(b':');
            }
            push_hex(out, *byte);
        }
    });
}

/// Writes a text of zeros and ones.
pub(super) fn write_bits(out: &mut Vec<u8>, wire: &mut Wire<'_>) -> Written {
    let count = usize::try_from(wire.i32()?).map_err(|_| JsonError::Shape)?;
    let bytes = wire.rest();
    if bytes.len() != count.div_ceil(8) {
        return Err(JsonError::Shape);
    }
    quoted(out, |out| {
        out.extend(
            (0..count).map(|i| if bytes[i / 8] & (0x80 >> (i % 8)) == 0 { b'0' } else { b'1' }),
        );
    });
    Ok(())
}
