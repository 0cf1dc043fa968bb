//! Searches for bytes in a head, eight at a time. Lines of a head have 20 to 40 bytes, on which
//! preparing a wider vector search costs more than the search.

const ONES: u64 = u64::from_le_bytes([0x01; 8]);
const HIGHS: u64 = u64::from_le_bytes([0x80; 8]);
const LOWS: u64 = !HIGHS;

/// Bytes of names and methods: `tchar` of RFC 9110 section 5.6.2.
pub(crate) const TOKEN: [bool; 256] = table(b"!#$%&'*+-.^_`|~");

/// Returns the table of letters, digits and `others`.
pub(crate) const fn table(others: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut at = 0;
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
    table
}

/// Returns the first control character (below 0x20, or DEL) at or after `from`. One pass finds line
/// ends and forbidden bytes alike.
///
/// Source of the bit patterns: Warren, "Hacker's Delight", 2nd edition, section 6-1. A borrow may
/// also mark bytes above a correct one, so only the lowest mark counts.
#[inline]
pub(crate) fn next_control(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(eight) = bytes[at..].first_chunk::<8>() {
        let word = u64::from_le_bytes(*eight);
        let below_space = word.wrapping_sub(ONES * 0x20);
        let delete = (word & LOWS) + ONES;
        let marks = (below_space | delete) & !word & HIGHS;
        if marks != 0 {
            return Some(at + (marks.trailing_zeros() / 8) as usize);
        }
        at += 8;
    }
    bytes[at..].iter().position(u8::is_ascii_control).map(|i| at + i)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_word_search_equals_the_byte_search(
            bytes in prop::collection::vec(
                prop_oneof![0x18..0x24u8, 0x7cu8..0x82, any::<u8>()],
                0..40,
            ),
            from in any::<prop::sample::Index>(),
        ) {
            let from = from.index(bytes.len() + 1);
            let control = bytes[from..].iter().position(u8::is_ascii_control).map(|i| from + i);
            prop_assert_eq!(next_control(&bytes, from), control);
        }
    }
}
