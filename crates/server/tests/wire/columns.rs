//! Views of records, over real connections: a client whose roles read some columns alone.

use std::path::Path;
use std::sync::Arc;

use crate::common::tenants::{ACCOUNTS, Options, Raw, TenantService};
use crate::common::{Client, wait_until};
use hotrow_config::access::{Access, GrantsFile};
use hotrow_types::columns::Columns;
use serde_json::Value;

const WHOLE: &str = r#"{"id":1,"price":5,"na\"me":"x,\"}","more":{"id":2}}"#;
const VIEW: &str = r#"{"id":1,"na\"me":"x,\"}"}"#;
const OTHER: &str = r#"{"id":2}"#;

fn start(columns: &'static [&'static str]) -> TenantService {
    start_with(Options { columns, ..Options::default() }, |_| {})
}

fn start_with(options: Options, change: impl FnOnce(&mut Access)) -> TenantService {
    let own = format!("\"acme\"{WHOLE}");
    let other = format!("\"other\"{OTHER}");
    TenantService::start_with(&[(1, &own), (2, &other)], options, change)
}

fn get(service: &TenantService, client: &str, fields: &str) -> Raw {
    service.ask(client, "GET", "/accounts/1", fields)
}

fn tag(answer: &Raw) -> String {
    answer.field("etag").unwrap().to_owned()
}

#[test]
fn a_view_has_its_own_body_length_and_tag() {
    // As after a change of the grants, entries may not keep the ends of their members.
    for keeps_members in [true, false] {
        let columns = &["na\"me", "id", "other"];
        check_view(&start_with(Options { columns, keeps_members, ..Options::default() }, |_| {}));
    }
}

