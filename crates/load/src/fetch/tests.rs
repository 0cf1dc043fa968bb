use std::net::TcpListener;
use std::thread::JoinHandle;

use super::*;
use crate::request::RequestSpec;

const PATIENCE: Duration = Duration::from_secs(10);

fn mix(method: &str) -> RequestMix {
    let request = RequestSpec {
        method,
        path: "/x",
        host: "h",
        headers: &[],
        body: None,
        weight: 1,
        keepalive: false,
    };
    RequestMix::new(&[request], None).unwrap()
}

/// Answers one connection with these pieces, and closes it.
fn server(pieces: &'static [&'static str]) -> (Address, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap());
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = [0; 1024];
        assert!(stream.read(&mut asked).unwrap() > 0);
        for piece in pieces {
            // The client may have seen enough.
            if stream.write_all(piece.as_bytes()).is_err() {
                return;
            }
        }
    });
    (address, thread)
}

fn asked(method: &str, pieces: &'static [&'static str]) -> Result<FetchedResponse, FetchError> {
    let (address, thread) = server(pieces);
    let reply = fetch(&address, None, &mix(method), 1, PATIENCE, 10);
    thread.join().unwrap();
    reply
}

#[test]
fn answers_come_whole() {
    let cases: [(&str, &'static [&'static str], u16, &[u8]); 6] = [
        ("GET", &["HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX-A:  b \r\n\r\nabc"], 200, b"abc"),
        ("GET", &["HTTP/1.1 404 No\r\nContent-Le", "ngth: 0\r\nx-a: b\r\n\r\n"], 404, b""),
        (
            "GET",
            &["HTTP/1.1 200 OK\r\nX-A: b\r\nTransfer-Encoding: \
               chunked\r\n\r\n3;x\r\nab\n\r\n2\r\ncd\r\n0\r\nT: u\r\n\r\n"],
            200,
            b"ab\ncd",
        ),
        ("GET", &["HTTP/1.0 200 OK\r\nX-A: b\r\n\r\nuntil", "close"], 200, b"untilclose"),
        ("HEAD", &["HTTP/1.1 200 OK\r\nX-A: b\r\nContent-Length: 9\r\n\r\n"], 200, b""),
        (
            "GET",
            &["HTTP/1.1 103 Hints\r\nX-A: c\r\n\r\nHTTP/1.1 200 OK\r\nX-A: b\r\nContent-Length: \
               1\r\n\r\n!"],
            200,
            b"!",
        ),
    ];
    for (method, pieces, status, body) in cases {
        let reply = asked(method, pieces).unwrap();
        assert_eq!(
            (reply.status, reply.body.as_slice(), reply.header("x-a")),
            (status, body, Some("b")),
            "{pieces:?}"
        );
    }
}

#[test]
fn an_incomplete_answer_is_reported() {
    let closed = asked("GET", &["HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc"]);
    assert!(matches!(closed, Err(FetchError::Closed)), "{closed:?}");
    let nothing = asked("GET", &[]);
    assert!(matches!(nothing, Err(FetchError::Closed | FetchError::Socket(_))), "{nothing:?}");
    let other = asked("GET", &["220 mail ready\r\n"]);
    assert!(matches!(other, Err(FetchError::Malformed(Malformed::StatusLine))), "{other:?}");
    let large = asked("GET", &["HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n01234567890"]);
    assert!(matches!(large, Err(FetchError::TooLarge(10))), "{large:?}");
}

#[test]
fn waiting_is_bounded() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap());
    // The kernel accepts the connection; no response follows.
    let late = fetch(&address, None, &mix("GET"), 1, Duration::from_millis(30), 10);
    assert!(matches!(late, Err(FetchError::Late(_))), "{late:?}");
    drop(listener);
    let refused = fetch(&address, None, &mix("GET"), 1, PATIENCE, 10);
    assert!(matches!(refused, Err(FetchError::NoConnection(_))), "{refused:?}");
}
