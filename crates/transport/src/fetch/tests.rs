use std::net::TcpListener;
use std::thread::JoinHandle;

use super::*;

const PATIENCE: Duration = Duration::from_secs(10);

fn request(method: &str) -> Vec<u8> {
    let get = String::from_utf8(get("/x", "h", &[]).unwrap()).unwrap();
    get.replacen("GET", method, 1).into_bytes()
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
    let bytes = request(method);
    let request = Request { bytes: &bytes, answer_has_body: method != "HEAD" };
    let reply = fetch(&address, None, request, PATIENCE, 10);
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
    assert!(matches!(other, Err(FetchError::Malformed(_))), "{other:?}");
    let large = asked("GET", &["HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n01234567890"]);
    assert!(matches!(large, Err(FetchError::TooLarge(10))), "{large:?}");
}

#[test]
fn waiting_is_bounded() {
    let bytes = request("GET");
    let get_x = Request { bytes: &bytes, answer_has_body: true };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap());
    // The kernel accepts the connection; no response follows.
    let late = fetch(&address, None, get_x, Duration::from_millis(30), 10);
    assert!(matches!(late, Err(FetchError::Late(_))), "{late:?}");
    drop(listener);
    let refused = fetch(&address, None, get_x, PATIENCE, 10);
    assert!(matches!(refused, Err(FetchError::NoConnection(_))), "{refused:?}");
}

#[test]
fn requests_that_would_break_a_head_are_refused() {
    let header = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    for path in ["/a b", "/{id}", "/ä", "/a\r\n"] {
        assert!(matches!(get(path, "h", &[]), Err(RequestError::Path(_))), "{path:?}");
    }
    for (name, value) in [("", "x"), ("a b", "x"), ("a", "x\r\ny: z"), ("a:", "x")] {
        let refused = get("/", "h", &header(name, value));
        assert!(matches!(refused, Err(RequestError::Header(_))), "{name:?} {value:?}");
    }
    let bytes = get("/a", "h", &header("X-A", "b c")).unwrap();
    assert_eq!(bytes, b"GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\nX-A: b c\r\n\r\n");
}
