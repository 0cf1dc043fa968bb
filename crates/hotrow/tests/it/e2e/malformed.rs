//! Requests that two parsers could read differently are rejected, and no request behind them is
//! answered.

use hotrow_testkit::harness::client::Fault;
use hotrow_testkit::harness::{Config, Database, SOON, Server};

/// Request that follows each of the requests below on the same connection. It must never be
/// answered.
const NEXT: &str = "GET /products/1 HTTP/1.1\r\nHost: h\r\n\r\n";

const SMUGGLING: &[(&str, &str)] = &[
    (
        "length and coding",
        "POST /products HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: \
         chunked\r\n\r\n\
         0\r\n\r\n",
    ),
    (
        "coding and length",
        "POST /products HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: \
         4\r\n\r\n\
         0\r\n\r\n",
    ),
    (
        "length 0 and coding",
        "POST /products HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nTransfer-Encoding: \
         chunked\r\n\r\n\
         0\r\n\r\n",
    ),
    (
        "two lengths",
        "POST /products HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
    ),
    ("two lengths in one", "POST /products HTTP/1.1\r\nHost: h\r\nContent-Length: 3, 4\r\n\r\nabc"),
    (
        "the same length in one",
        "POST /products HTTP/1.1\r\nHost: h\r\nContent-Length: 3, 3\r\n\r\nabc",
    ),
    ("signed length", "POST /products HTTP/1.1\r\nHost: h\r\nContent-Length: +3\r\n\r\nabc"),
    ("negative length", "POST /products HTTP/1.1\r\nHost: h\r\nContent-Length: -3\r\n\r\nabc"),
    ("hexadecimal length", "POST /products HTTP/1.1\r\nHost: h\r\nContent-Length: 0x3\r\n\r\nabc"),
    ("empty length", "POST /products HTTP/1.1\r\nHost: h\r\nContent-Length:\r\n\r\n"),
    (
        "length with a blank in it",
        "POST /products HTTP/1.1\r\nHost: h\r\nContent-Length: 1 1\r\n\r\nabc",
    ),
    (
        "endless length",
        "POST /products HTTP/1.1\r\nHost: h\r\nContent-Length: 18446744073709551616\r\n\r\nabc",
    ),
    (
        "unknown coding",
        "POST /products HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n0\r\n\r\n",
    ),
    (
        "two codings",
        "POST /products HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "chunked twice",
        "POST /products HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\
         Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "chunked, identity",
        "POST /products HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, identity\r\n\r\n\
         0\r\n\r\n",
    ),
    (
        "identity",
        "POST /products HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    ),
    (
        "xchunked",
        "POST /products HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    ),
    ("empty coding", "POST /products HTTP/1.1\r\nHost: h\r\nTransfer-Encoding:\r\n\r\n0\r\n\r\n"),
    (
        "coding with a vertical tab",
        "POST /products HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "coding in HTTP/1.0",
        "POST /products HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    ("folding", "GET /products/1 HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n"),
    (
        "folding by tab",
        "GET /products/1 HTTP/1.1\r\nHost: h\r\nX: a\r\n\tContent-Length: 3\r\n\r\n",
    ),
    ("white space before the first header", "GET /products/1 HTTP/1.1\r\n Host: h\r\n\r\n"),
    (
        "space before the colon",
        "POST /products HTTP/1.1\r\nHost: h\r\nContent-Length : 3\r\n\r\nabc",
    ),
    (
        "tab before the colon",
        "POST /products HTTP/1.1\r\nHost: h\r\nTransfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n",
    ),
    ("no colon", "GET /products/1 HTTP/1.1\r\nHost: h\r\nX\r\n\r\n"),
    ("no name", "GET /products/1 HTTP/1.1\r\nHost: h\r\n: x\r\n\r\n"),
    ("a name with a blank", "GET /products/1 HTTP/1.1\r\nHost: h\r\nX Y: x\r\n\r\n"),
    ("a name with a control byte", "GET /products/1 HTTP/1.1\r\nHost: h\r\nX\x01: x\r\n\r\n"),
    ("NUL in a value", "GET /products/1 HTTP/1.1\r\nHost: h\r\nX: a\0b\r\n\r\n"),
    ("a bare CR", "GET /products/1 HTTP/1.1\r\nHost: h\r\nX: a\rContent-Length: 3\r\n\r\n"),
    ("CR CR LF", "GET /products/1 HTTP/1.1\r\nHost: h\r\r\n\r\n"),
    ("no Host", "GET /products/1 HTTP/1.1\r\n\r\n"),
    ("a Host whose port is no number", "GET /products/1 HTTP/1.1\r\nHost: a:b\r\n\r\n"),
    ("a Host with an unclosed bracket", "GET /products/1 HTTP/1.1\r\nHost: [::1\r\n\r\n"),
    ("CONNECT without a port", "CONNECT x HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("an authority for a target", "GET x:80 HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("two Hosts", "GET /products/1 HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n"),
    ("no version", "GET /products/1\r\nHost: h\r\n\r\n"),
    ("no target", "GET HTTP/1.1\r\nHost: h\r\n\r\n"),
    ("no method", " /products/1 HTTP/1.1\r\nHost: h\r\n\r\n"),
    ("two blanks", "GET  /products/1 HTTP/1.1\r\nHost: h\r\n\r\n"),
    ("a blank in the target", "GET /products/1 2 HTTP/1.1\r\nHost: h\r\n\r\n"),
    ("lower-case version", "GET /products/1 http/1.1\r\nHost: h\r\n\r\n"),
    ("no HTTP", "SSH-2.0-OpenSSH_9.2\r\n\r\n"),
    ("TLS", "\x16\x03\x01\x02\0\x01\0\x01\n\r\n\r\n"),
    ("method with a control byte", "GE\x01T /products/1 HTTP/1.1\r\nHost: h\r\n\r\n"),
    ("target with a control byte", "GET /products/\x7f HTTP/1.1\r\nHost: h\r\n\r\n"),
];

const CHUNKS: &[(&str, &str)] = &[
    ("no size", "\r\nabc\r\n0\r\n\r\n"),
    ("no hexadecimal", "x\r\nabc\r\n0\r\n\r\n"),
    ("prefix", "0x3\r\nabc\r\n0\r\n\r\n"),
    ("signed", "+3\r\nabc\r\n0\r\n\r\n"),
    ("negative", "-3\r\nabc\r\n0\r\n\r\n"),
    ("blank before", " 3\r\nabc\r\n0\r\n\r\n"),
    ("overflow", "10000000000000003\r\nabc\r\n0\r\n\r\n"),
    ("too long", "2\r\nabc\r\n0\r\n\r\n"),
    ("no end of line", "3\r\nabc0\r\n\r\n"),
    ("bare LF after the size", "3\nabc\r\n0\r\n\r\n"),
    ("bare LF after the data", "3\r\nabc\n0\r\n\r\n"),
    ("bare CR after the size", "3\rabc\r\n0\r\n\r\n"),
    ("LF in an extension", "3;a\nb\r\nabc\r\n0\r\n\r\n"),
    ("NUL in an extension", "3;a\0b\r\nabc\r\n0\r\n\r\n"),
    ("folded trailer", "3\r\nabc\r\n0\r\n X: y\r\n\r\n"),
];

fn start() -> (Database, Server) {
    let database = Database::with_products(3);
    let server = Server::start(&Config::new(database.path()).collection("products"));
    (database, server)
}

fn refused(server: &Server, what: &str, request: &str) {
    let mut client = server.client();
    client.send(format!("{request}{NEXT}"));
    let answer = client.answer();
    // A head that a parser can recognize as another version is answered with 505.
    assert_eq!(answer.status, 400, "{what}: {answer:?}");
    if !answer.body.is_empty() {
        answer.problem(400);
    }
    match client.try_answer("GET", SOON) {
        Err(Fault::Closed) => {}
        other => panic!("{what}: the connection must close without another answer: {other:?}"),
    }
}

#[test]
fn smuggling_tricks_and_malformed_heads_are_refused_and_the_connection_closed() {
    let (_database, server) = start();
    for (what, request) in SMUGGLING {
        refused(&server, what, request);
    }
    assert_eq!(server.queries(), 0, "no request behind them was answered or read");
    assert_eq!(server.get("/products/1").status, 200);
}

#[test]
fn bad_chunks_are_refused_and_the_connection_closed() {
    let (_database, server) = start();
    for (what, body) in CHUNKS {
        let head = "POST /products HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
        refused(&server, what, &format!("{head}{body}"));
    }
    assert_eq!(server.queries(), 0);
}

/// The client keeps its side open and sends nothing more: the server must not wait for the rest.
#[test]
fn a_chunk_over_the_limit_is_refused_before_it_arrives() {
    let (_database, server) = start();
    let head = "POST /products HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (chunks, status) in [
        ("ffffffffffffffff", 400),
        ("8000000000000000\r\n", 400),
        ("0fffffffffffffff\r\n", 413),
        ("100001\r\n", 413),
        ("b;extension\r\n{\"ids\":[1]}\r\n100000\r\n", 413),
    ] {
        let mut client = server.client();
        client.send(format!("{head}{chunks}"));
        let answer = client.answer();
        answer.problem(status);
        assert_eq!(answer.header("connection"), Some("close"), "{chunks}");
        client.closed(SOON);
    }
    assert_eq!(server.queries(), 0);
}

#[test]
fn earlier_requests_are_answered_first() {
    let (_database, server) = start();
    let mut client = server.client();
    client.send(format!("{NEXT}{NEXT}{}{NEXT}", SMUGGLING[0].1));
    let statuses: Vec<u16> = (0..3).map(|_| client.answer().status).collect();
    assert_eq!(statuses, [200, 200, 400]);
    client.closed(SOON);
}

#[test]
fn other_versions_are_answered_with_the_supported_one() {
    let (_database, server) = start();
    for request in [
        "GET /products/1 HTTP/2.0\r\nHost: h\r\n\r\n",
        "GET /products/1 HTTP/1.2\r\nHost: h\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let mut client = server.client();
        client.send(format!("{request}{NEXT}"));
        assert_eq!(client.answer().status, 505, "{request}");
        client.closed(SOON);
    }
}
