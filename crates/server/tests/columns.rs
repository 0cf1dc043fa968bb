//! Views of records, over real connections: a client whose roles read some columns alone.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking, in helpers too")]

mod common;

use common::tenants::{Options, Raw, TenantService};

const WHOLE: &str = r#"{"id":1,"price":5,"na\"me":"x,\"}","more":{"id":2}}"#;
const VIEW: &str = r#"{"id":1,"na\"me":"x,\"}"}"#;
const OTHER: &str = r#"{"id":2}"#;

fn start(columns: &'static [&'static str]) -> TenantService {
    let own = format!("\"acme\"{WHOLE}");
    let other = format!("\"other\"{OTHER}");
    TenantService::start(&[(1, &own), (2, &other)], Options { columns, ..Options::default() })
}

fn get(service: &TenantService, client: &str, fields: &str) -> Raw {
    service.ask(client, "GET", "/accounts/1", fields)
}

fn tag(answer: &Raw) -> String {
    answer.field("etag").unwrap().to_owned()
}

#[test]
fn a_view_has_its_own_body_length_and_tag() {
    let service = start(&["na\"me", "id", "other"]);
    let whole = get(&service, "acme", "");
    // From the read, and from memory.
    for _ in 0..2 {
        let view = get(&service, "narrow", "");
        assert_eq!((view.status, &*view.body), (200, VIEW));
        assert_eq!(get(&service, "acme", "").body, WHOLE);
        assert_eq!(get(&service, "two roles", "").body, WHOLE, "the roles add up");
        assert_ne!(tag(&view), tag(&whole));
        let head = service.ask("narrow", "HEAD", "/accounts/1", "");
        let length = VIEW.len().to_string();
        assert_eq!((head.field("content-length"), &*head.body), (Some(&*length), ""));
        assert_eq!(tag(&head), tag(&view));
        for (fields, status) in [
            (format!("If-None-Match: {}\r\n", tag(&view)), 304),
            (format!("If-None-Match: {}\r\n", tag(&whole)), 200),
            ("If-None-Match: *\r\n".to_owned(), 304),
            (format!("If-Match: {}\r\n", tag(&view)), 200),
            (format!("If-Match: {}\r\n", tag(&whole)), 412),
        ] {
            let answer = get(&service, "narrow", &fields);
            assert_eq!((answer.status, tag(&answer)), (status, tag(&view)), "{fields}");
            assert!(status != 304 || answer.body.is_empty());
        }
    }
    assert_eq!(service.queries(), 1, "one entry serves all");
}

#[test]
fn batches_have_views_too() {
    let service = start(&["na\"me", "id"]);
    service.pass(10);
    let body = format!(r#"{{"items":{{"1":{VIEW}}},"missing":["2","3"]}}"#);
    for _ in 0..2 {
        assert_eq!(service.ask("narrow", "GET", "/accounts?ids=1,2,3", "").body, body);
        assert_eq!(service.ask("narrow", "POST", "/accounts#1,2,3", "").body, body);
    }
    let position = "Hotrow-Min-Position: 0000000000000001-5\r\n";
    assert_eq!(service.ask("narrow", "GET", "/accounts?ids=1,2,3", position).body, body);
    assert_eq!(get(&service, "narrow", position).body, VIEW);
    assert_eq!(get(&service, "narrow", "Cache-Control: no-cache\r\n").body, VIEW);
}

#[test]
fn a_change_of_other_columns_does_not_change_the_tag() {
    let service = start(&["id"]);
    let [view, whole] = ["narrow", "acme"].map(|client| tag(&get(&service, client, "")));
    service.change(1, r#""acme"{"id":1,"price":6}"#, 50);
    let answers = ["narrow", "acme"].map(|client| get(&service, client, ""));
    assert_eq!((tag(&answers[0]), &*answers[0].body), (view, r#"{"id":1}"#));
    assert_ne!(tag(&answers[1]), whole);
}

#[test]
fn without_a_granted_column_a_record_is_an_empty_object() {
    let service = start(&[]);
    assert_eq!(get(&service, "narrow", "").body, "{}");
    assert_eq!(service.ask("narrow", "GET", "/accounts/2", "").status, 404, "another tenant's");
    assert_eq!(service.ask("narrow", "GET", "/accounts/3", "").status, 404);
}