fn check_view(service: &TenantService) {
    let whole = get(service, "acme", "");
    // From the read, and from memory.
    for _ in 0..2 {
        let view = get(service, "narrow", "");
        assert_eq!((view.status, &*view.body), (200, VIEW));
        assert_eq!(get(service, "acme", "").body, WHOLE);
        assert_eq!(get(service, "two roles", "").body, WHOLE, "the roles add up");
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
            let answer = get(service, "narrow", &fields);
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
fn a_selection_of_fields_never_has_more_than_the_grants() {
    let options = Options { columns: &["na\"me", "id"], ..Options::default() };
    let rows = [(1, format!("\"acme\"{WHOLE}")), (2, format!("\"other\"{OTHER}"))];
    let rows = rows.each_ref().map(|(id, row)| (*id, row.as_str()));
    let service = TenantService::start_configured(&rows, options, |config| {
        config.collections[0].allow_fields = true;
    });
    for client in ["narrow", "acme"] {
        let both = service.ask(client, "GET", "/accounts/1?fields=id,na%22me", "");
        assert_eq!((both.status, &*both.body), (200, VIEW), "{client}");
        let one = service.ask(client, "GET", "/accounts?ids=1,2&fields=id", "");
        assert_eq!(one.body, r#"{"items":{"1":{"id":1}},"missing":["2"]}"#, "{client}");
    }
    assert_eq!(service.ask("acme", "GET", "/accounts/1?fields=price", "").body, r#"{"price":5}"#);
    let hidden = service.ask("narrow", "GET", "/accounts/1?fields=price", "");
    let unknown = service.ask("narrow", "GET", "/accounts/1?fields=prize", "");
    assert_eq!(hidden.status, 400);
    assert_eq!(hidden.body.replace("price", "prize"), unknown.body);
    let absent = service.ask("narrow", "GET", "/accounts/2?fields=price", "");
    assert_eq!(absent.body, hidden.body, "the selection is judged before the record");
}

#[test]
fn without_a_granted_column_a_record_is_an_empty_object() {
    let service = start(&[]);
    assert_eq!(get(&service, "narrow", "").body, "{}");
    assert_eq!(service.ask("narrow", "GET", "/accounts/2", "").status, 404, "another tenant's");
    assert_eq!(service.ask("narrow", "GET", "/accounts/3", "").status, 404);
}

#[test]
fn a_file_of_grants_limits_a_role_while_entries_are_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("grants");
    let write = |text: &str| {
        std::fs::write(path.with_extension("new"), text).unwrap();
        std::fs::rename(path.with_extension("new"), &path).unwrap();
    };
    write("*");
    let options = Options { keeps_members: false, ..Options::default() };
    let service = start_with(options, |access| take_columns_from(access, &path));
    assert_eq!(get(&service, "narrow", "").body, WHOLE);
    write("id");
    wait_until(|| get(&service, "narrow", "").body == r#"{"id":1}"#);
    let batch = service.ask("narrow", "GET", "/accounts?ids=1,2", "");
    assert_eq!(batch.body, r#"{"items":{"1":{"id":1}},"missing":["2"]}"#);
    assert_eq!(get(&service, "acme", "").body, WHOLE, "another role");
    assert_eq!(required_on_admin(&service), 0);
    write("*");
    wait_until(|| get(&service, "narrow", "").body == WHOLE);
    assert_eq!(required_on_admin(&service), 4);
}

/// Limits the role of `narrow` to the one column that a file names; `*`: to none.
fn take_columns_from(access: &mut Access, path: &Path) {
    let granted = access.granted.clone();
    let parse = move |text: &[u8]| {
        let name = std::str::from_utf8(text).map_err(|error| error.to_string())?;
        let mut granted = granted.clone();
        granted.roles[1].columns = match name {
            "*" => Vec::new(),
            name => vec![(ACCOUNTS, Columns::new([name]))],
        };
        Ok(granted)
    };
    let text = std::fs::read(path).unwrap();
    access.granted = parse(&text).unwrap();
    access.grants_file = Some(GrantsFile { path: path.to_owned(), text, parse: Arc::new(parse) });
}

#[test]
fn a_view_is_sent_as_it_is_where_records_are_compressed() {
    let text = "a".repeat(2_000);
    let row = format!(r#""acme"{{"id":1,"text":"{text}","price":5}}"#);
    let view = format!(r#"{{"id":1,"text":"{text}"}}"#);
    let options = Options { columns: &["id", "text"], is_compressed: true, ..Options::default() };
    let service = TenantService::start(&[(1, &row)], options);
    let gzip = "Accept-Encoding: gzip\r\n";
    let ask = |client, method| service.ask(client, method, "/accounts/1", gzip);
    wait_until(|| ask("acme", "HEAD").field("content-encoding") == Some("gzip"));
    for method in ["GET", "HEAD"] {
        let answer = ask("narrow", method);
        assert_eq!(answer.status, 200);
        assert_eq!(answer.field("content-encoding"), None);
        assert_eq!(answer.field("vary"), Some("accept-encoding"));
        assert_eq!(answer.field("content-length"), Some(&*view.len().to_string()));
        assert_eq!(answer.body, if method == "GET" { &*view } else { "" });
    }
    let known = format!("If-None-Match: {}\r\n{gzip}", tag(&ask("narrow", "HEAD")));
    let answer = get(&service, "narrow", &known);
    assert_eq!((answer.status, answer.field("vary")), (304, Some("accept-encoding")));
    let compressed = tag(&ask("acme", "HEAD"));
    let other = format!("If-None-Match: {compressed}\r\n{gzip}");
    assert_eq!(get(&service, "narrow", &other).status, 200, "the tag of the whole record");
    assert_eq!(service.queries(), 1);
}

/// Returns the schema of the records of `accounts`: the names of its fields, and of those that each
/// record has.
fn described(document: &str) -> [Vec<String>; 2] {
    let document: Value = serde_json::from_str(document).unwrap();
    let schema = &document["components"]["schemas"]["accounts"];
    let properties = schema["properties"].as_object().unwrap().keys().cloned();
    let required = schema["required"].as_array().unwrap().iter();
    let required = required.map(|name| name.as_str().unwrap().to_owned());
    let mut names = [properties.collect::<Vec<_>>(), required.collect()];
    names.iter_mut().for_each(|names| names.sort());
    names
}

fn required_on_admin(service: &TenantService) -> usize {
    let request = "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let mut answers = Client::connect(service.server.admin).send(request).rest().answers;
    let [properties, required] = described(&answers.pop().unwrap().body);
    assert_eq!(properties.len(), 4);
    required.len()
}

#[test]
fn the_description_shows_a_sender_its_columns_alone() {
    let service = start(&["na\"me", "id", "other"]);
    let shown = |client| described(&service.ask(client, "GET", "/openapi.json", "").body);
    let own = ["id", "na\"me"].map(str::to_owned).to_vec();
    let all = ["id", "more", "na\"me", "price"].map(str::to_owned).to_vec();
    for _ in 0..2 {
        assert_eq!(shown("narrow"), [own.clone(), own.clone()]);
        assert_eq!(shown("acme"), [all.clone(), all.clone()]);
        assert_eq!(shown("two roles"), [all.clone(), all.clone()]);
        assert_eq!(required_on_admin(&service), 0);
    }
}
