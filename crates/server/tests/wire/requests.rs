//! Valid and invalid requests over a real socket: the answer to each, and the end of the connection
//! after an invalid one.

use crate::common::{self, Server, limits};
use proptest::prelude::*;

/// Name, sent bytes, and the statuses of the answers; after them the server closes. `$` means CRLF.
type Case = (&'static str, &'static str, &'static [u16]);

/// Requests that must be served. Each ends with `Connection: close`, so that the end is visible.
/// The program's tests of smuggling have every other form.
const SOUND: &[Case] = &[
    ("bare line feeds", "GET /a HTTP/1.1\nHost: a\nConnection: close\n\n", &[200]),
    ("empty lines before", "$$GET /a HTTP/1.1$Host: a$Connection: close$$", &[200]),
    ("http/1.0", "GET /a HTTP/1.0$Connection: keep-alive$$GET /b HTTP/1.0$$", &[200, 200]),
    ("body by length", "POST /a HTTP/1.1$Host: a$Content-Length: 3$Connection: close$$xyz", &[200]),
    (
        "chunks, extensions, trailers",
        "POST /a HTTP/1.1$Host: a$Transfer-Encoding: Chunked$Connection: close$$3;a=b$xyz$0;c$T: \
         v$U: w$$",
        &[200],
    ),
    (
        "body, body of a GET, chunks, then a request",
        "POST /a HTTP/1.1$Host: a$Content-Length: 3$$xyzGET /a HTTP/1.1$Host: a$Content-Length: \
         3$$xyzPOST /a HTTP/1.1$Host: a$Transfer-Encoding: chunked$$3$xyz$0$$GET /b HTTP/1.1$Host: \
         a$Connection: close$$",
        &[200, 200, 200, 200],
    ),
    (
        "a request looks like a body",
        "POST /a HTTP/1.1$Host: a$Content-Length: 38$$GET /b HTTP/1.1$Host: a$GET: smuggle$GET /c \
         HTTP/1.1$Host: a$Connection: close$$",
        &[200, 200],
    ),
];

/// Requests that must be refused, and the connection closed; nothing after them may be answered.
/// One of each kind of refusal: the program's tests of smuggling have every form.
const BROKEN: &[Case] = &[
    (
        "length and coding",
        "POST /a HTTP/1.1$Host: a$Content-Length: 6$Transfer-Encoding: chunked$$0$$G",
        &[400],
    ),
    (
        "lengths differ",
        "POST /a HTTP/1.1$Host: a$Content-Length: 3$Content-Length: 4$$xyzw",
        &[400],
    ),
    ("length is a list", "POST /a HTTP/1.1$Host: a$Content-Length: 5, 6$$xyzxyz", &[400]),
    ("coding is unknown", "POST /a HTTP/1.1$Host: a$Transfer-Encoding: xchunked$$0$$", &[400]),
    ("folded line", "POST /a HTTP/1.1$Host: a$X: y$ Content-Length: 5$$xyzxy", &[400]),
    ("space before the colon", "POST /a HTTP/1.1$Host: a$Content-Length : 5$$xyzxy", &[400]),
    ("no colon", "GET /a HTTP/1.1$Host: a$X y$$", &[400]),
    ("bare CR in a value", "GET /a HTTP/1.1$Host: a$X: y\rContent-Length: 5$$xyzxy", &[400]),
    ("NUL in the target", "GET /a\0b HTTP/1.1$Host: a$$", &[400]),
    ("two hosts", "GET /a HTTP/1.1$Host: a$Host: b$$", &[400]),
    ("no version", "GET /a$$", &[400]),
    ("another version", "GET /a HTTP/1.2$Host: a$$", &[505]),
    ("preface of HTTP/2", "PRI * HTTP/2.0$$SM$$", &[505]),
    ("TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n", &[400]),
    (
        "chunk is too long",
        "POST /a HTTP/1.1$Host: a$Transfer-Encoding: chunked$$3$xyzw$0$$",
        &[400],
    ),
    ("trailer is folded", "POST /a HTTP/1.1$Host: a$Transfer-Encoding: chunked$$0$ T: v$$", &[400]),
    (
        "body over the limit, expecting",
        "POST /a HTTP/1.1$Host: a$Content-Length: 10001$Expect: 100-continue$$",
        &[413],
    ),
    (
        "good with a body, then bad",
        "POST /a HTTP/1.1$Host: a$Content-Length: 3$$xyzGET /b HTTP/1.1$ Host: a$$",
        &[200, 400],
    ),
];

fn bytes(case: &Case) -> Vec<u8> {
    case.1.replace('$', "\r\n").into_bytes()
}

/// Returns the bytes in pieces of one byte, in two halves, and whole.
fn ways(bytes: &[u8]) -> [Vec<&[u8]>; 3] {
    let (first, second) = bytes.split_at(bytes.len() / 2);
    [vec![bytes], vec![first, second], bytes.chunks(1).collect()]
}

#[test]
fn valid_requests_are_served_in_any_pieces() {
    let server = Server::start(limits());
    for case in SOUND {
        for pieces in ways(&bytes(case)) {
            let mut client = server.connect();
            for piece in pieces {
                client.send(piece);
            }
            let received = client.rest();
            assert_eq!(
                (received.statuses(), received.closed),
                (case.2.to_vec(), true),
                "{}: {received:?}",
                case.0
            );
        }
    }
}

/// A body that is incomplete when the answer is sent may end the connection: its length is unknown.
#[test]
fn an_ignored_body_received_with_its_head_does_not_end_the_connection() {
    let server = Server::start(limits());
    let case = (
        "",
        "POST /ignore HTTP/1.1$Host: a$Content-Length: 3$$xyzGET /b HTTP/1.1$Host: a$Connection: \
         close$$",
        &[] as &[u16],
    );
    let mut client = server.connect();
    client.send(bytes(&case));
    let received = client.rest();
    assert_eq!((received.statuses(), received.closed), (vec![200, 200], true), "{received:?}");
}

#[test]
fn invalid_requests_are_refused_and_end_the_connection() {
    let server = Server::start(limits());
    for case in BROKEN {
        // Bytes after a refused message must not be answered.
        let sent = [bytes(case), b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()].concat();
        for pieces in ways(&sent) {
            let mut client = server.connect();
            for piece in pieces {
                // The server may have refused and closed before everything was sent.
                if std::io::Write::write_all(&mut client.0, piece).is_err() {
                    break;
                }
            }
            let received = client.rest();
            assert_eq!(
                (received.statuses(), received.closed),
                (case.2.to_vec(), true),
                "{}: {received:?}",
                case.0
            );
            let last = received.answers.last().unwrap();
            // The service answers an invalid body, here without saying so.
            let says_close =
                last.head.contains("\r\nconnection: close\r\n") || last.body == "broken body";
            assert!(says_close, "{}: {}", case.0, last.head);
            assert!(
                !received.answers.iter().any(|a| a.body.contains("/smuggled")),
                "{}: {received:?}",
                case.0
            );
        }
    }
    common::wait_until(|| server.metrics().open() == 0);
}

#[test]
fn limits_answer_with_their_own_status_and_name_the_limit() {
    let server = Server::start(limits());
    for (sent, status, names) in [
        (format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(1024)), 414, "1024 bytes"),
        (format!("GET /{}", "x".repeat(8192)), 414, "1024 bytes"),
        (
            format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(4096)),
            431,
            "4096 bytes",
        ),
        (format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(100_000)), 431, "4096 bytes"),
        (format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(32)), 431, "32 fields"),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10001\r\n\r\n".to_owned(),
            413,
            "10000 bytes",
        ),
    ] {
        let mut client = server.connect();
        // The server may have refused and closed before everything was sent.
        let _ = std::io::Write::write_all(&mut client.0, sent.as_bytes());
        let received = client.rest();
        assert_eq!((received.statuses(), received.closed), (vec![status], true));
        let answer = &received.answers[0];
        assert!(
            answer.head.contains("content-type: application/problem+json\r\n"),
            "{}",
            answer.head
        );
        let problem: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(problem["status"], status);
        assert!(problem["detail"].as_str().unwrap().contains(names), "{problem}");
    }
}

