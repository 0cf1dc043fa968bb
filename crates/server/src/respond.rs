//! Conversion of a record to an answer with the headers of the contract.

use std::time::Duration;

use bytes::Bytes;
use hotrow_cache::{Freshness, Presence, Record};
use hotrow_http1::fields::Fields;
use http::header::{AGE, ALLOW, CACHE_CONTROL, CONTENT_TYPE, ETAG};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use crate::body::Body;
use crate::header_writer::HeaderWriter;
use crate::http_error::HttpError;
use crate::metrics::CacheOutcome;
use crate::precondition::{self, Precondition};

/// Outcome of the cache.
pub(crate) const HOTROW_CACHE: HeaderName = HeaderName::from_static("hotrow-cache");
/// The session token.
pub(crate) const HOTROW_POSITION: HeaderName = HeaderName::from_static("hotrow-position");
/// A session token that the answer must reflect.
pub(crate) const HOTROW_MIN_POSITION: &str = "hotrow-min-position";

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Metadata of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Provenance {
    /// Outcome of the cache.
    pub outcome: CacheOutcome,
    /// Largest possible age of its content.
    pub age: Duration,
}

impl Provenance {
    /// Returns the provenance of an answer from the store.
    #[must_use]
    pub(crate) fn of_hit(quality: Freshness, age: Duration) -> Self {
        let outcome = match quality {
            Freshness::Fresh => CacheOutcome::Hit,
            Freshness::Expired | Freshness::Stale => CacheOutcome::Stale,
        };
        Self { outcome, age }
    }
}

/// Answers with a record: 200 or 404, or the 304 or 412 that the conditions in the request's
/// headers require.
#[must_use]
pub(crate) fn respond(
    record: Record,
    provenance: Provenance,
    request_headers: Fields<'_>,
    cache_control: &HeaderValue,
    header_writer: &HeaderWriter,
) -> Response<Body> {
    let etag = header_writer.etag(record.body_hash());
    let position = record.position().map(|position| header_writer.position(position));
    let found = record.presence() == Presence::Found;
    let condition = precondition::evaluate(request_headers, found.then_some(etag.as_bytes()));
    let mut response = match (record.presence(), condition) {
        (presence, Precondition::Fails) => precondition_failed(presence, etag),
        (Presence::Missing, _) => missing(),
        (Presence::Found, Precondition::NotModified) => {
            let mut response = Response::new(Body::Empty);
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response.headers_mut().reserve(6);
            response.headers_mut().insert(ETAG, etag);
            response
        }
        (Presence::Found, Precondition::Holds) => {
            let mut response = Response::new(Body::Record(record));
            response.headers_mut().reserve(8);
            response.headers_mut().insert(CONTENT_TYPE, JSON);
            response.headers_mut().insert(ETAG, etag);
            response
        }
    };
    let headers = response.headers_mut();
    let storable = condition != Precondition::Fails;
    headers.insert(CACHE_CONTROL, if storable { cache_control.clone() } else { NO_STORE });
    describe(headers, provenance, position);
    response
}

/// Answers 412 with the record's tag. It holds for this request's condition only, so no cache may
/// reuse it.
fn precondition_failed(presence: Presence, etag: HeaderValue) -> Response<Body> {
    let detail = match presence {
        Presence::Found => "If-Match does not match the present record; its entity tag is in ETag",
        Presence::Missing => "If-Match needs a record, and the database has none with this id",
    };
    let mut response = HttpError::PreconditionFailed(detail).response();
    if presence == Presence::Found {
        response.headers_mut().insert(ETAG, etag);
    }
    response
}

/// Answers `OPTIONS *` with the methods of the whole server (RFC 9110 section 9.3.7).
pub(crate) fn capabilities(methods: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    response
}

/// Prebuilt, because an attacker may request missing ids as fast as others request records.
pub(crate) const MISSING: &[u8] = b"{\"detail\":\"the database has no record with this id\",\
    \"status\":404,\"title\":\"No such record\",\"type\":\"about:blank\"}";

fn missing() -> Response<Body> {
    let mut response = Response::new(Body::Bytes(Bytes::from_static(MISSING)));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response
}

/// Adds the headers of every answer with data.
pub(crate) fn describe(
    headers: &mut HeaderMap,
    provenance: Provenance,
    position: Option<HeaderValue>,
) {
    headers.insert(AGE, seconds(provenance.age));
    headers.insert(HOTROW_CACHE, HeaderValue::from_static(provenance.outcome.label()));
    if let Some(position) = position {
        headers.insert(HOTROW_POSITION, position);
    }
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
