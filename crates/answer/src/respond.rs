//! Header fields of the contract, and the answers over HTTP that consist of little else.

use std::time::Duration;

use bytes::Bytes;
use hotrow_cache::{Freshness, Record};
use hotrow_representation::record_form::etag;
use hotrow_telemetry::outcome::CacheOutcome;
use hotrow_types::version::Position;
use http::header::{AGE, ALLOW, CACHE_CONTROL, ETAG};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use crate::body::Body;
use crate::http_error::HttpError;

/// Outcome of the cache.
pub(crate) const HOTROW_CACHE: HeaderName = HeaderName::from_static("hotrow-cache");
/// The session token.
pub const HOTROW_POSITION: HeaderName = HeaderName::from_static("hotrow-position");
/// A session token that the answer must reflect.
pub(crate) const HOTROW_MIN_POSITION: &str = "hotrow-min-position";

/// What answers of collections with compression vary by.
pub(crate) const ACCEPT_ENCODING: &str = "accept-encoding";

/// `Cache-Control` of answers that no cache may keep.
pub const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Metadata of an answer.
#[derive(Clone, Copy, Debug)]
pub struct Provenance {
    /// Outcome of the cache.
    pub outcome: CacheOutcome,
    /// Largest possible age of its content.
    pub age: Duration,
}

impl Provenance {
    /// Returns the provenance of an answer from the store.
    #[must_use]
    pub fn of_hit(quality: Freshness, age: Duration) -> Self {
        let outcome = match quality {
            Freshness::Fresh => CacheOutcome::Hit,
            Freshness::Expired | Freshness::Stale => CacheOutcome::Stale,
        };
        Self { outcome, age }
    }

    /// Returns the provenance of an answer that depends on two lookups.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        let is_worse = other.outcome.badness() > self.outcome.badness();
        let outcome = if is_worse { other.outcome } else { self.outcome };
        Self { outcome, age: self.age.max(other.age) }
    }
}

/// Answers 412 with the tag of the record, or of the sender's view of it, by its `hash`. It holds
/// for this request's condition only, so no cache may reuse it.
pub fn precondition_failed(
    record: &Record,
    hash: Option<u64>,
    provenance: Provenance,
) -> Response<Body> {
    let mut response = HttpError::PreconditionFailed(if hash.is_some() {
        "If-Match does not match the present record; its entity tag is in ETag"
    } else {
        "If-Match needs a record, and the database has none with this id"
    })
    .response();
    let headers = response.headers_mut();
    if let Some(hash) = hash {
        headers.insert(ETAG, value_of(etag(hash).to_vec()));
    }
    headers.insert(CACHE_CONTROL, NO_STORE);
    describe(headers, provenance, record.position().map(position_value));
    response
}

/// Answers `OPTIONS *` with the methods of the whole server (RFC 9110 section 9.3.7).
pub fn capabilities(methods: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    response
}

/// Prebuilt, because an attacker may request missing ids as fast as others request records.
pub(crate) const MISSING: &[u8] = b"{\"detail\":\"the database has no record with this id\",\
    \"status\":404,\"title\":\"No such record\",\
    \"type\":\"/docs/reference/errors.md#no-such-record\"}";

/// Adds the headers of every answer with data.
pub fn describe(headers: &mut HeaderMap, provenance: Provenance, position: Option<HeaderValue>) {
    headers.insert(AGE, seconds(provenance.age));
    headers.insert(HOTROW_CACHE, HeaderValue::from_static(provenance.outcome.label()));
    if let Some(position) = position {
        headers.insert(HOTROW_POSITION, position);
    }
}

/// Returns a position as a header value.
pub fn position_value(position: Position) -> HeaderValue {
    value_of(position.to_string().into_bytes())
}

/// Returns digits, letters, quotes and hyphens as a header value.
fn value_of(text: Vec<u8>) -> HeaderValue {
    HeaderValue::from_maybe_shared(Bytes::from(text)).unwrap_or(HeaderValue::from_static(""))
}

fn seconds(age: Duration) -> HeaderValue {
    const ZERO: HeaderValue = HeaderValue::from_static("0");
    match age_seconds(age) {
        0 => ZERO,
        seconds => HeaderValue::from(seconds),
    }
}

/// Returns whole seconds, rounded to the nearest. Values above 2^31 are not needed (RFC 9111
/// section 1.2.2).
pub(crate) fn age_seconds(age: Duration) -> u64 {
    age.saturating_add(Duration::from_millis(500)).as_secs().min(1 << 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_round_to_the_nearest_second() {
        for (ms, text) in [(0, "0"), (499, "0"), (500, "1"), (1499, "1"), (61_000, "61")] {
            assert_eq!(seconds(Duration::from_millis(ms)), text);
        }
        assert_eq!(seconds(Duration::MAX), "2147483648");
    }
}
