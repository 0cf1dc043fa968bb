use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use hotrow_transport::target::{Address, Url};
use hotrow_transport::tls::HttpVersion;

use super::*;

/// Starts a server that responds to each connection's first request with these bytes, and closes
/// after the last piece.
fn serve(pieces: Vec<Vec<u8>>) -> Arc<Target> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut request = [0; 4096];
            while !matches!(stream.read(&mut request), Ok(0) | Err(_)) {
                for piece in &pieces {
                    // The client may have closed.
                    _ = stream.write_all(piece);
                    _ = stream.flush();
                }
                if !pieces.iter().any(|piece| piece.windows(10).any(|w| w == b"Connection")) {
                    break;
                }
            }
        }
    });
    Arc::new(target(&url).expect("a URL"))
}

fn target(url: &str) -> Result<Target, String> {
    Target::new(url, &Url::parse(url).map_err(|error| error.to_string())?, None)
}

fn ask(pieces: &[&str]) -> Result<Response, RequestError> {
    let target = serve(pieces.iter().map(|piece| piece.as_bytes().to_vec()).collect());
    Client::new(target, Duration::from_secs(5)).ask(&Request::get("/a".to_owned()), |_| {})
}

#[test]
fn every_framing_is_read() {
    for pieces in [
        &["HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"x\"\r\n\r\nhello"][..],
        &["HTTP/1.1 200 OK\r\nContent-Len", "gth: 5\r\nETag: \"x\"\r\n\r", "\nhe", "llo"],
        &["HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\netag:\"x\"\r\n\r\nhello"],
        &[
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nETag: \"x\"\r\n\r\n\
             2;a=b\r\nhe\r\n3\r\nll",
            "o\r\n0\r\nA: b\r\n\r\n",
        ],
    ] {
        let response = ask(pieces).unwrap_or_else(|lost| panic!("{pieces:?}: {lost:?}"));
        assert_eq!(
            (response.status(), response.body.as_slice()),
            (200, &b"hello"[..]),
            "{pieces:?}"
        );
        assert_eq!(response.header("etag"), Some("\"x\""));
        assert!(response.sent_ns <= response.received_ns);
    }
}

#[test]
fn failures_are_distinguished() {
    for (pieces, lost) in [
        (&["SSH-2.0-x\r\n\r\n"][..], RequestError::Malformed),
        (&["HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"], RequestError::Malformed),
        (&["HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n"], RequestError::Malformed),
        (
            &[
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            ],
            RequestError::Malformed,
        ),
        (&["HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello"], RequestError::Closed),
        (&["HTTP/1.1 200 OK\r\nContent"], RequestError::Closed),
    ] {
        assert_eq!(ask(pieces).map(|response| response.status()), Err(lost), "{pieces:?}");
    }
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let target = target(&format!("http://{}", silent.local_addr().expect("bound"))).expect("a URL");
    let mut client = Client::new(Arc::new(target.clone()), Duration::from_millis(50));
    assert_eq!(
        client.ask(&Request::get("/".to_owned()), |_| {}).map(|a| a.status()),
        Err(RequestError::TimedOut)
    );
    drop(silent);
    let mut client = Client::new(Arc::new(target), Duration::from_secs(5));
    assert_eq!(
        client.ask(&Request::get("/".to_owned()), |_| {}).map(|a| a.status()),
        Err(RequestError::Connect)
    );
}

#[test]
fn a_url_has_host_port_and_prefix() {
    let good = target("http://127.0.0.1:8080/a/b/").expect("a URL");
    let headers = [("Authorization".to_owned(), "Bearer hush".to_owned())];
    let good = good.with_headers(&headers).expect("a header");
    let request = Request::get("/items/1".to_owned());
    let message = connection::message(&good, &request, None).expect("a request");
    assert_eq!(message.uri().path(), "/a/b/items/1");
    assert_eq!(message.headers()["host"], "127.0.0.1:8080");
    assert_eq!(message.headers()["authorization"], "Bearer hush");
    assert!(!format!("{good:?}").contains("hush"), "{good:?}");
    let v6 = target("http://[::1]").expect("a URL");
    assert_eq!(v6.addresses, [Address::Tcp("[::1]:80".parse().expect("an address"))]);
    for bad in ["127.0.0.1:80", "http://127.0.0.1:8080/?a=b", "http://127.0.0.1:x"] {
        assert!(target(bad).is_err(), "{bad}");
    }
    for (name, value) in [("a b", "1"), ("", "1"), ("a", "1\r\nb: 2")] {
        let refused = v6.clone().with_headers(&[(name.to_owned(), value.to_owned())]);
        assert!(refused.is_err(), "{name:?}");
    }
}

#[test]
fn a_refused_connection_is_explained() {
    let missing = Arc::new(target("unix:/nonexistent/data.sock").expect("a URL"));
    for version in [HttpVersion::Http1, HttpVersion::Http2] {
        let target = Arc::new((*missing).clone().with_version(version));
        let mut client = Client::new(target, Duration::from_secs(5));
        let asked = client.ask(&Request::get("/a".to_owned()), |_| {}).map(|a| a.status());
        assert_eq!(asked, Err(RequestError::Connect));
        let why = client.failure().expect("a reason");
        assert!(why.starts_with("there is no socket /nonexistent/data.sock"), "{why}");
    }
}
