//! The Huffman code of HPACK (RFC 7541 section 5.2 and appendix B).
//!
//! The code is canonical: the lengths of the symbols give their codes, in the order of length and
//! symbol. So a table of lengths is all that is written down here.

use super::CompressionError;

/// Number of symbols: all bytes, and the end of the string.
const SYMBOLS: usize = 257;
/// Symbol that never occurs in a string.
const END: u16 = 256;
/// Longest code.
const BITS_MAX: usize = 30;
/// Bits that the first table decodes at once: most codes are no longer.
const FIRST_BITS: u32 = 8;

/// Bits of each symbol's code.
#[rustfmt::skip]
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

static CODE: Code = Code::new();

/// Tables that decode.
struct Code {
    /// By the next bits: a symbol and its length; length 0: its code is longer.
    first: [(u8, u8); 1 << FIRST_BITS],
    /// By length: end of the codes that are no longer, as the leading bits of a word.
    ends: [u64; BITS_MAX + 1],
    /// By length: what to add to a code for its symbol's place in `symbols`.
    places: [i32; BITS_MAX + 1],
    /// In the order of length and symbol.
    symbols: [u16; SYMBOLS],
}

impl Code {
    const fn new() -> Self {
        let mut code = Self {
            first: [(0, 0); 1 << FIRST_BITS],
            ends: [0; BITS_MAX + 1],
            places: [0; BITS_MAX + 1],
            symbols: [0; SYMBOLS],
        };
        let (mut next, mut place, mut length) = (0_u32, 0, 1);
        while length <= BITS_MAX {
            next <<= 1;
            code.places[length] = place as i32 - next as i32;
            let mut symbol = 0;
            while symbol < SYMBOLS {
                if LENGTHS[symbol] as usize == length {
                    code.symbols[place] = symbol as u16;
                    code.fill(next, length as u32, symbol as u8);
                    next += 1;
                    place += 1;
                }
                symbol += 1;
            }
            code.ends[length] = (next as u64) << (64 - length);
            length += 1;
        }
        code
    }

    const fn fill(&mut self, bits: u32, length: u32, symbol: u8) {
        if length > FIRST_BITS {
            return;
        }
        let spare = FIRST_BITS - length;
        let mut i = 0;
        while i < 1 << spare {
            self.first[(bits << spare | i) as usize] = (symbol, length as u8);
            i += 1;
        }
    }

    /// Returns the symbol whose code begins `bits`, and its length.
    #[cold]
    fn long(&self, bits: u64) -> (u16, u32) {
        let mut length = FIRST_BITS as usize + 1;
        // The end of the longest codes is beyond all bits; that is 0 in a word.
        while length < BITS_MAX && bits >= self.ends[length] {
            length += 1;
        }
        let code = (bits >> (64 - length)) as i32;
        let place = usize::try_from(code + self.places[length]).unwrap_or(SYMBOLS - 1);
        (self.symbols[place.min(SYMBOLS - 1)], length as u32)
    }
}

/// Appends the decoded string.
pub(super) fn decode(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), CompressionError> {
    // Most symbols have five to eight bits.
    out.reserve(bytes.len() * 8 / 5);
    let mut rest = bytes;
    // The next bits, from the highest on; behind those that have come are ones, as in the padding.
    let mut bits = 0_u64;
    let mut count = 0_u32;
    loop {
        while count <= 56
            && let Some((byte, behind)) = rest.split_first()
        {
            bits |= u64::from(*byte) << (56 - count);
            count += 8;
            rest = behind;
        }
        let padded = if count < 64 { bits | u64::MAX >> count } else { bits };
        if count == 0 {
            return Ok(());
        }
        let (symbol, length) = CODE.first[(padded >> (64 - FIRST_BITS)) as usize];
        let (symbol, length) = match length {
            0 => CODE.long(padded),
            _ => (u16::from(symbol), u32::from(length)),
        };
        if length > count || symbol == END {
            // The padding is less than a byte of ones.
            let is_padding = count < 8 && padded == u64::MAX;
            return if is_padding { Ok(()) } else { Err(CompressionError) };
        }
        // Not the end: it is a byte.
        out.push(symbol as u8);
        bits <<= length;
        count -= length;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Encodes as the standard says, bit by bit.
    pub(crate) fn encode(text: &[u8]) -> Vec<u8> {
        let mut bits = Vec::new();
        for byte in text {
            let place = CODE.symbols.iter().position(|symbol| *symbol == u16::from(*byte));
            let length = usize::from(LENGTHS[usize::from(*byte)]);
            let code = place.unwrap() as i32 - CODE.places[length];
            bits.extend((0..length).rev().map(|bit| code >> bit & 1));
        }
        while bits.len() % 8 != 0 {
            bits.push(1);
        }
        bits.chunks(8).map(|byte| byte.iter().fold(0, |all, bit| all << 1 | *bit as u8)).collect()
    }

    fn decoded(bytes: &[u8]) -> Result<Vec<u8>, CompressionError> {
        let mut out = Vec::new();
        decode(bytes, &mut out).map(|()| out)
    }

    #[test]
    fn examples_of_the_standard() {
        // RFC 7541 appendices C.4 and C.6.
        for (text, bytes) in [
            ("www.example.com", "f1e3c2e5f23a6ba0ab90f4ff"),
            ("no-cache", "a8eb10649cbf"),
            ("custom-key", "25a849e95ba97d7f"),
            ("custom-value", "25a849e95bb8e8b4bf"),
            ("302", "6402"),
            ("private", "aec3771a4b"),
            ("Mon, 21 Oct 2013 20:13:21 GMT", "d07abe941054d444a8200595040b8166e082a62d1bff"),
            ("https://www.example.com", "9d29ad171863c78f0b97c8e9ae82ae43d3"),
            ("307", "640eff"),
            ("gzip", "9bd9ab"),
            (
                "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
                "94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b\
                 1063d5007",
            ),
        ] {
            let digit = |digit: u8| (digit as char).to_digit(16).unwrap() as u8;
            let bytes: Vec<u8> =
                bytes.as_bytes().chunks(2).map(|two| digit(two[0]) << 4 | digit(two[1])).collect();
            assert_eq!(decoded(&bytes), Ok(text.as_bytes().to_vec()), "{text}");
            assert_eq!(encode(text.as_bytes()), bytes, "{text}");
        }
    }

    #[test]
    fn every_byte_has_a_code() {
        let all: Vec<u8> = (0..=u8::MAX).collect();
        assert_eq!(decoded(&encode(&all)), Ok(all));
    }

    #[test]
    fn the_end_and_long_or_false_padding_are_refused() {
        // RFC 7541 section 5.2.
        assert_eq!(decoded(&[0xff]), Err(CompressionError), "a byte of padding");
        assert_eq!(decoded(&[0xff; 4]), Err(CompressionError), "the end of the string");
        assert_eq!(decoded(&[0b0001_1111]), Ok(b"a".to_vec()), "three bits of padding");
        assert_eq!(decoded(&[0b0001_1110]), Err(CompressionError), "not of ones");
        assert_eq!(decoded(&[0b0001_1111, 0xff]), Err(CompressionError), "eleven bits");
        assert_eq!(decoded(&[]), Ok(vec![]));
    }

    proptest! {
        #[test]
        fn texts_are_decoded_as_they_were_encoded(
            text in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            prop_assert_eq!(decoded(&encode(&text)), Ok(text));
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(text) = decoded(&bytes) {
                prop_assert_eq!(encode(&text), bytes);
            }
        }
    }
}
