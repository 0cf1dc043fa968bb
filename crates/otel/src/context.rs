//! Identities of traces and spans, and the value of the header `traceparent` (W3C Trace Context,
//! level 1).

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use hotrow_measure::random::{self, STEP};

/// Bytes of a value of version 00: version, trace id, parent id and flags, with hyphens between.
const VERSION_00_BYTES: usize = 55;
/// Flag of a caller that records its spans.
const SAMPLED: u8 = 1;

/// Identity of a trace, not zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceId(pub [u8; 16]);

/// Identity of a span within its trace, not zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanId(pub [u8; 8]);

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

/// A span: of this process, or of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanContext {
    /// Its trace.
    pub trace_id: TraceId,
    /// The span.
    pub span_id: SpanId,
}

/// The caller's span, as a request names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The span.
    pub span: SpanContext,
    /// Whether the caller records it.
    pub is_sampled: bool,
}

impl TraceParent {
    /// Parses a value of the header. Later versions begin with the fields of version 00, and
    /// further ones follow behind a hyphen (section 3.2.4).
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
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
        let [flags] = hexadecimal::<1>(&version_00[53..55])?;
        let span = SpanContext { trace_id: TraceId(trace_id), span_id: SpanId(parent_id) };
        (trace_id != [0; 16] && parent_id != [0; 8])
            .then_some(Self { span, is_sampled: flags & SAMPLED != 0 })
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

/// Random numbers for new identities and for samples, of any thread: SplitMix64 over a shared
/// counter. They need no secrecy, only the system's randomness at the start.
#[derive(Debug)]
pub struct RandomIds(AtomicU64);

impl Default for RandomIds {
    fn default() -> Self {
        // The standard library seeds its hashers from the system.
        Self(AtomicU64::new(RandomState::new().hash_one(())))
    }
}

impl RandomIds {
    /// Returns a random number.
    pub fn number(&self) -> u64 {
        random::mix(self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP))
    }

    /// Returns the identity of a new span.
    pub fn span_id(&self) -> SpanId {
        SpanId(self.number().max(1).to_be_bytes())
    }

    /// Returns the identities of a new trace and its first span.
    pub fn root(&self) -> SpanContext {
        let number = u128::from(self.number()) << 64 | u128::from(self.number());
        SpanContext { trace_id: TraceId(number.max(1).to_be_bytes()), span_id: self.span_id() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    fn parse(value: &str) -> Option<(String, bool)> {
        let parent = TraceParent::parse(value.as_bytes())?;
        Some((parent.span.trace_id.to_string(), parent.is_sampled))
    }

    #[test]
    fn values_are_those_of_the_standard() {
        for (valid, is_sampled) in [
            (format!("00-{TRACE}-00f067aa0ba902b7-01"), true),
            (format!("00-{TRACE}-00f067aa0ba902b7-00"), false),
            (format!("00-{TRACE}-00f067aa0ba902b7-02"), false),
            (format!("00-{TRACE}-00f067aa0ba902b7-ff"), true),
            (format!("01-{TRACE}-00f067aa0ba902b7-01"), true),
            (format!("fe-{TRACE}-00f067aa0ba902b7-01-what-the-future-will-be-like"), true),
        ] {
            assert_eq!(parse(&valid), Some((TRACE.to_owned(), is_sampled)), "{valid}");
        }
        let value = format!("00-{TRACE}-00f067aa0ba902b7-01");
        let parent = TraceParent::parse(value.as_bytes()).unwrap();
        assert_eq!(u64::from_be_bytes(parent.span.span_id.0), 0x00f0_67aa_0ba9_02b7);
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
    fn new_identities_differ_and_are_not_zero() {
        let ids = RandomIds::default();
        let roots: HashSet<SpanContext> = (0..10_000).map(|_| ids.root()).collect();
        assert_eq!(roots.len(), 10_000);
        assert!(roots.iter().all(|root| root.trace_id.0 != [0; 16] && root.span_id.0 != [0; 8]));
        // Another process has others.
        let other = RandomIds::default();
        assert!(!roots.contains(&other.root()));
    }

    proptest! {
        #[test]
        fn no_value_causes_a_panic(value in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = TraceParent::parse(&value);
        }
    }
}
