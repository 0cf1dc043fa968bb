//! HEAD: no answer has a body, whether from the parser, the HTTP/1 connection or the handler. A
//! client would read a body as its next answer.

use hotrow_testkit::harness::{Config, Database, SOON, Server};

fn start(settings: &[(&str, &str)]) -> (Database, Server) {
    let database = Database::with_products(3);
    let server = Server::start(&Config::new(database.path()).collection("products").with(settings));
    (database, server)
}

#[test]
fn no_refusal_of_a_head_request_has_a_body() {
    let (_database, server) = start(&[]);
    let long = "x".repeat(9_000);
    let fields = "X: y\r\n".repeat(100);
    for (request, status) in [
        ("HEAD /products/1 HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("HEAD /products/1 HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".to_owned(), 400),
        ("HEAD /products/1\r\n\r\n".to_owned(), 400),
        ("HEAD * HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 400),
        ("HEAD /products/1 HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n".to_owned(), 400),
        ("\r\n\nHEAD /products/1 HTTP/1.1\r\n folded\r\n\r\n".to_owned(), 400),
        ("HEAD /products/1 HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999\r\n\r\n".to_owned(), 413),
        (format!("HEAD /products/{long} HTTP/1.1\r\nHost: a\r\n\r\n"), 414),
        (format!("HEAD /products/1 HTTP/1.1\r\nHost: a\r\nX: {long}{long}\r\n\r\n"), 431),
        (format!("HEAD /products/1 HTTP/1.1\r\nHost: a\r\n{fields}\r\n"), 431),
        ("HEAD /products/1 HTTP/2.0\r\nHost: a\r\n\r\n".to_owned(), 505),
        ("HEAD /products/1 HTTP/1.2\r\nHost: a\r\n\r\n".to_owned(), 505),
    ] {
        for before in ["", "GET /products/1 HTTP/1.1\r\nHost: a\r\n\r\n"] {
            let mut client = server.client();
            // A rejected request may not be read completely.
            let _ = client.try_send(format!("{before}{request}"));
            if !before.is_empty() {
                assert_eq!(client.answer().status, 200);
            }
            let answer = client.answer_to("HEAD");
            let shown = &request[..request.len().min(80)];
            assert_eq!(answer.status, status, "{shown:?}");
            assert_eq!(
                answer.header("content-type"),
                Some("application/problem+json"),
                "{shown:?}"
            );
            assert_ne!(
                answer.header("content-length"),
                Some("0"),
                "the length of the answer to a GET"
            );
            client.closed(SOON);
        }
    }
}

/// Only a complete method HEAD counts: the answer to anything else has its body.
#[test]
fn refusals_of_other_methods_have_a_body() {
    let (_database, server) = start(&[]);
    for method in ["GET", "POST", "HEADER", "head", "XHEAD"] {
        let mut client = server.client();
        client.send(format!("{method} /products/1 HTTP/1.1\r\n\r\n"));
        client.answer_to("GET").problem(400);
        client.closed(SOON);
    }
}

#[test]
fn a_head_request_that_times_out_is_answered_without_a_body() {
    let (_database, server) = start(&[("limits.header_timeout", "\"100ms\"")]);
    let mut client = server.client();
    client.send("HEAD /products/1 HTTP/1.1\r\nHo");
    assert_eq!(client.answer_to("HEAD").status, 408);
    client.closed(SOON);
}
