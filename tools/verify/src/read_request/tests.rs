use super::*;
use crate::history::History;
use crate::record_schema::{AliasSchema, Content};
use crate::row::{KeyType, payload};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0";
const AT: Position = Position { log: 0xab, at: 7 };

fn schema() -> RecordSchema {
    RecordSchema {
        collection: "c".to_owned(),
        key: "id".to_owned(),
        key_type: KeyType::Text,
        alias: None,
        embedded: None,
        other: None,
        keys: 9,
    }
}

/// A ledger that knows an `ETag` of the keys 1 and 2.
fn ledger() -> Ledger {
    let histories = vec![History::starting(true); 9];
    let ledger = Ledger::new(histories.clone(), histories, 1);
    [1, 2].iter().for_each(|key| ledger.saw_etag(*key, "\"5\"", 5));
    ledger
}

fn row(key: u32, version: u64) -> String {
    format!(r#"{{"id":"k{key}","version":{version},"payload":"{}"}}"#, payload(key, version))
}

fn read(ask: &ReadRequest, head: &str, body: &str) -> Vec<Claim> {
    claims(ask.read(&Response::of(head, body), &schema(), Origin::Instance(0), &ledger()))
}

fn claims(parts: Vec<Part>) -> Vec<Claim> {
    parts.into_iter().map(|(_, _, claim)| claim).collect()
}

fn is_invented(seen: &[Claim]) -> bool {
    seen.iter().all(|seen| matches!(seen, Claim::Invalid(_)))
}

#[test]
fn records_absences_and_refusals_are_distinguished() {
    let plain = ReadRequest::plain(1);
    assert_eq!(read(&plain, OK, &row(1, 5)), [Claim::Version(5)]);
    assert_eq!(read(&plain, "HTTP/1.1 404 Not Found", ""), [Claim::Absent]);
    assert_eq!(read(&plain, "HTTP/1.1 503 Busy", ""), [Claim::Refused(503)]);
    for (head, body) in [
        (OK, row(2, 5)),
        (OK, "[]".to_owned()),
        (OK, String::new()),
        ("HTTP/1.1 500 Oops", String::new()),
        ("HTTP/1.1 400 Bad", String::new()),
        ("HTTP/1.1 304 Same", String::new()),
        ("HTTP/1.1 502 Bad Gateway", String::new()),
    ] {
        assert!(is_invented(&read(&plain, head, &body)), "{head} {body}");
    }
    let bad_gateway = Response::of("HTTP/1.1 502 Bad Gateway", "");
    let balanced = plain.read(&bad_gateway, &schema(), Origin::Balancer(0), &ledger());
    assert_eq!(claims(balanced), [Claim::Refused(502)]);
    let session =
        ReadRequest { keys: vec![(1, Requirement::Session { position: AT, floor: 1 })], ..plain };
    assert_eq!(read(&session, "HTTP/1.1 400 Bad", ""), [Claim::PositionRefused]);
}

#[test]
fn etags_map_to_versions() {
    let head = ReadRequest { form: Form::Head, ..ReadRequest::plain(1) };
    assert_eq!(read(&head, "HTTP/1.1 200 OK\r\nETag: \"5\"", ""), [Claim::Version(5)]);
    assert_eq!(read(&head, "HTTP/1.1 200 OK\r\nETag: \"6\"", ""), [Claim::UnknownVersion]);
    let known = Some((9, "\"9\"".to_owned()));
    let conditional = ReadRequest { form: Form::Conditional, known, ..ReadRequest::plain(1) };
    assert_eq!(read(&conditional, "HTTP/1.1 304 Same\r\nETag: \"9\"", ""), [Claim::Version(9)]);
    assert!(is_invented(&read(&conditional, "HTTP/1.1 304 Same\r\nETag: \"8\"", "")));
    assert_eq!(read(&conditional, OK, &row(1, 5)), [Claim::Version(5)]);
    assert!(
        conditional.request(&schema()).headers.contains(&("If-None-Match", "\"9\"".to_owned()))
    );
}

#[test]
fn a_batch_has_each_id_once() {
    let keys = vec![(1, Requirement::NoCache), (2, Requirement::NoCache)];
    let batch = ReadRequest { form: Form::BatchPost, keys, known: None };
    let body =
        |items: &str, missing: &str| format!(r#"{{"items":{{{items}}},"missing":[{missing}]}}"#);
    let one = format!(r#""k1":{}"#, row(1, 5));
    assert_eq!(read(&batch, OK, &body(&one, r#""k2""#)), [Claim::Version(5), Claim::Absent]);
    assert_eq!(read(&batch, "HTTP/1.1 504 Late", ""), [Claim::Refused(504), Claim::Refused(504)]);
    // Neither, both, another key's record, not a batch.
    for wrong in [
        body(&one, ""),
        body(&one, r#""k1","k2""#),
        body(&format!(r#""k1":{}"#, row(2, 5)), r#""k2""#),
    ] {
        assert!(
            read(&batch, OK, &wrong).iter().any(|seen| matches!(seen, Claim::Invalid(_))),
            "{wrong}"
        );
    }
    assert!(
        is_invented(&read(&batch, OK, "{}")) && is_invented(&read(&batch, "HTTP/1.1 404 No", ""))
    );
    let request = batch.request(&schema());
    assert_eq!((request.method, request.path.as_str()), ("POST", "/c"));
    assert_eq!(request.body.as_deref(), Some(r#"{"ids":["k1","k2"]}"#));
    assert_eq!(request.headers, [("Cache-Control", "no-cache".to_owned())]);
    let get = ReadRequest { form: Form::BatchGet, ..batch };
    assert_eq!(get.request(&schema()).path, "/c?ids=k1,k2");
}

#[test]
fn a_snapshot_of_two_collections_has_parts_of_both() {
    let schema = RecordSchema { other: Some("d".to_owned()), ..schema() };
    let keys = [1, 2, 3].map(|key| (key, Requirement::Strict)).to_vec();
    let across = ReadRequest { form: Form::SnapshotAcross, keys, known: None };
    let request = across.request(&schema);
    assert_eq!((request.method, request.path.as_str()), ("POST", "/_snapshot"));
    assert_eq!(request.body.as_deref(), Some(r#"{"c":["k1","k3"],"d":["k1","k2"]}"#));
    assert_eq!(request.headers, [("Hotrow-Min-Position", "now".to_owned())]);
    let collection =
        |items: String, missing: &str| format!(r#"{{"items":{{{items}}},"missing":[{missing}]}}"#);
    let item = |key| format!(r#""k{key}":{}"#, row(key, 5));
    let own = collection(item(1), r#""k3""#);
    let other = collection(format!("{},{}", item(1), item(2)), "");
    let body = format!(r#"{{"position":"{AT}","collections":{{"c":{own},"d":{other}}}}}"#);
    let response = Response::of(OK, &body);
    let parts = across.read(&response, &schema, Origin::Instance(0), &ledger());
    let seen = |part: &Observation| (part.key, part.form, part.seen.clone());
    let observations = across.observations(&response, parts, Origin::Instance(0), 0);
    let (own, other) = (Form::SnapshotAcross, Form::SnapshotOther);
    let expected = [
        (1, own, Claim::Version(5)),
        (3, own, Claim::Absent),
        (1, other, Claim::Version(5)),
        (2, other, Claim::Version(5)),
    ];
    assert_eq!(observations.iter().map(seen).collect::<Vec<_>>(), expected);
    let parts = across.read(&Response::of(OK, "{}"), &schema, Origin::Instance(0), &ledger());
    assert!(is_invented(&claims(parts)));
    let get = ReadRequest { form: Form::SnapshotGet, ..across.clone() };
    assert_eq!(get.request(&schema).path, "/c?ids=k1,k2,k3&snapshot=true");
    let post = ReadRequest { form: Form::SnapshotPost, ..across };
    let body = post.request(&schema).body;
    assert_eq!(body.as_deref(), Some(r#"{"ids":["k1","k2","k3"],"snapshot":true}"#));
}

#[test]
fn headers_are_recorded() {
    let head = format!("{OK}\r\nHotrow-Cache: stale\r\nAge: 3\r\nHotrow-Position: {AT}");
    let ask = ReadRequest::plain(1);
    let parts = vec![(1, Requirement::Any, Claim::Absent)];
    let noted = ask.observations(&Response::of(&head, ""), parts, Origin::Balancer(2), 4);
    let [noted] = noted.as_slice() else { panic!("one key, one observation") };
    assert_eq!((noted.outcome, noted.age_s, noted.position), (Outcome::Stale, Some(3), Some(AT)));
    assert_eq!((noted.key, noted.reader, noted.origin), (1, 4, Origin::Balancer(2)));
    assert_eq!((noted.sent_ns, noted.received_ns), (1, 2));
}

#[test]
fn a_record_by_value_is_a_state_of_the_key_and_of_the_value() {
    let (name, column) = ("a".to_owned(), "handle".to_owned());
    let alias = AliasSchema { name, column, is_optional: false };
    let schema = RecordSchema { alias: Some(alias), ..schema() };
    let ledger = ledger();
    let content = Content { version: 5, value: Some(3), children: Vec::new() };
    ledger.staged(1, &content, 8, Some((12, 2)));
    let record = |handle: &str| row(1, 5).replace('}', &format!(r#","handle":"{handle}"}}"#));
    let read = |ask: &ReadRequest, body: &str| {
        ask.read(&Response::of(OK, body), &schema, Origin::Instance(0), &ledger)
    };
    let by_value = ReadRequest::by_value(12);
    assert_eq!(by_value.request(&schema).path, "/c/by/a/k3");
    let of_both =
        [(12, Requirement::Any, Claim::Version(2)), (1, Requirement::Any, Claim::Version(8))];
    assert_eq!(read(&by_value, &record("k3")), of_both);
    let batch = ReadRequest { form: Form::AliasBatch, ..by_value.clone() };
    assert_eq!(batch.request(&schema).path, "/c/by/a?ids=k3");
    let body = format!(r#"{{"items":{{"k3":{}}},"missing":[]}}"#, record("k3"));
    assert_eq!(read(&batch, &body), of_both);
    assert_eq!(claims(read(&ReadRequest::plain(1), &record("k3"))), [Claim::Version(8)]);
    // Another value than was asked for, and a value that this row never had.
    assert!(is_invented(&claims(read(&by_value, &record("k4")))));
    assert!(is_invented(&claims(read(&ReadRequest::plain(1), &record("k4")))));
}
