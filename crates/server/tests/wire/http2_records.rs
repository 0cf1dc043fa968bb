//! Records over HTTP/2: the same answers as over HTTP/1.1, although their heads are written in
//! another way, and content in both directions that does not fit into a window.

use crate::common::frames::{Frame, Http2Client, kind};
use crate::common::http2::Http2Connection;
use crate::common::service::{Running, config};
use crate::common::{Answer, Client, Server, limits};
use hotrow_config::Config;
use hotrow_config::purge::{KeyField, Surrogates};
use hotrow_config::transport::Transport;

fn transport() -> Transport {
    Transport { http2: true, ..Transport::default() }
}

/// Returns the lines of a head that do not differ between two requests or two connections.
fn lines(answer: &Answer) -> Vec<String> {
    let ignored = ["http/1.1", "date:", "age:", "connection:", "transfer-encoding:"];
    let mut lines: Vec<String> = answer
        .head
        .lines()
        .filter(|line| !line.is_empty() && !ignored.iter().any(|start| line.starts_with(start)))
        .map(str::to_owned)
        .collect();
    lines.sort();
    lines
}

#[test]
fn answers_are_the_same_over_both_versions() {
    check_both_versions(None);
}

#[test]
fn answers_with_surrogate_keys_are_the_same_over_both_versions() {
    check_both_versions(Some(Surrogates {
        field: KeyField::SurrogateKey,
        needs_canonical_url: false,
    }));
}

fn check_both_versions(surrogates: Option<Surrogates>) {
    let mut config = Config { transport: transport(), ..config() };
    config.collections[0].surrogates = surrogates;
    let server = Running::start(&config);
    let mut http2 = Http2Connection::connect(server.address);
    let ids = r#"{"ids":[1,2]}"#;
    for (method, target, fields, body, status) in [
        ("GET", "/products/1", "", "", 200),
        ("GET", "/products/2", "", "", 404),
        ("GET", "/products/1", "if-none-match: *\r\n", "", 304),
        ("GET", "/products/1", "if-match: \"x\"\r\n", "", 412),
        ("HEAD", "/products/1", "", "", 200),
        ("HEAD", "/products/2", "", "", 404),
        ("GET", "/products?ids=1,2", "", "", 200),
        ("POST", "/products", "", ids, 200),
        ("POST", "/products", "", "{", 400),
        ("GET", "/products/x", "", "", 400),
        ("GET", "/unknown/1", "", "", 404),
        ("DELETE", "/products/1", "", "", 405),
        ("OPTIONS", "/products/1", "", "", 405),
    ] {
        let mut ask_both = || {
            let length = format!("content-length: {}\r\n", body.len());
            let request = format!(
                "{method} {target} HTTP/1.1\r\nHost: a\r\n{fields}{length}Connection: close\r\n\r\n\
                 {body}"
            );
            let mut client = Client::connect(server.address);
            client.send(request);
            let mut head_only = Vec::new();
            let first = if method == "HEAD" {
                std::io::Read::read_to_end(&mut client.0, &mut head_only).unwrap();
                let head = String::from_utf8(head_only).unwrap().to_ascii_lowercase();
                let status = head.split(' ').nth(1).unwrap().parse().unwrap();
                Answer { status, head, body: String::new() }
            } else {
                client.rest().answers.pop().unwrap()
            };
            (first, http2.ask(method, target, fields, body))
        };
        // Fills the cache.
        ask_both();
        let (first, second) = ask_both();
        let context = format!("{method} {target} {fields}");
        assert_eq!((first.status, second.status), (status, status), "{context}");
        assert_eq!(lines(&first), lines(&second), "{context}");
        assert_eq!(first.body, second.body, "{context}");
        let has_keys = first.head.contains("surrogate-key: products products/");
        let is_record = matches!(status, 200 | 304 | 404) && target.starts_with("/products/");
        assert_eq!(has_keys, surrogates.is_some() && is_record, "{context}: {}", first.head);
    }
}

#[test]
fn answers_beyond_a_window_continue_when_it_opens() {
    let server = Server::start_over(limits(), 1, transport());
    let mut client = Http2Client::connect(server.address);
    client.send(&Frame::initial_window(3)).get(1, "/a").get(3, "/b");
    let mut received = [Vec::new(), Vec::new()];
    let mut ended = 0;
    while ended < 2 {
        let frame = client.next().unwrap();
        if frame.kind != kind::DATA {
            continue;
        }
        assert!(frame.payload.len() <= 3, "{frame:?}");
        received[usize::from(frame.stream == 3)].extend_from_slice(&frame.payload);
        ended += usize::from(frame.ends_stream());
        client.send(&Frame::window_update(frame.stream, frame.payload.len() as u32));
    }
    assert_eq!(received.map(|bytes| String::from_utf8(bytes).unwrap()), ["GET /a ", "GET /b "]);
}

#[test]
fn content_of_several_requests_arrives_interleaved() {
    let server = Server::start_over(limits(), 1, transport());
    let mut client = Http2Client::connect(server.address);
    client.open(1, "POST", "/a").open(3, "POST", "/b");
    for i in 0..10 {
        for stream in [1, 3] {
            let payload = format!("{stream}{i}").into_bytes();
            let flags = u8::from(i == 9);
            client.send(&Frame { kind: kind::DATA, flags, stream, payload });
        }
    }
    for _ in 0..2 {
        let frame = client.await_frame(|frame| frame.kind == kind::DATA && frame.ends_stream());
        let (stream, text) = (frame.stream, String::from_utf8(frame.payload).unwrap());
        let target = if stream == 1 { "a" } else { "b" };
        let sent: String = (0..10).map(|i| format!("{stream}{i}")).collect();
        assert_eq!(text, format!("POST /{target} {sent}"));
    }
}

#[test]
fn a_client_that_waits_is_asked_for_content() {
    let server = Server::start_over(limits(), 1, transport());
    let mut client = Http2Client::connect(server.address);
    let mut head = Frame::request(1, "POST", "/a", true);
    crate::common::frames::literal(&mut head.payload, "expect", "100-continue");
    client.send(&head);
    // Status 100: a literal whose name is in the static table.
    let first = client.await_frame(|frame| frame.kind == kind::HEADERS);
    assert_eq!((first.payload.as_slice(), first.ends_stream()), (&b"\x08\x03100"[..], false));
    let content = Frame { kind: kind::DATA, flags: 1, stream: 1, payload: b"content".to_vec() };
    client.send(&content);
    let answer = client.await_frame(|frame| frame.kind == kind::DATA);
    assert_eq!(answer.payload, b"POST /a content");
}