#[test]
fn a_refused_client_that_keeps_sending_gets_its_answer() {
    let server = Server::start(limits());
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n");
    // A server that waited that long has closed before everything was sent.
    let _ = std::io::Write::write_all(&mut client.0, &[b'x'; 200_000]);
    let received = client.rest();
    assert_eq!((received.statuses(), received.closed), (vec![413], true));
}

#[test]
fn what_follows_the_last_request_is_not_answered() {
    let server = Server::start(limits());
    let last = "GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let received = server.connect().send(last.repeat(2)).rest();
    assert_eq!((received.statuses(), received.closed), (vec![200], true));
}

#[test]
fn a_client_that_closes_its_side_is_answered() {
    let server = Server::start(limits());
    let mut client = server.connect();
    client.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").half_close();
    common::wait_until(|| server.limiter.waiting.load(std::sync::atomic::Ordering::Relaxed) == 1);
    server.limiter.open();
    let received = client.rest();
    assert_eq!((received.statuses(), received.closed), (vec![200], true));
}

#[test]
fn continue_is_sent_when_the_body_is_wanted() {
    let server = Server::start(limits());
    let mut client = server.connect();
    client.send("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.answer().status, 100);
    assert_eq!(client.send("xyz").answer().body, "POST /a xyz");
}

#[test]
fn a_pipeline_larger_than_any_buffer_is_answered_in_order() {
    let server = Server::start(limits());
    let mut client = server.connect();
    let mut sending = client.0.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        let requests: Vec<u8> = (0..20_000)
            .flat_map(|i| format!("GET /{i} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes())
            .collect();
        std::io::Write::write_all(&mut sending, &requests).unwrap();
        sending.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let received = client.rest();
    writer.join().unwrap();
    assert_eq!(received.answers.len(), 20_000);
    assert!(
        received.answers.iter().enumerate().all(|(i, answer)| answer.body == format!("GET /{i} "))
    );
}

fn request() -> impl Strategy<Value = (String, String)> {
    let body = "[a-z]{1,40}";
    ("[a-z]{1,10}", prop_oneof![Just(0u8), Just(1), Just(2)], body).prop_map(
        |(path, kind, body)| match kind {
            0 => (format!("GET /{path} HTTP/1.1\r\nHost: a\r\n\r\n"), format!("GET /{path} ")),
            1 => (
                format!(
                    "POST /{path} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                ),
                format!("POST /{path} {body}"),
            ),
            _ => {
                let (one, two) = body.split_at(body.len() / 2);
                let chunks: String = [one, two]
                    .iter()
                    .filter(|chunk| !chunk.is_empty())
                    .map(|chunk| format!("{:x};e\r\n{chunk}\r\n", chunk.len()))
                    .collect();
                let framing = "Host: a\r\nTransfer-Encoding: chunked\r\n\r\n";
                (
                    format!("POST /{path} HTTP/1.1\r\n{framing}{chunks}0\r\nT: v\r\n\r\n"),
                    format!("POST /{path} {body}"),
                )
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    fn any_split_of_a_pipeline_gives_the_same_answers(
        requests in prop::collection::vec(request(), 1..6),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        // One server for all cases.
        static SERVER: std::sync::OnceLock<std::net::SocketAddr> = std::sync::OnceLock::new();
        let address = *SERVER.get_or_init(|| {
            let server = Server::start(limits());
            let address = server.address;
            std::mem::forget(server);
            address
        });
        let stream: String = requests.iter().map(|(bytes, _)| bytes.as_str()).collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len())).collect();
        cuts.sort_unstable();
        let mut client = common::Client::connect(address);
        let mut from = 0;
        for to in cuts.into_iter().chain([stream.len()]) {
            client.send(&stream[from..to]);
            from = to;
        }
        let received = client.half_close().rest();
        let bodies: Vec<&str> =
            received.answers.iter().map(|answer| answer.body.as_str()).collect();
        let expected: Vec<&str> = requests.iter().map(|(_, answer)| answer.as_str()).collect();
        prop_assert_eq!(bodies, expected);
        prop_assert!(received.closed);
    }
}
