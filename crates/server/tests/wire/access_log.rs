//! The access log of a whole service: which requests have a line, and what it says.

use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::common::Client;
use crate::common::service::{Running, access, config};
use hotrow_access::identity::Identity;
use hotrow_config::Config;
use hotrow_config::access::{Access, HolderName};
use hotrow_config::observability::{AccessLog, AccessLogOutput, Observability};
use hotrow_config::transport::Transport;
use serde_json::{Value, json};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

pub(crate) fn logged(config: Config, path: &Path, sample: f64, has_ids: bool) -> Config {
    let log = AccessLog {
        output: AccessLogOutput::File(path.to_owned()),
        sample,
        slow: Duration::from_hours(1),
        has_ids,
    };
    Config {
        observability: Observability { access_log: Some(log), ..Observability::default() },
        ..config
    }
}

/// Returns the lines without the members that differ from run to run, which it checks.
pub(crate) fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let line = |line: &str| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        let members = line.as_object_mut().unwrap();
        let time = members.remove("time").unwrap();
        assert!(time.as_str().unwrap().starts_with("20") && time.as_str().unwrap().len() == 27);
        assert_eq!(members.remove("client").unwrap(), "127.0.0.1");
        if let Some(took) = members.remove("duration_us") {
            assert!(took.as_u64().unwrap() < 60_000_000, "{took}");
        }
        line
    };
    text.lines().map(line).collect()
}

fn ask(client: &mut Client, request: &str, status: u16) {
    client.send(request);
    assert_eq!(client.next_status(), status, "{request}");
}

/// Returns access for one key, whose holder and role have names, and the key.
pub(crate) fn named_access() -> (Access, String) {
    let (mut access, key) = access();
    let id = access.granted.keys[0].id;
    access.granted.names.roles = vec!["reader".to_owned()];
    let holder = HolderName::Key("billing".to_owned());
    access.granted.names.holders = [(Identity::of_key(id), holder)].into();
    (access, key)
}

#[test]
fn a_line_says_what_a_request_got() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let (access, key) = named_access();
    let server =
        Running::start(&logged(Config { access: Some(access), ..config() }, &path, 1.0, true));
    let mut client = Client::connect(server.address);
    let head = format!("HTTP/1.1\r\nHost: a\r\nX-API-Key: {key}\r\n");
    let traced = format!("{head}traceparent: 00-{TRACE}-00f067aa0ba902b7-01\r\n\r\n");
    ask(&mut client, &format!("GET /products/1 {traced}"), 200);
    ask(&mut client, &format!("GET /products/1 {traced}"), 200);
    ask(&mut client, &format!("GET /products/1 {head}If-None-Match: *\r\n\r\n"), 304);
    ask(&mut client, &format!("GET /products/2 {head}\r\n"), 404);
    ask(&mut client, &format!("GET /products?ids=1,2 {head}\r\n"), 200);
    ask(&mut client, &format!("GET /prices/1 {head}\r\n"), 403);
    ask(&mut client, &format!("GET /nothing {head}\r\n"), 404);
    ask(&mut client, "GET /products/1 HTTP/1.0\r\nHost: a\r\n\r\n", 401);
    // HTTP/1.0 without keep-alive: the connection has ended.
    let mut client = Client::connect(server.address);
    ask(&mut client, "GET /products/1 HTTP/1.1\r\n\r\n", 400);
    drop(server);
    let of_key = |mut line: Value| {
        line["protocol"] = "HTTP/1.1".into();
        line["method"] = "GET".into();
        line["roles"] = json!(["reader"]);
        line["key"] = "billing".into();
        line
    };
    let mut lines = lines(&path);
    let batch_bytes = lines[4].as_object_mut().unwrap().remove("bytes").unwrap();
    assert!(batch_bytes.as_u64().unwrap() > 8, "{batch_bytes}");
    for problem in [5, 6, 7] {
        let bytes = lines[problem].as_object_mut().unwrap().remove("bytes").unwrap();
        assert!(bytes.as_u64().unwrap() > 50, "{bytes}");
    }
    let missing = lines[3].as_object_mut().unwrap().remove("bytes").unwrap();
    assert!(missing.as_u64().unwrap() > 50, "{missing}");
    let products = |path: &str, status: u16, cache: &str| {
        of_key(json!({
            "path": path, "collection": "products", "status": status, "cache": cache,
        }))
    };
    let with = |mut line: Value, name: &str, value: Value| {
        line[name] = value;
        line
    };
    let hit = with(products("/products/1", 200, "hit"), "trace_id", TRACE.into());
    let expected = [
        with(with(hit.clone(), "cache", "miss".into()), "bytes", 8.into()),
        with(hit, "bytes", 8.into()),
        with(products("/products/1", 304, "hit"), "bytes", 0.into()),
        products("/products/2", 404, "miss"),
        products("/products?ids=1,2", 200, "hit"),
        with(products("/prices/1", 403, "none"), "collection", "prices".into()),
        of_key(json!({"path": "/nothing", "status": 404, "cache": "none"})),
        json!({
            "protocol": "HTTP/1.0", "method": "GET", "path": "/products/1", "status": 401,
            "cache": "none",
        }),
        json!({"protocol": "HTTP/1.1", "status": 400, "cache": "none"}),
    ];
    for (line, expected) in lines.iter().zip(&expected) {
        assert_eq!(line, expected);
    }
    assert_eq!(lines.len(), expected.len());
}

#[test]
fn ids_are_left_out_and_other_requests_are_sampled() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let server = Running::start(&logged(config(), &path, 0.0, false));
    let mut client = Client::connect(server.address);
    for _ in 0..100 {
        ask(&mut client, "GET /products/1 HTTP/1.1\r\nHost: a\r\n\r\n", 200);
    }
    ask(&mut client, "GET /products/12x HTTP/1.1\r\nHost: a\r\n\r\n", 400);
    let mut head = TcpStream::connect(server.address).unwrap();
    let request = b"HEAD /products?ids=12x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    head.write_all(request).unwrap();
    let answer = std::io::read_to_string(head).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    drop(server);
    let lines = lines(&path);
    assert_eq!(lines.len(), 2, "{lines:?}");
    for line in &lines {
        assert_eq!((&line["collection"], &line["status"]), (&json!("products"), &json!(400)));
        assert!(!line.to_string().contains("12x"), "{line}");
    }
    assert_eq!(lines[1]["bytes"], 0, "an answer to HEAD has no body");
}

#[test]
fn http2_has_the_same_lines() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let transport = Transport { http2: true, ..Transport::default() };
    let server = Running::start(&logged(Config { transport, ..config() }, &path, 1.0, true));
    let long = "x".repeat(2_000);
    for (target, status) in [("/products/1", "200"), (&*format!("/{long}"), "414")] {
        let got = Command::new("curl")
            .args(["-sS", "--max-time", "20", "--http2-prior-knowledge", "-o", "/dev/null"])
            .args(["-w", "%{http_code}", &format!("http://{}{target}", server.address)])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&got.stdout), status, "{got:?}");
    }
    drop(server);
    let expected = [
        json!({
            "protocol": "HTTP/2", "method": "GET", "path": "/products/1",
            "collection": "products", "status": 200, "cache": "miss", "bytes": 8,
        }),
        json!({"protocol": "HTTP/2", "status": 414, "cache": "none"}),
    ];
    assert_eq!(lines(&path), expected);
}
