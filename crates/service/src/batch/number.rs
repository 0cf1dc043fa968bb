//! JSON numbers that are integers, in any spelling: `7`, `7.0`, `70e-1`.
//!
//! JSON Schema calls them all integers, and some clients write them so. They are read digit by
//! digit, because a floating-point number in between would turn a large one into its neighbour, and
//! so name another record.

/// Most digits of an integer that an id can be: 2^64 - 1 has 20.
const DIGITS_MAX: usize = 20;

/// A number at the beginning of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number<'a> {
    is_negative: bool,
    integer: &'a [u8],
    fraction: &'a [u8],
    /// Saturated: beyond some thousands its size makes no difference.
    exponent: i64,
}

impl<'a> Number<'a> {
    /// Parses a number (RFC 8259 section 6) and returns the text behind it. `None`: there is none.
    pub(crate) fn parse(text: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (is_negative, rest) = eat(text, b"-");
        let (integer, rest) = digits(rest);
        if integer.is_empty() || (integer.len() > 1 && integer[0] == b'0') {
            return None;
        }
        let (has_fraction, rest) = eat(rest, b".");
        let (fraction, rest) = if has_fraction { digits(rest) } else { (&[][..], rest) };
        let (has_exponent, rest) = eat(rest, b"eE");
        let (exponent, rest) = if has_exponent { exponent(rest)? } else { (0, rest) };
        let is_complete = !has_fraction || !fraction.is_empty();
        is_complete.then_some((Self { is_negative, integer, fraction, exponent }, rest))
    }

    /// Returns the integer that it is, from -2^63 to 2^64 - 1. `None`: it is another number. Minus
    /// zero is none of the spellings of an id.
    pub(super) fn integer(&self) -> Option<i128> {
        let mut digits: Vec<u8> = Vec::new();
        let shown = self.integer.iter().chain(self.fraction);
        let significant = shown.clone().rev().skip_while(|digit| **digit == b'0').count();
        let leading = shown.clone().take_while(|digit| **digit == b'0').count();
        if significant == 0 {
            return (!self.is_negative).then_some(0);
        }
        let count = significant.checked_sub(leading)?;
        if count > DIGITS_MAX {
            return None;
        }
        digits.extend(shown.skip(leading).take(count));
        // Zeros between the last of these digits and the decimal point; negative: behind it.
        let zeros = self.exponent.checked_add(i64::try_from(self.integer.len()).ok()?)?;
        let zeros = usize::try_from(zeros.checked_sub(i64::try_from(significant).ok()?)?).ok()?;
        if zeros > DIGITS_MAX {
            return None;
        }
        digits.extend(std::iter::repeat_n(b'0', zeros));
        let magnitude = std::str::from_utf8(&digits).ok()?.parse::<i128>().ok()?;
        let integer = if self.is_negative { -magnitude } else { magnitude };
        (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&integer).then_some(integer)
    }
}

fn exponent(text: &[u8]) -> Option<(i64, &[u8])> {
    let (is_negative, rest) = eat(text, b"-");
    let rest = if is_negative { rest } else { eat(rest, b"+").1 };
    let (digits, rest) = digits(rest);
    let add = |sum: i64, digit: &u8| sum.saturating_mul(10).saturating_add(i64::from(digit - b'0'));
    let exponent = digits.iter().fold(0, add);
    let exponent = if is_negative { -exponent } else { exponent };
    (!digits.is_empty()).then_some((exponent, rest))
}

fn digits(text: &[u8]) -> (&[u8], &[u8]) {
    text.split_at(text.iter().take_while(|byte| byte.is_ascii_digit()).count())
}

/// Removes the first byte if it is one of these.
fn eat<'a>(text: &'a [u8], bytes: &[u8]) -> (bool, &'a [u8]) {
    match text.split_first() {
        Some((first, rest)) if bytes.contains(first) => (true, rest),
        _ => (false, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integer(text: &str) -> Option<i128> {
        let (number, rest) = Number::parse(text.as_bytes()).expect(text);
        assert!(rest.is_empty(), "{text}");
        number.integer()
    }

    #[test]
    fn every_spelling_of_an_integer_is_that_integer() {
        for (text, expected) in [
            ("7", 7),
            ("7.0", 7),
            ("70e-1", 7),
            ("0.07E+2", 7),
            ("-3.000", -3),
            ("1e2", 100),
            ("0", 0),
            ("0.0e5", 0),
            ("1125899906842624.0", 1_125_899_906_842_624),
            ("9007199254740993.0", 9_007_199_254_740_993),
            ("9.223372036854775807e18", i128::from(i64::MAX)),
            ("-9223372036854775808.00", i128::from(i64::MIN)),
            ("18446744073709551615.0", i128::from(u64::MAX)),
            ("0.000000000000000000000000000001e30", 1),
        ] {
            assert_eq!(integer(text), Some(expected), "{text}");
        }
        for text in [
            "-0",
            "-0.0",
            "-0e9",
            "7.5",
            "75e-1",
            "1e-1",
            "1e-99999999999999999999",
            "1e99999999999999999999",
            "1e300",
            "1e20",
            "18446744073709551616",
            "-9223372036854775809",
            "123456789012345678901234567890",
            "1.00000000000000000000000000000000000000001",
        ] {
            assert_eq!(integer(text), None, "{text}");
        }
    }

    #[test]
    fn what_json_does_not_call_a_number_is_none() {
        for text in ["", "-", "+1", "01", "-01", ".5", "1.", "1.e1", "1e", "1e+", "--1", "a", "NaN"]
        {
            assert_eq!(Number::parse(text.as_bytes()), None, "{text}");
        }
        let (_, rest) = Number::parse(b"12,3").expect("a number");
        assert_eq!(rest, b",3");
    }

    proptest::proptest! {
        #[test]
        fn it_agrees_with_a_parser_of_json(
            text in "-?[0-9]{1,22}(\\.[0-9]{1,3})?([eE][+-]?[0-9]{1,2})?",
        ) {
            let parsed = Number::parse(text.as_bytes()).filter(|(_, rest)| rest.is_empty());
            let theirs: Result<serde_json::Value, _> = serde_json::from_str(&text);
            // An exponent that a double cannot have is an error there.
            proptest::prop_assert!(parsed.is_some() || theirs.is_err());
            if let (Some((number, _)), Ok(theirs)) = (parsed, theirs) {
                let integer = theirs.as_i64().map(i128::from).or(theirs.as_u64().map(i128::from));
                if integer.is_some() {
                    proptest::prop_assert_eq!(number.integer(), integer);
                } else if let (Some(own), Some(double)) = (number.integer(), theirs.as_f64()) {
                    let difference = (own as f64 - double).abs();
                    proptest::prop_assert!(difference <= double.abs() * 1e-15);
                }
            }
        }
    }
}
