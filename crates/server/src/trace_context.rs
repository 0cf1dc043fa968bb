//! The request header `traceparent` (W3C Trace Context, level 1), by which the lines of a log are
//! found that belong to one trace. It is read and never forwarded.

use std::fmt;

use hotrow_http1::fields::Fields;

/// Name of the header.
const TRACEPARENT: &str = "traceparent";
/// Bytes of a value of version 00: version, trace id, parent id and flags, with hyphens between.
const VERSION_00_BYTES: usize = 55;

/// Identity of a trace, not zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TraceId([u8; 16]);

impl TraceId {
    /// Returns the trace id that a request names, unless its header is absent, malformed or
    /// repeated.
    pub(crate) fn of(headers: Fields<'_>) -> Option<Self> {
        let mut values = headers.get_all(TRACEPARENT);
        let value = values.next()?;
        // Which of several is meant is unknown.
        if values.next().is_some() { None } else { Self::parse(value) }
    }

    /// Parses a value of the header. Later versions begin with the fields of version 00, and
    /// further ones follow behind a hyphen (section 3.2.4).
    fn parse(value: &[u8]) -> Option<Self> {
        let (version_00, rest) = value.split_at_checked(VERSION_00_BYTES)?;
        let version = hexadecimal::<1>(&version_00[..2])?;
        let is_known = match (version, rest.first()) {
            // Version ff is invalid.
            ([0xff], _) => false,
            (_, None) => true,
            ([0], Some(_)) => false,
            (_, Some(next)) => *next == b'-',
        };
        let has_hyphens = [2, 35, 52].iter().all(|place| version_00[*place] == b'-');
        if !is_known || !has_hyphens {
            return None;
        }
        let trace_id = hexadecimal::<16>(&version_00[3..35])?;
        let parent_id = hexadecimal::<8>(&version_00[36..52])?;
        hexadecimal::<1>(&version_00[53..55])?;
        (trace_id != [0; 16] && parent_id != [0; 8]).then_some(Self(trace_id))
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Parses `2 * N` digits, of which the standard permits only lower case.
fn hexadecimal<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    if digits.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use hotrow_http1::fields::FieldsBuf;
    use proptest::prelude::*;

    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    fn parse(value: &str) -> Option<String> {
        TraceId::parse(value.as_bytes()).map(|id| id.to_string())
    }

    #[test]
    fn values_are_those_of_the_standard() {
        for valid in [
            format!("00-{TRACE}-00f067aa0ba902b7-01"),
            format!("00-{TRACE}-00f067aa0ba902b7-00"),
            format!("00-{TRACE}-00f067aa0ba902b7-ff"),
            format!("01-{TRACE}-00f067aa0ba902b7-01"),
            format!("fe-{TRACE}-00f067aa0ba902b7-01-what-the-future-will-be-like"),
        ] {
            assert_eq!(parse(&valid).as_deref(), Some(TRACE), "{valid}");
        }
        for invalid in [
            String::new(),
            format!("00-{TRACE}-00f067aa0ba902b7"),
            format!("00-{TRACE}-00f067aa0ba902b7-0"),
            format!("00-{TRACE}-00f067aa0ba902b7-011"),
            format!("00-{TRACE}-00f067aa0ba902b7-01-more"),
            format!("01-{TRACE}-00f067aa0ba902b7-01.more"),
            format!("ff-{TRACE}-00f067aa0ba902b7-01"),
            format!("0x-{TRACE}-00f067aa0ba902b7-01"),
            format!("00-{}-00f067aa0ba902b7-01", TRACE.to_uppercase()),
            format!("00-{TRACE}-00F067AA0BA902B7-01"),
            format!("00-{TRACE}-00f067aa0ba902b7-0g"),
            format!("00-{TRACE}-0000000000000000-01"),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            format!("00_{TRACE}-00f067aa0ba902b7-01"),
            format!("00-{TRACE}_00f067aa0ba902b7-01"),
            format!("00-{TRACE}-00f067aa0ba902b7_01"),
            format!(" 00-{TRACE}-00f067aa0ba902b7-0"),
        ] {
            assert_eq!(parse(&invalid), None, "{invalid}");
        }
    }

    #[test]
    fn a_repeated_header_names_no_trace() {
        let value = format!("00-{TRACE}-00f067aa0ba902b7-01");
        let one = FieldsBuf::from_iter([("Traceparent", &value)]);
        assert_eq!(TraceId::of(one.as_fields()).map(|id| id.to_string()).as_deref(), Some(TRACE));
        let two = FieldsBuf::from_iter([("traceparent", &value), ("traceparent", &value)]);
        assert_eq!(TraceId::of(two.as_fields()), None);
        assert_eq!(TraceId::of(FieldsBuf::default().as_fields()), None);
    }

    proptest! {
        #[test]
        fn no_value_causes_a_panic(value in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = TraceId::parse(&value);
        }
    }
}
