//! Parsing of the texts that name values of a key.

use super::error::KeyError;

/// Most decimal digits that fit 64 bits with a sign whatever they are.
const UNCHECKED_DIGITS_MAX: usize = 18;

/// Parses the one canonical spelling of an integer: `-?(0|[1-9][0-9]*)`, no `-0`, within 64 bits.
#[inline]
pub(super) fn parse_integer(text: &str) -> Option<i64> {
    match text.as_bytes() {
        // So few digits cannot overflow.
        digits @ [b'1'..=b'9', ..] if digits.len() <= UNCHECKED_DIGITS_MAX => {
            digits.iter().try_fold(0, |number, byte| {
                let digit = byte.wrapping_sub(b'0');
                if digit < 10 { Some(number * 10 + i64::from(digit)) } else { None }
            })
        }
        _ => parse_long_integer(text),
    }
}

fn parse_long_integer(text: &str) -> Option<i64> {
    let (digits, is_negative) = match text.as_bytes() {
        [b'-', digits @ ..] => (digits, true),
        digits => (digits, false),
    };
    match digits {
        [b'0'] if !is_negative => return Some(0),
        [b'1'..=b'9', ..] => {}
        _ => return None,
    }
    // Downwards, because the least integer has no positive counterpart.
    let negative = digits.iter().try_fold(0_i64, |number, byte| match byte {
        b'0'..=b'9' => number.checked_mul(10)?.checked_sub(i64::from(byte - b'0')),
        _ => None,
    })?;
    if is_negative { Some(negative) } else { negative.checked_neg() }
}

/// Parses the one canonical spelling of an unsigned integer: `0|[1-9][0-9]*`, within 64 bits.
pub(super) fn parse_unsigned(text: &str) -> Option<u64> {
    let is_canonical = match text.as_bytes() {
        [b'0'] => true,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if is_canonical { text.parse().ok() } else { None }
}

pub(super) fn parse_uuid(text: &str) -> Option<Vec<u8>> {
    let bytes = text.as_bytes();
    let hyphens_right = bytes.len() == 36 && [8, 13, 18, 23].iter().all(|&i| bytes[i] == b'-');
    match bytes.len() {
        36 if hyphens_right => {
            let plain: Vec<u8> = bytes.iter().copied().filter(|b| *b != b'-').collect();
            if plain.len() == 32 { parse_hex(&plain) } else { None }
        }
        32 => parse_hex(bytes),
        _ => None,
    }
}

pub(super) fn parse_hex(text: &[u8]) -> Option<Vec<u8>> {
    let (pairs, []) = text.as_chunks::<2>() else { return None };
    let digit = |b: u8| char::from(b).to_digit(16);
    // Two hexadecimal digits fit a byte.
    pairs.iter().map(|[high, low]| Some((digit(*high)? * 16 + digit(*low)?) as u8)).collect()
}

/// Decodes percent-encoding as in RFC 3986: every `%XX` is data, `+` is a plus.
///
/// # Errors
/// [`KeyError::Encoding`] for a `%` without two hexadecimal digits, [`KeyError::Utf8`] when the
/// result is not text.
pub fn percent_decode(raw: &str) -> Result<std::borrow::Cow<'_, str>, KeyError> {
    if !raw.contains('%') {
        return Ok(raw.into());
    }
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        if first == b'%' {
            let pair = tail.get(..2).ok_or(KeyError::Encoding)?;
            bytes.extend(parse_hex(pair).ok_or(KeyError::Encoding)?);
            rest = &tail[2..];
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).map(Into::into).map_err(|_| KeyError::Utf8)
}
