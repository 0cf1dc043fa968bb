//! latin1 of MySQL and MariaDB: Windows code page 1252 with control characters for its five
//! undefined bytes.
//!
//! Source: the servers' `Index.xml`/`ctype-latin1.c`, table `cs_to_uni`.

use std::borrow::Cow;

/// Characters of the bytes 0x80 to 0x9f. Each other byte is its own code point.
const HIGH: [char; 32] = [
    '\u{20ac}', '\u{81}', '\u{201a}', '\u{192}', '\u{201e}', '\u{2026}', '\u{2020}', '\u{2021}',
    '\u{2c6}', '\u{2030}', '\u{160}', '\u{2039}', '\u{152}', '\u{8d}', '\u{17d}', '\u{8f}',
    '\u{90}', '\u{2018}', '\u{2019}', '\u{201c}', '\u{201d}', '\u{2022}', '\u{2013}', '\u{2014}',
    '\u{2dc}', '\u{2122}', '\u{161}', '\u{203a}', '\u{153}', '\u{9d}', '\u{17e}', '\u{178}',
];

pub(super) fn decode(raw: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(raw) {
        Ok(text) if text.is_ascii() => text.into(),
        _ => raw.iter().map(|b| of_byte(*b)).collect::<String>().into(),
    }
}

/// Encodes a text. None if a character is not in latin1.
pub(super) fn encode(text: &str) -> Option<Cow<'_, [u8]>> {
    if text.is_ascii() {
        return Some(text.as_bytes().into());
    }
    text.chars().map(to_byte).collect::<Option<Vec<u8>>>().map(Cow::Owned)
}

fn of_byte(byte: u8) -> char {
    match byte {
        0x80..=0x9f => HIGH[usize::from(byte - 0x80)],
        other => char::from(other),
    }
}

fn to_byte(c: char) -> Option<u8> {
    if let Some(at) = HIGH.iter().position(|high| *high == c) {
        // The table has 32 entries.
        return Some(0x80 + at as u8);
    }
    u8::try_from(u32::from(c)).ok().filter(|b| !(0x80..=0x9f).contains(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives_a_round_trip() {
        let all: Vec<u8> = (0..=255).collect();
        let text = decode(&all).into_owned();
        assert_eq!(text.chars().count(), 256);
        assert_eq!(encode(&text).as_deref(), Some(&all[..]));
        assert_eq!(decode(b"\x80\xe9"), "€é");
        // 0x80 is the euro sign.
        assert_eq!(encode("\u{80}"), None);
        assert_eq!(encode("日"), None);
    }
}
