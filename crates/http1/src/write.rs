//! Writer of the heads of answers, into a buffer of the caller. Values come from the server itself
//! or from a type that excludes line breaks.

/// Appends the status line.
#[inline]
pub fn status_line(out: &mut Vec<u8>, status: u16, reason: &str) {
    out.extend_from_slice(b"HTTP/1.1 ");
    decimal(out, u64::from(status));
    out.push(b' ');
    out.extend_from_slice(reason.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends a header field.
#[inline]
pub fn field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends `content-length`.
#[inline]
pub fn content_length(out: &mut Vec<u8>, bytes: u64) {
    out.extend_from_slice(b"content-length: ");
    decimal(out, bytes);
    out.extend_from_slice(b"\r\n");
}

/// Appends a number in decimal.
#[inline]
pub fn decimal(out: &mut Vec<u8>, mut number: u64) {
    const DIGITS_MAX: usize = 20;
    let mut digits = [0; DIGITS_MAX];
    let mut first = DIGITS_MAX;
    loop {
        first -= 1;
        // A digit.
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[first..]);
}

/// Appends a number in 16 hexadecimal digits.
#[inline]
pub fn hexadecimal(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&hexadecimal_digits(number));
}

/// Returns a number as 16 hexadecimal digits.
#[inline]
pub fn hexadecimal_digits(number: u64) -> [u8; 16] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    std::array::from_fn(|i| DIGITS[(number >> (60 - 4 * i)) as usize & 15])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_equal_the_ordinary_formatting() {
        for number in [0, 9, 10, 255, 1_000_000_007, u64::MAX] {
            let mut out = Vec::new();
            decimal(&mut out, number);
            hexadecimal(&mut out, number);
            assert_eq!(out, format!("{number}{number:016x}").into_bytes());
        }
    }

    #[test]
    fn a_head_is_made_of_lines() {
        let mut out = Vec::new();
        status_line(&mut out, 404, "Not Found");
        content_length(&mut out, 12);
        field(&mut out, "allow", b"GET");
        assert_eq!(out, b"HTTP/1.1 404 Not Found\r\ncontent-length: 12\r\nallow: GET\r\n");
    }
}
