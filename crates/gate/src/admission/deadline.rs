//! Deadline of an answer: `limits.request_timeout`, or the client's `Hotrow-Deadline-Ms`.
//!
//! The header counts from the arrival of the request, so that no two clocks have to agree (like
//! gRPC's `grpc-timeout`). The server's own limit counts from the end of the request: a slow upload
//! costs the client's time, not the database's.

use std::time::Duration;

use hotrow_answer::context::RequestTimes;
use hotrow_answer::http_error::HttpError;
use hotrow_http1::fields::Fields;
use hotrow_measure::clock::Nanos;

/// Milliseconds from the arrival of the request.
pub(crate) const HOTROW_DEADLINE_MS: &str = "hotrow-deadline-ms";
/// Longest value: 11 days, more than any `request_timeout`.
const DIGITS_MAX: usize = 9;
const BAD: HttpError = HttpError::BadHeader(
    "Hotrow-Deadline-Ms is a whole number of milliseconds of at most 9 digits, given once",
);

/// Returns the deadline of a request: `request_timeout` after it was complete, or the header's time
/// after its arrival if that is earlier.
///
/// # Errors
/// 400 for a header that is not such a number.
pub(crate) fn of(
    request_headers: Fields<'_>,
    request_timeout: Duration,
    at: RequestTimes,
) -> Result<Nanos, HttpError> {
    let mut values = request_headers.get_all(HOTROW_DEADLINE_MS);
    let latest = at.complete.after(request_timeout);
    match (values.next(), values.next()) {
        (None, _) => Ok(latest),
        (Some(value), None) => Ok(at.arrived.after(parse(value).ok_or(BAD)?).min(latest)),
        (Some(_), Some(_)) => Err(BAD),
    }
}

fn parse(value: &[u8]) -> Option<Duration> {
    let digits = std::str::from_utf8(value).ok()?;
    if digits.len() > DIGITS_MAX || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // Rejects an empty text.
    digits.parse().ok().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use hotrow_http1::fields::FieldsBuf;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(5);

    fn deadline_ms(values: &[&str]) -> Option<u64> {
        let headers: FieldsBuf = values.iter().map(|value| (HOTROW_DEADLINE_MS, value)).collect();
        of(headers.as_fields(), TIMEOUT, RequestTimes::of_arrival(Nanos(1_000_000)))
            .ok()
            .map(|deadline| deadline.0 / 1_000_000 - 1)
    }

    #[test]
    fn the_deadline_is_the_earlier_of_header_and_time_out() {
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

    #[test]
    fn the_header_counts_from_the_head_and_the_time_out_from_the_end() {
        let ms = |ms: u64| Nanos(ms * 1_000_000);
        // An upload of ten seconds, and a delay of a second by a rate limit, which does not extend
        // the deadline.
        let at = RequestTimes { arrived: ms(1_000), complete: ms(11_000), now: ms(12_000) };
        assert_eq!(of(Fields::default(), TIMEOUT, at), Ok(ms(16_000)));
        let with_header = |value: &str| FieldsBuf::from_iter([(HOTROW_DEADLINE_MS, value)]);
        let deadline = |headers: &FieldsBuf| of(headers.as_fields(), TIMEOUT, at);
        assert_eq!(deadline(&with_header("2000")), Ok(ms(3_000)), "past already");
        assert_eq!(deadline(&with_header("12500")), Ok(ms(13_500)));
        assert_eq!(deadline(&with_header("60000")), Ok(ms(16_000)));
    }
}
