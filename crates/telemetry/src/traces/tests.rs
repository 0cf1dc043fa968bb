//! Which requests are traced, what a query reports to them, and what a server span says.

use hotrow_http1::fields::FieldsBuf;
use hotrow_otel::span::Value;
use hotrow_source::{ReadSet, Row, SourceError};
use hotrow_types::key::{CollectionId, KeySchema, KeyType};
use hotrow_types::source::SourceId;
use hotrow_types::version::Version;

use super::waiting::REQUESTS_MAX;
use super::*;
use crate::access_log::RequestLine;
use crate::request::Notes;
use crate::request::Protocol;

const FIRST: CollectionId = CollectionId(0);

fn tracer(sample: f64, requests_per_s_max: u32) -> Arc<Tracer> {
    let trace = Trace {
        endpoint: "http://localhost/v1/traces".parse().unwrap(),
        ca_file: None,
        headers_file: None,
        sample,
        service_name: "hotrow".to_owned(),
        requests_per_s_max,
        has_keys: false,
    };
    let names = [("c0".to_owned(), SourceId::FIRST)].into_iter().collect();
    let database = DatabaseName {
        system: "sqlite",
        namespace: None,
        operation: "SELECT",
        tables: vec!["c0".to_owned()],
    };
    Tracer::new(&trace, false, names, [database])
}

fn key(id: usize) -> Key {
    KeySchema::new(FIRST, vec![KeyType::Integer]).parse_url(&id.to_string()).unwrap()
}

fn recorded(trace_id: u32) -> FieldsBuf {
    let value = format!("00-{trace_id:032x}-00f067aa0ba902b7-01");
    FieldsBuf::from_iter([("traceparent", value)])
}

fn ended<'a>(
    keys: &'a [Key],
    sent_at: Nanos,
    result: &'a Result<ReadSet, SourceError>,
) -> EndedQuery<'a> {
    EndedQuery { collection: FIRST, keys, sent_at, ended_at: Nanos::now(), result }
}

fn found(rows: usize) -> Result<ReadSet, SourceError> {
    let rows = vec![Row::Found(b"{}".to_vec()); rows];
    Ok(ReadSet { version: Version::Unknown, position: None, rows })
}

#[test]
fn waiting_requests_are_bounded_and_leave_nothing() {
    let tracer = tracer(0.0, u32::MAX);
    let keys: Vec<Key> = (0..100).map(key).collect();
    let all: Vec<&Key> = keys.iter().collect();
    let fields = recorded(1);
    let wait = || tracer.wait(fields.as_fields(), &all, ReadKind::Normal);
    let waiting: Vec<_> = (0..REQUESTS_MAX).map(|_| wait().unwrap()).collect();
    assert!(wait().is_none());
    assert_eq!(tracer.recorder.dropped_total(DropReason::InFlight), 1);
    // Each enters some of its keys, and a query has some of the requests.
    let span = tracer.query_ended(&ended(&keys, Nanos::now(), &found(100))).unwrap();
    assert!(format!("{span:?}").contains("links_left_out: 192"), "{span:?}");
    drop(waiting);
    assert!(tracer.waiting.is_empty() && wait().is_some());
    let result = found(100);
    assert!(tracer.query_ended(&ended(&keys, Nanos::now(), &result)).is_none());
}

#[test]
fn requests_that_no_caller_records_are_traced_by_chance() {
    let fields = FieldsBuf::default();
    let wait = |tracer: &Arc<Tracer>| tracer.wait(fields.as_fields(), &[], ReadKind::Normal);
    assert!(wait(&tracer(0.0, 9)).is_none());
    let all = tracer(1.0, 2);
    assert!(wait(&all).is_some());
    // The bound may begin anew in between.
    let traced = (0..100).filter(|_| wait(&all).is_some()).count();
    assert!(traced < 50, "{traced}");
    assert!(all.recorder.dropped_total(DropReason::Rate) >= 50);
}

#[test]
fn a_query_reports_to_the_requests_that_it_answers() {
    let tracer = tracer(0.0, 9);
    let keys = [key(1), key(2)];
    let wait = |id: usize, kind| {
        tracer.wait(recorded(id as u32 + 1).as_fields(), &[&keys[id]], kind).unwrap()
    };
    let sent_at = Nanos::now();
    // A new read is required: a query that was sent before does not answer it.
    let _new = wait(0, ReadKind::Revalidate);
    assert!(tracer.query_ended(&ended(&keys, sent_at, &found(2))).is_none());
    let _other = wait(1, ReadKind::Normal);
    assert!(tracer.query_ended(&ended(&keys[..1], sent_at, &found(1))).is_none());
    let span = tracer.query_ended(&ended(&keys, sent_at, &found(2))).unwrap();
    tracer.record_query(span, hotrow_cache::Fills::default());
    let batch = tracer.recorder.take_batch();
    assert_eq!(batch.len(), 1);
    assert!(batch[0].links.is_empty() && !batch[0].is_error);
    let failed = Err(SourceError::timeout("after 2 s of 'secret'"));
    let span = tracer.query_ended(&ended(&keys, Nanos::now(), &failed)).unwrap();
    tracer.record_query(span, hotrow_cache::Fills::default());
    let span = &tracer.recorder.take_batch()[0];
    assert!(span.is_error && span.links.len() == 1);
    assert!(!format!("{span:?}").contains("secret"), "{span:?}");
}

/// Returns the name and the attributes of a server span, as texts.
fn server_span(
    method: &str,
    target: &str,
    collection: Option<CollectionId>,
    status: u16,
) -> (String, String, bool) {
    let tracer = tracer(0.0, 9);
    let request = AnsweredRequest {
        line: RequestLine { method: method.as_bytes(), target: target.as_bytes() },
        protocol: Protocol::Http2,
        is_over_unix: false,
        notes: Notes { collection, ..Notes::default() },
        status,
        outcome: CacheOutcome::None,
        since: Nanos::now(),
        now: Nanos::now(),
    };
    let span = tracer.server_span(&WallClock::read(), tracer.span_under(None), &request);
    let text = |value: &Value| match value {
        Value::Text(text) => text.to_string(),
        other => panic!("{other:?}"),
    };
    let path = span.attributes.iter().find(|attribute| attribute.name == "url.path").unwrap();
    (text(&span.name), text(&path.value), span.is_error)
}

#[test]
fn server_spans_have_few_names_and_no_ids() {
    let own = |text: &str| text.to_owned();
    for (method, target, collection, status, name, path, is_error) in [
        ("GET", "/c0/7?fields=a", Some(FIRST), 404, "GET /c0/{id}", "/c0/REDACTED", false),
        ("HEAD", "/c0/7/8", Some(FIRST), 503, "HEAD /c0/{id}", "/c0/REDACTED", true),
        ("GET", "/c0?ids=7/8", Some(FIRST), 200, "GET /c0", "/c0", false),
        ("POST", "/c0", Some(FIRST), 500, "POST /c0", "/c0", true),
        ("GET", "/secret", None, 404, "GET", "REDACTED", false),
        ("BREW", "/secret", None, 405, "HTTP", "REDACTED", false),
    ] {
        let found = server_span(method, target, collection, status);
        assert_eq!(found, (own(name), own(path), is_error), "{method} {target}");
    }
}

#[test]
fn a_clock_reading_becomes_unix_time() {
    let clock = WallClock { now: Nanos(5_000), unix_ns: 1_000_000 };
    assert_eq!(clock.unix_ns(Nanos(4_000)), 999_000);
    // Later readings are of the same moment.
    assert_eq!(clock.unix_ns(Nanos(6_000)), 1_000_000);
}
