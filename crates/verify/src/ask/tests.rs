use super::*;
use crate::row::payload;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0";
const AT: Position = Position { log: 0xab, at: 7 };

fn shape() -> Shape {
    Shape { collection: "c".to_owned(), key: "id".to_owned(), key_type: KeyType::Text }
}

fn row(key: u32, version: u64) -> String {
    format!(r#"{{"id":"k{key}","version":{version},"payload":"{}"}}"#, payload(key, version))
}

fn read(ask: &Ask, head: &str, body: &str) -> Vec<Seen> {
    let known = |_, etag: &str| (etag == "\"5\"").then_some(5);
    ask.read(&Answer::of(head, body), &shape(), Origin::Instance(0), known)
}

fn is_invented(seen: &[Seen]) -> bool {
    seen.iter().all(|seen| matches!(seen, Seen::Invented(_)))
}

#[test]
fn a_record_its_absence_and_refusals_are_told_apart() {
    let plain = Ask::plain(1);
    assert_eq!(read(&plain, OK, &row(1, 5)), [Seen::Version(5)]);
    assert_eq!(read(&plain, "HTTP/1.1 404 Not Found", ""), [Seen::Absent]);
    assert_eq!(read(&plain, "HTTP/1.1 503 Busy", ""), [Seen::Refused(503)]);
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
    let bad_gateway = Answer::of("HTTP/1.1 502 Bad Gateway", "");
    let balanced = plain.read(&bad_gateway, &shape(), Origin::Balancer(0), |_, _| None);
    assert_eq!(balanced, [Seen::Refused(502)]);
    let session = Ask { keys: vec![(1, Wish::Session { position: AT, floor: 1 })], ..plain };
    assert_eq!(read(&session, "HTTP/1.1 400 Bad", ""), [Seen::PositionRefused]);
}

#[test]
fn etags_stand_for_versions() {
    let head = Ask { form: Form::Head, ..Ask::plain(1) };
    assert_eq!(read(&head, "HTTP/1.1 200 OK\r\nETag: \"5\"", ""), [Seen::Version(5)]);
    assert_eq!(read(&head, "HTTP/1.1 200 OK\r\nETag: \"6\"", ""), [Seen::SomeRow]);
    let known = Some((9, "\"9\"".to_owned()));
    let conditional = Ask { form: Form::Conditional, known, ..Ask::plain(1) };
    assert_eq!(read(&conditional, "HTTP/1.1 304 Same\r\nETag: \"9\"", ""), [Seen::Version(9)]);
    assert!(is_invented(&read(&conditional, "HTTP/1.1 304 Same\r\nETag: \"8\"", "")));
    assert_eq!(read(&conditional, OK, &row(1, 5)), [Seen::Version(5)]);
    assert!(conditional.request(&shape()).headers.contains(&("If-None-Match", "\"9\"".to_owned())));
}

#[test]
fn a_batch_answers_each_id_once() {
    let keys = vec![(1, Wish::NoCache), (2, Wish::NoCache)];
    let batch = Ask { form: Form::BatchPost, keys, known: None };
    let body = |items: &str, missing: &str| format!(r#"{{"items":{{{items}}},"missing":[{missing}]}}"#);
    let one = format!(r#""k1":{}"#, row(1, 5));
    assert_eq!(read(&batch, OK, &body(&one, r#""k2""#)), [Seen::Version(5), Seen::Absent]);
    assert_eq!(read(&batch, "HTTP/1.1 504 Late", ""), [Seen::Refused(504), Seen::Refused(504)]);
    // Neither, both, another's record, no batch.
    for wrong in [body(&one, ""), body(&one, r#""k1","k2""#), body(&format!(r#""k1":{}"#, row(2, 5)), r#""k2""#)] {
        assert!(read(&batch, OK, &wrong).iter().any(|seen| matches!(seen, Seen::Invented(_))), "{wrong}");
    }
    assert!(is_invented(&read(&batch, OK, "{}")) && is_invented(&read(&batch, "HTTP/1.1 404 No", "")));
    let request = batch.request(&shape());
    assert_eq!((request.method, request.path.as_str()), ("POST", "/c"));
    assert_eq!(request.body.as_deref(), Some(r#"{"ids":["k1","k2"]}"#));
    assert_eq!(request.headers, [("Cache-Control", "no-cache".to_owned())]);
    let get = Ask { form: Form::BatchGet, ..batch };
    assert_eq!(get.request(&shape()).path, "/c?ids=k1,k2");
}

#[test]
fn what_stands_beside_the_record_is_noted() {
    let head = format!("{OK}\r\nHotrow-Cache: stale\r\nAge: 3\r\nHotrow-Position: {AT}");
    let ask = Ask::plain(1);
    let noted = ask.observations(&Answer::of(&head, ""), vec![Seen::Absent], Origin::Balancer(2), 4);
    let [noted] = noted.as_slice() else { panic!("one key, one observation") };
    assert_eq!((noted.outcome, noted.age_s, noted.position), (Outcome::Stale, Some(3), Some(AT)));
    assert_eq!((noted.key, noted.reader, noted.origin), (1, 4, Origin::Balancer(2)));
    assert_eq!((noted.sent_ns, noted.received_ns), (1, 2));
}
