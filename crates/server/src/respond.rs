//! From a record to an answer: the headers of the contract.

use std::cell::RefCell;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use hotrow_cache::version::Position;
use hotrow_cache::{Presence, Quality, Record};
use http::header::{AGE, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use crate::body::Body;
use crate::metrics::CacheOutcome;

/// How the answer came about.
pub(crate) const HOTROW_CACHE: HeaderName = HeaderName::from_static("hotrow-cache");
/// The session token.
pub(crate) const HOTROW_POSITION: HeaderName = HeaderName::from_static("hotrow-position");
/// A session token that the answer must reflect.
pub(crate) const HOTROW_MIN_POSITION: HeaderName = HeaderName::from_static("hotrow-min-position");

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const ETAG_BYTES: usize = 18;
/// Room that is taken for the header values of many answers at once, so that the hit path does not allocate.
const ARENA_BYTES: usize = 16 << 10;

/// What an answer says about itself beside the record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Provenance {
    /// How it came about.
    pub outcome: CacheOutcome,
    /// How old its knowledge is at most.
    pub age: Duration,
}

impl Provenance {
    /// Of an answer out of the store.
    #[must_use]
    pub(crate) fn of_hit(quality: Quality, age: Duration) -> Self {
        let outcome = match quality {
            Quality::Fresh => CacheOutcome::Hit,
            Quality::Expired | Quality::Stale => CacheOutcome::Stale,
        };
        Self { outcome, age }
    }
}

/// Answers with a record: 200, 404, or 304 where `asked` (the request's headers) already has it.
#[must_use]
pub(crate) fn respond(
    record: Record,
    provenance: Provenance,
    asked: &HeaderMap,
    cache_control: &HeaderValue,
) -> Response<Body> {
    let (etag, position) = header_values(&record);
    let mut response = match record.presence() {
        Presence::Missing => missing(),
        Presence::Found if asked.get_all(IF_NONE_MATCH).iter().any(|tags| matches(tags, &etag)) => {
            let mut response = Response::new(Body::Empty);
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response.headers_mut().reserve(6);
            response.headers_mut().insert(ETAG, etag);
            response
        }
        Presence::Found => {
            let mut response = Response::new(Body::Record(record));
            response.headers_mut().reserve(8);
            response.headers_mut().insert(CONTENT_TYPE, JSON);
            response.headers_mut().insert(ETAG, etag);
            response
        }
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, cache_control.clone());
    describe(headers, provenance, position);
    response
}

/// Written out, for an attacker may ask for missing ids as fast as others ask for records.
const MISSING: &[u8] = br#"{"detail":"the database has no record with this id","status":404,"title":"No such record","type":"about:blank"}"#;

fn missing() -> Response<Body> {
    let mut response = Response::new(Body::Bytes(Bytes::from_static(MISSING)));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response
}

/// The headers that every answer with data carries.
pub(crate) fn describe(headers: &mut HeaderMap, provenance: Provenance, position: Option<HeaderValue>) {
    headers.insert(AGE, seconds(provenance.age));
    headers.insert(HOTROW_CACHE, HeaderValue::from_static(provenance.outcome.label()));
    if let Some(position) = position {
        headers.insert(HOTROW_POSITION, position);
    }
}

/// Whole seconds, rounded to the nearest.
fn seconds(age: Duration) -> HeaderValue {
    const ZERO: HeaderValue = HeaderValue::from_static("0");
    match age.saturating_add(Duration::from_millis(500)).as_secs() {
        0 => ZERO,
        // RFC 9111, section 1.2.2: no one needs to represent more than 2^31.
        s => HeaderValue::from(s.min(1 << 31)),
    }
}

/// What a worker writes header values with.
struct Pen {
    arena: BytesMut,
    /// Most entries were read while the log stood still, so neighbours share their position.
    last: Option<(Position, HeaderValue)>,
}

impl Pen {
    fn position(&mut self, position: Position) -> HeaderValue {
        match &self.last {
            Some((last, value)) if *last == position => value.clone(),
            _ => {
                let value = text(&mut self.arena, Position::TEXT_BYTES_MAX, |out| put_position(out, position));
                self.last = Some((position, value.clone()));
                value
            }
        }
    }
}

thread_local! {
    static PEN: RefCell<Pen> = RefCell::new(Pen { arena: BytesMut::with_capacity(ARENA_BYTES), last: None });
}

/// `ETag` and `Hotrow-Position`, written into the worker's arena.
fn header_values(record: &Record) -> (HeaderValue, Option<HeaderValue>) {
    PEN.with_borrow_mut(|pen| {
        let etag = text(&mut pen.arena, ETAG_BYTES, |out| put_etag(out, record.body_hash()));
        (etag, record.position().map(|position| pen.position(position)))
    })
}

/// A position as a header value.
#[must_use]
pub(crate) fn position_value(position: Position) -> HeaderValue {
    PEN.with_borrow_mut(|pen| pen.position(position))
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

/// Whether a list of entity tags names this one (RFC 9110, section 13.1.2: weak comparison).
fn matches(tags: &HeaderValue, etag: &HeaderValue) -> bool {
    let Ok(tags) = tags.to_str() else { return false };
    tags.trim() == "*"
        || tags.split(',').any(|tag| {
            let tag = tag.trim();
            tag.strip_prefix("W/").unwrap_or(tag).as_bytes() == etag.as_bytes()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entity_tags_compare_weakly() {
        let etag = HeaderValue::from_static("\"00ab\"");
        for yes in ["\"00ab\"", "W/\"00ab\"", "\"x\", \"00ab\"", "*", " * "] {
            assert!(matches(&HeaderValue::from_static(yes), &etag), "{yes}");
        }
        for no in ["00ab", "\"00AB\"", "\"\"", "", "\"x\",\"y\"", "w/\"00ab\""] {
            assert!(!matches(&HeaderValue::from_static(no), &etag), "{no}");
        }
    }

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
