//! Until when an answer is of use: `limits.request_timeout`, or what the client says in `Hotrow-Deadline-Ms`.
//!
//! The header counts from the arrival of the request, so that no two clocks have to agree (as gRPC's `grpc-timeout` does).

use std::time::Duration;

use hotrow_measure::clock::Nanos;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::problem::Problem;

/// Milliseconds from the arrival of the request.
pub(crate) const HOTROW_DEADLINE_MS: HeaderName = HeaderName::from_static("hotrow-deadline-ms");
/// Longest value: 11 days, more than any `request_timeout`.
const DIGITS_MAX: usize = 9;
const BAD: Problem =
    Problem::BadHeader("Hotrow-Deadline-Ms is a whole number of milliseconds of at most 9 digits, given once");

/// The deadline of a request that arrived at `now`; later than `request_timeout` it never is.
///
/// # Errors
/// 400 for a header that is no such number.
pub(crate) fn of(asked: &HeaderMap, request_timeout: Duration, now: Nanos) -> Result<Nanos, Problem> {
    let mut values = asked.get_all(HOTROW_DEADLINE_MS).iter();
    let time = match (values.next(), values.next()) {
        (None, _) => request_timeout,
        (Some(value), None) => parse(value).ok_or(BAD)?.min(request_timeout),
        (Some(_), Some(_)) => return Err(BAD),
    };
    Ok(now.after(time))
}

fn parse(value: &HeaderValue) -> Option<Duration> {
    let digits = value.to_str().ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?;
    if digits.len() > DIGITS_MAX {
        return None;
    }
    // No digits at all are refused here.
    digits.parse().ok().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(5);

    fn deadline_ms(values: &[&str]) -> Option<u64> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(HOTROW_DEADLINE_MS, HeaderValue::from_str(value).unwrap());
        }
        of(&headers, TIMEOUT, Nanos(1_000_000)).ok().map(|deadline| deadline.0 / 1_000_000 - 1)
    }

    #[test]
    fn the_earlier_of_header_and_time_out() {
        for (values, deadline) in [
            (&[][..], Some(5_000)),
            (&["0"], Some(0)),
            (&["250"], Some(250)),
            (&["5000"], Some(5_000)),
            (&["999999999"], Some(5_000)),
            (&["1000000000"], None),
            (&[""], None),
            (&["-1"], None),
            (&["+1"], None),
            (&["1.5"], None),
            (&["100m"], None),
            (&["1 "], None),
            (&["250", "250"], None),
        ] {
            assert_eq!(deadline_ms(values), deadline, "{values:?}");
        }
    }
}
