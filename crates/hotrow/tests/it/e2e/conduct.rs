//! Behaviour that HTTP/1.1 clients expect.

use std::sync::OnceLock;
use std::time::Duration;

use hotrow_testkit::harness::client::request_bytes;
use hotrow_testkit::harness::{Client, Config, Database, SOON, Server};

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

#[test]
fn connections_close_exactly_when_they_should() {
    let (_database, server) = start();
    let one_zero = "GET /products/1 HTTP/1.0\r\n";
    for (request, stays) in [
        (GET.to_owned(), true),
        ("GET /products/1 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".into(), false),
        ("GET /products/1 HTTP/1.1\r\nHost: h\r\nConnection: CLOSE\r\n\r\n".into(), false),
        ("GET /products/1 HTTP/1.1\r\nHost: h\r\nConnection: keep-alive\r\n\r\n".into(), true),
        (format!("{one_zero}\r\n"), false),
        (format!("{one_zero}Host: h\r\n\r\n"), false),
        (format!("{one_zero}Connection: keep-alive\r\n\r\n"), true),
        (format!("{one_zero}Connection: close\r\n\r\n"), false),
    ] {
        let mut client = server.client();
        client.send(&request);
        let answer = client.answer();
        assert_eq!((answer.status, answer.text().as_str()), (200, ONE), "{request}");
        if stays {
            client.send(&request);
            assert_eq!(client.answer().status, 200, "{request}");
        } else {
            client.closed(SOON);
        }
    }
    // An HTTP/1.0 client gets a header that confirms the kept connection.
    let mut client = server.client();
    client.send(format!("{one_zero}Connection: keep-alive\r\n\r\n"));
    let answer = client.answer();
    assert!(
        answer.header("connection").is_some_and(|c| c.eq_ignore_ascii_case("keep-alive")),
        "{answer:?}"
    );
    // Requests pipelined behind the last one are not answered.
    let mut client = server.client();
    client.send(format!("GET /products/1 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n{GET}"));
    assert_eq!(client.answer().status, 200);
    client.closed(SOON);
    // A client that has closed its sending side still gets its answer.
    let mut client = server.client();
    client.send(GET);
    client.end_sending();
    assert_eq!(client.answer().status, 200);
    client.closed(SOON);
}

#[test]
fn expect_100_continue_is_honoured() {
    let (_database, server) = start();
    let mut client = server.client();
    let body = br#"{"ids":[1]}"#;
    let head = |length: usize| {
        format!(
            "POST /products HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\
             Content-Length: {length}\r\n\r\n"
        )
    };
    client.send(head(body.len()));
    let interim = client.answer();
    assert_eq!(interim.status, 100);
    client.send(body);
    assert_eq!(client.answer().json()["items"]["1"]["id"], 1);
    // A request that will be rejected gets no `100 Continue`.
    let mut client = server.client();
    client.send(head(2 << 20));
    assert_eq!(client.answer().status, 413);
    client.closed(SOON);
}

#[test]
fn targets_in_absolute_form_and_unusual_but_valid_heads_are_answered() {
    let (_database, server) = start();
    for request in [
        "GET http://example.org/products/1 HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET http://example.org:80/products/1 HTTP/1.1\r\nHost: example.org:80\r\n\r\n",
        "GET /products/1? HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /products/1?x=1 HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /products/1 HTTP/1.1\r\nhOsT:h\r\n\r\n",
        "GET /products/1 HTTP/1.1\r\nHost:  \t h \t \r\n\r\n",
        "GET /products/1 HTTP/1.1\r\nHost: [::1]:80\r\nX-Empty:\r\n\r\n",
        "\r\n\r\nGET /products/1 HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /products/1 HTTP/1.1\nHost: h\n\n",
        "GET /products/1 HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
        "GET /products/1 HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n",
        "GET /products/1 HTTP/1.1\r\nHost: h\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
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

#[test]
fn chunked_bodies_are_read() {
    let (_database, server) = start();
    let mut client = server.client();
    let head = "POST /products HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    for body in [
        "b\r\n{\"ids\":[1]}\r\n0\r\n\r\n",
        "B;name=value\r\n{\"ids\":[1]}\r\n0\r\n\r\n",
        "0000000b\r\n{\"ids\":[1]}\r\n0\r\n\r\n",
        "1\r\n{\r\n5\r\n\"ids\"\r\n5\r\n:[1]}\r\n0\r\n\r\n",
        "b\r\n{\"ids\":[1]}\r\n0\r\nX-Trailer: y\r\n\r\n",
        "b\r\n{\"ids\":[1]}\r\n000\r\n\r\n",
    ] {
        client.send(format!("{head}{body}"));
        let answer = client.answer();
        assert_eq!(
            (answer.status, &answer.json()["items"]["1"]["id"]),
            (200, &serde_json::json!(1)),
            "{body:?}"
        );
    }
    assert_eq!(client.get("/products/1").status, 200);
}

/// Returns the exchange that [`splits`] repeats, and its expected answer.
fn conversation() -> (&'static [u8], &'static [u8]) {
    static BOTH: OnceLock<(Vec<u8>, Vec<u8>)> = OnceLock::new();
    let (request, expected) = BOTH.get_or_init(|| {
        let post = "POST /products HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\
                    6\r\n{\"ids\"\r\n5;x=y\r\n:[1]}\r\n0\r\nT: 1\r\n\r\n";
        let request = format!("{post}{GET}").into_bytes();
        (request, format!(r#"{{"items":{{"1":{ONE}}},"missing":[]}}"#).into_bytes())
    });
    (request, expected)
}

#[test]
fn splits() {
    let (_database, server) = start();
    let (request, expected) = conversation();
    server.get("/products/1");
    let pause = |client: &Client| {
        // The first part should arrive alone, so that the server sees the split; this side cannot
        // observe that.
        let _ = client.stream();
        std::thread::yield_now();
    };
    for at in 1..request.len() {
        let mut client = server.client();
        client.send(&request[..at]);
        pause(&client);
        client.send(&request[at..]);
        assert_eq!(client.answer().body, expected, "split at {at}");
        assert_eq!(client.answer().text(), ONE, "split at {at}");
    }
    let mut client = server.client();
    for byte in request {
        client.send([*byte]);
        pause(&client);
    }
    assert_eq!(client.answer().body, expected, "byte by byte");
    assert_eq!(client.answer().text(), ONE);
    assert!(client.try_answer("GET", Duration::from_millis(1)).is_err(), "nothing more");
}
