//! Conversion of a record to an answer with the headers of the contract.

use std::cell::RefCell;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use hotrow_cache::{Freshness, Presence, Record};
use hotrow_types::version::Position;
use http::header::{AGE, ALLOW, CACHE_CONTROL, CONTENT_TYPE, ETAG};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use crate::body::Body;
use crate::http_error::HttpError;
use crate::metrics::CacheOutcome;
use crate::precondition::{self, Precondition};

/// Outcome of the cache.
pub(crate) const HOTROW_CACHE: HeaderName = HeaderName::from_static("hotrow-cache");
/// The session token.
pub(crate) const HOTROW_POSITION: HeaderName = HeaderName::from_static("hotrow-position");
/// A session token that the answer must reflect.
pub(crate) const HOTROW_MIN_POSITION: HeaderName = HeaderName::from_static("hotrow-min-position");

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const ETAG_BYTES: usize = 18;
/// Allocation for the header values of many answers, so that the hit path does not allocate.
const ARENA_BYTES: usize = 16 << 10;

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
    request_headers: &HeaderMap,
    cache_control: &HeaderValue,
) -> Response<Body> {
    let (etag, position) = header_values(&record);
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
const MISSING: &[u8] = b"{\"detail\":\"the database has no record with this id\",\
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

/// Returns whole seconds, rounded to the nearest.
fn seconds(age: Duration) -> HeaderValue {
    const ZERO: HeaderValue = HeaderValue::from_static("0");
    match age.saturating_add(Duration::from_millis(500)).as_secs() {
        0 => ZERO,
        // RFC 9111, section 1.2.2: values above 2^31 are not needed.
        s => HeaderValue::from(s.min(1 << 31)),
    }
}

/// Writer of a worker's header values.
struct HeaderWriter {
    arena: BytesMut,
    /// Most entries were read while the feed stood still, so neighbours share their position.
    last: Option<(Position, HeaderValue)>,
}

impl HeaderWriter {
    fn position(&mut self, position: Position) -> HeaderValue {
        match &self.last {
            Some((last, value)) if *last == position => value.clone(),
            _ => {
                let value = text(&mut self.arena, Position::TEXT_BYTES_MAX, |out| {
                    put_position(out, position)
                });
                self.last = Some((position, value.clone()));
                value
            }
        }
    }
}

thread_local! {
    static HEADER_WRITER: RefCell<HeaderWriter> = RefCell::new(HeaderWriter {
        arena: BytesMut::with_capacity(ARENA_BYTES),
        last: None,
    });
}

/// Writes `ETag` and `Hotrow-Position` into the worker's arena.
fn header_values(record: &Record) -> (HeaderValue, Option<HeaderValue>) {
    HEADER_WRITER.with_borrow_mut(|pen| {
        let etag = text(&mut pen.arena, ETAG_BYTES, |out| put_etag(out, record.body_hash()));
        (etag, record.position().map(|position| pen.position(position)))
    })
}

/// Returns a position as a header value.
#[must_use]
pub(crate) fn position_value(position: Position) -> HeaderValue {
    HEADER_WRITER.with_borrow_mut(|pen| pen.position(position))
}

fn text(arena: &mut BytesMut, bytes_max: usize, write: impl FnOnce(&mut BytesMut)) -> HeaderValue {
    if arena.capacity() - arena.len() < bytes_max {
        *arena = BytesMut::with_capacity(ARENA_BYTES);
    }
    write(arena);
    let value: Bytes = arena.split().freeze();
    // Only digits, letters, quotes and hyphens are written.
    HeaderValue::from_maybe_shared(value).unwrap_or(HeaderValue::from_static(""))
}

fn put_etag(out: &mut BytesMut, hash: u64) {
    out.put_u8(b'"');
    put_hex(out, hash);
    out.put_u8(b'"');
}

fn put_position(out: &mut BytesMut, position: Position) {
    put_hex(out, position.incarnation);
    out.put_u8(b'-');
    out.put_slice(itoa::Buffer::new().format(position.at).as_bytes());
}

fn put_hex(out: &mut BytesMut, value: u64) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits: [u8; 16] = std::array::from_fn(|i| DIGITS[(value >> (60 - 4 * i)) as usize & 15]);
    out.put_slice(&digits);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_equal_the_ordinary_formatting() {
        let position = Position { incarnation: 0x1234_5678_9abc_def0, at: u64::MAX };
        assert_eq!(position_value(position).to_str().unwrap(), position.to_string());
        let mut out = BytesMut::new();
        put_etag(&mut out, 0xff00);
        assert_eq!(&out[..], b"\"000000000000ff00\"");
        for _ in 0..2000 {
            assert_eq!(position_value(position).len(), Position::TEXT_BYTES_MAX);
        }
    }

    #[test]
    fn ages_round_to_the_nearest_second() {
        for (ms, text) in [(0, "0"), (499, "0"), (500, "1"), (1499, "1"), (61_000, "61")] {
            assert_eq!(seconds(Duration::from_millis(ms)), text);
        }
        assert_eq!(seconds(Duration::MAX), "2147483648");
    }
}
