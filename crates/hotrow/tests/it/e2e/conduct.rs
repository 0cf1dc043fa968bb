//! Behaviour that HTTP/1.1 clients expect, through the whole program.

use hotrow_testkit::harness::client::request_bytes;
use hotrow_testkit::harness::{Config, Database, SOON, Server};

const ONE: &str = r#"{"id":1,"name":"p1","price":100}"#;
const GET: &str = "GET /products/1 HTTP/1.1\r\nHost: h\r\n\r\n";

/// Starts a server; each test has its own, so that a harmful test affects no other.
fn start() -> (Database, Server) {
    let database = Database::with_products(100);
    let server = Server::start(&Config::new(database.path()).collection("products"));
    (database, server)
}

#[test]
fn a_connection_is_kept_and_pipelined_answers_come_in_order() {
    let (_database, server) = start();
    let mut client = server.client();
    for id in 1..=50 {
        assert_eq!(client.get(&format!("/products/{id}")).json()["id"], id);
    }
    // Cached and uncached, found and missing, good and bad: one write, answers in order.
    let mut requests = Vec::new();
    let mut expected = Vec::new();
    for id in [60, 1, 61, 999, 2, 62, 998, 63, 3, 64] {
        requests.extend(request_bytes("GET", &format!("/products/{id}"), &[], b""));
        expected.push((if id > 100 { 404 } else { 200 }, id));
    }
    client.send(&requests);
    for (status, id) in expected {
        let answer = client.answer();
        assert_eq!(answer.status, status, "{id}");
        if status == 200 {
            assert_eq!(answer.json()["id"], id);
        }
    }
    let mixed = [
        request_bytes("HEAD", "/products/1", &[], b""),
        request_bytes("POST", "/products", &[], br#"{"ids":[1]}"#),
        request_bytes("GET", "/products/x", &[], b""),
        request_bytes("DELETE", "/products/1", &[], b"body"),
        request_bytes("GET", "/products/1", &[], b""),
    ];
    client.send(mixed.concat());
    assert_eq!(client.answer_to("HEAD").status, 200);
    let statuses: Vec<u16> = (0..4).map(|_| client.answer().status).collect();
    assert_eq!(statuses, [200, 400, 405, 200]);
    assert_eq!(
        server.metrics().sum("hotrow_http_connections", &[]),
        1.0,
        "one connection all the time"
    );
}

/// An HTTP/1.0 client gets a header field that its connection is kept.
#[test]
fn a_connection_of_http_1_0_is_kept_on_request() {
    let (_database, server) = start();
    let mut client = server.client();
    client.send("GET /products/1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let answer = client.answer();
    assert!(
        answer.header("connection").is_some_and(|c| c.eq_ignore_ascii_case("keep-alive")),
        "{answer:?}"
    );
    client.send("GET /products/1 HTTP/1.0\r\n\r\n");
    assert_eq!((client.answer().status, client.closed(SOON)), (200, ()));
}

/// The body of a batch, in chunks that its sender announces.
#[test]
fn expect_100_continue_is_honoured() {
    let (_database, server) = start();
    let mut client = server.client();
    client.send(
        "POST /products HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\
         Transfer-Encoding: chunked\r\n\r\n",
    );
    assert_eq!(client.answer().status, 100);
    client.send("1\r\n{\r\n5;x=y\r\n\"ids\"\r\n5\r\n:[1]}\r\n0\r\nX-Trailer: y\r\n\r\n");
    assert_eq!(client.answer().json()["items"]["1"]["id"], 1);
    assert_eq!(client.get("/products/1").status, 200);
}

#[test]
fn targets_and_fields_without_a_meaning_here_are_answered() {
    let (_database, server) = start();
    for request in [
        "GET http://example.org/products/1 HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET http://example.org:80/products/1 HTTP/1.1\r\nHost: example.org:80\r\n\r\n",
        "GET /products/1? HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /products/1 HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
        "GET /products/1 HTTP/1.1\r\nHost: h\r\nRange: bytes=0-3\r\nAccept: image/png\r\n\r\n",
    ] {
        let mut client = server.client();
        client.send(request);
        let answer = client.answer();
        assert_eq!((answer.status, answer.text().as_str()), (200, ONE), "{request:?}");
        client.send(GET);
        assert_eq!(client.answer().status, 200, "the next one: {request:?}");
    }
    // Chunks that are not read: the connection may close after the answer.
    let mut client = server.client();
    client.send(
        "GET /products/1 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\
         3\r\nabc\r\n0\r\n\r\n",
    );
    assert_eq!(client.answer().text(), ONE);
}

/// Requests that two parsers could read differently are rejected, and no request behind them is
/// answered; the parser's and the server's own tests have all of their forms.
#[test]
fn a_request_that_is_refused_ends_the_connection() {
    let (_database, server) = start();
    let head = "POST /products HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n";
    for (rest, status) in [
        ("Content-Length: 4\r\n\r\n0\r\n\r\n", 400),
        ("\r\n+3\r\nabc\r\n0\r\n\r\n", 400),
        // The data of such chunks need not arrive.
        ("\r\nffffffffffffffff", 400),
        ("\r\n0fffffffffffffff\r\n", 413),
        ("\r\nb;extension\r\n{\"ids\":[1]}\r\n100000\r\n", 413),
    ] {
        let mut client = server.client();
        client.send(format!("{GET}{head}{rest}"));
        assert_eq!(client.answer().text(), ONE);
        let answer = client.answer();
        answer.problem(status);
        assert_eq!(answer.header("connection"), Some("close"), "{rest}");
        client.closed(SOON);
    }
    assert_eq!(server.queries(), 1, "of the record");
    let mut client = server.client();
    client.send(format!("GET /products/1 HTTP/1.2\r\nHost: h\r\n\r\n{GET}"));
    assert_eq!(client.answer().status, 505);
    client.closed(SOON);
}
