//! Integers with a prefix of some bits (RFC 7541 section 5.1).

use super::CompressionError;

/// Largest integer that is accepted: far beyond every length and index that is possible.
const VALUE_MAX: usize = (1 << 24) - 1;

/// Reads an integer whose prefix is the lower `prefix_bits` of the first byte. Returns it and the
/// bytes behind it.
#[inline]
pub(super) fn decode(bytes: &[u8], prefix_bits: u32) -> Result<(usize, &[u8]), CompressionError> {
    let (first, mut rest) = bytes.split_first().ok_or(CompressionError)?;
    let prefix_max = (1 << prefix_bits) - 1;
    let mut value = usize::from(*first) & prefix_max;
    if value < prefix_max {
        return Ok((value, rest));
    }
    let mut shift = 0;
    loop {
        let (byte, behind) = rest.split_first().ok_or(CompressionError)?;
        rest = behind;
        // At most four bytes: zeros without end are refused too.
        if shift > 21 {
            return Err(CompressionError);
        }
        value += usize::from(byte & 0x7f) << shift;
        if value > VALUE_MAX {
            return Err(CompressionError);
        }
        if byte & 0x80 == 0 {
            return Ok((value, rest));
        }
        shift += 7;
    }
}

/// Appends an integer. `first` has the bits before the prefix.
#[inline]
pub(super) fn encode(out: &mut Vec<u8>, first: u8, prefix_bits: u32, mut value: usize) {
    let prefix_max = (1 << prefix_bits) - 1;
    if value < prefix_max {
        // Less than the prefix's bits.
        out.push(first | value as u8);
        return;
    }
    out.push(first | prefix_max as u8);
    value -= prefix_max;
    while value >= 0x80 {
        out.push(0x80 | (value & 0x7f) as u8);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_of_the_standard() {
        // RFC 7541 appendix C.1.
        let mut out = Vec::new();
        encode(&mut out, 0, 5, 10);
        encode(&mut out, 0, 5, 1337);
        encode(&mut out, 0, 8, 42);
        assert_eq!(out, [0b01010, 0b11111, 0b1001_1010, 0b0000_1010, 0b0010_1010]);
        assert_eq!(decode(&out, 5), Ok((10, &out[1..])));
        assert_eq!(decode(&out[1..], 5), Ok((1337, &out[4..])));
        assert_eq!(decode(&[0b1110_1010, 7], 5), Ok((10, &[7][..])), "other bits are ignored");
    }

    #[test]
    fn every_integer_is_read_as_it_is_written() {
        for prefix_bits in 4..=8 {
            for value in (0..600).chain([16_383, 16_384, 65_535, VALUE_MAX]) {
                let mut out = Vec::new();
                encode(&mut out, 0, prefix_bits, value);
                assert_eq!(decode(&out, prefix_bits), Ok((value, &[][..])));
                for cut in 0..out.len() {
                    assert_eq!(decode(&out[..cut], prefix_bits), Err(CompressionError));
                }
            }
        }
    }

    #[test]
    fn what_is_too_large_or_too_long_is_refused() {
        assert_eq!(decode(&[31, 0xff, 0xff, 0xff, 0x7f], 5), Err(CompressionError));
        assert_eq!(decode(&[31, 0x80, 0x80, 0x80, 0x80, 0], 5), Err(CompressionError));
    }
}
