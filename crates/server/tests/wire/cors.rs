//! Requests that browsers send from pages of other origins, over HTTP/1.1 and HTTP/2.

use std::time::Duration;

use crate::common::http2::Http2Connection;
use crate::common::service::{Running, access, config};
use crate::common::{Answer, Client};
use hotrow_config::Config;
use hotrow_config::cors::{Cors, Origins};
use hotrow_config::transport::Transport;

const ORIGIN: &str = "https://shop.example";
const ALLOW: &str = "access-control-allow-origin: https://shop.example\r\n";

fn start(origins: Origins) -> (Running, String) {
    let (access, key) = access();
    let max_age = Duration::from_secs(600);
    let cors = Some(Cors { origins, allow_credentials: false, max_age });
    let transport = Transport { http2: true, ..Transport::default() };
    (Running::start(&Config { access: Some(access), cors, transport, ..config() }), key)
}

/// Sends one request over each version of HTTP.
fn ask(server: &Running, method: &str, target: &str, fields: &str) -> [Answer; 2] {
    let request =
        format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{fields}Connection: close\r\n\r\n");
    let mut received = Client::connect(server.address).send(request).rest();
    let mut second = Http2Connection::connect(server.address);
    [received.answers.pop().unwrap(), second.ask(method, target, fields, "")]
}

fn listed() -> Origins {
    Origins::Listed(vec![ORIGIN.parse().unwrap(), "http://localhost:3000".parse().unwrap()])
}

#[test]
fn a_page_of_an_allowed_origin_may_read_every_answer() {
    let (server, key) = start(listed());
    let origin = format!("Origin: {ORIGIN}\r\n");
    let good = format!("{origin}X-API-Key: {key}\r\n");
    for (target, fields, status) in [
        ("/products/1", &good, 200),
        // A hit, which is written in another way.
        ("/products/1", &good, 200),
        ("/products/2", &good, 404),
        ("/products?ids=1,2", &good, 200),
        ("/products/x", &good, 400),
        ("/prices/1", &good, 403),
        ("/products/1", &origin, 401),
    ] {
        for answer in ask(&server, "GET", target, fields) {
            assert_eq!(answer.status, status, "{answer:?}");
            assert!(answer.head.contains(ALLOW), "{}", answer.head);
            assert!(answer.head.contains("vary: origin\r\n"), "{}", answer.head);
            let exposed = "access-control-expose-headers: age, etag, hotrow-cache";
            assert!(answer.head.contains(exposed), "{}", answer.head);
            assert!(!answer.head.contains("allow-credentials"), "{}", answer.head);
        }
    }
}

#[test]
fn other_origins_and_other_clients_are_served_without_permission() {
    let (server, key) = start(listed());
    for origin in ["", "Origin: https://evil.example\r\n", "Origin: null\r\n", "Origin: *\r\n"] {
        let fields = format!("{origin}X-API-Key: {key}\r\n");
        for answer in ask(&server, "GET", "/products/1", &fields) {
            assert_eq!(answer.status, 200);
            assert!(!answer.head.contains("access-control"), "{}", answer.head);
            assert!(answer.head.contains("vary: origin\r\n"), "{}", answer.head);
        }
    }
}

#[test]
fn a_preflight_request_needs_no_credential_and_reveals_nothing() {
    let (server, _) = start(listed());
    let preflight = |origin: &str| {
        format!(
            "Origin: {origin}\r\nAccess-Control-Request-Method: GET\r\n\
             Access-Control-Request-Headers: x-api-key\r\n"
        )
    };
    for target in ["/products/1", "/prices", "/unknown/7"] {
        for answer in ask(&server, "OPTIONS", target, &preflight(ORIGIN)) {
            assert_eq!((answer.status, &*answer.body), (204, ""), "{answer:?}");
            for field in [
                ALLOW,
                "vary: origin\r\n",
                "access-control-allow-methods: get, head, post\r\n",
                "access-control-allow-headers: authorization, x-api-key, content-type",
                "access-control-max-age: 600\r\n",
            ] {
                assert!(answer.head.contains(field), "{field} {}", answer.head);
            }
        }
        for answer in ask(&server, "OPTIONS", target, &preflight("https://evil.example")) {
            assert_eq!(answer.status, 403);
            assert!(!answer.head.contains("access-control"), "{}", answer.head);
        }
        // Without its fields it is an ordinary request, which needs a credential.
        for answer in ask(&server, "OPTIONS", target, "") {
            assert_eq!(answer.status, 401);
        }
    }
}

#[test]
fn any_origin_may_be_allowed() {
    let (server, key) = start(Origins::Any);
    for origin in ["", "Origin: https://evil.example\r\n"] {
        let fields = format!("{origin}X-API-Key: {key}\r\n");
        for answer in ask(&server, "GET", "/products/1", &fields) {
            assert!(answer.head.contains("access-control-allow-origin: *\r\n"), "{}", answer.head);
            assert!(!answer.head.contains("vary"), "{}", answer.head);
        }
    }
}

#[test]
fn without_a_list_no_answer_has_these_fields() {
    let server = Running::start(&config());
    let request = format!(
        "GET /products/1 HTTP/1.1\r\nHost: a\r\nOrigin: {ORIGIN}\r\nConnection: close\r\n\r\n"
    );
    let answer = Client::connect(server.address).send(request).rest().answers.pop().unwrap();
    assert!(answer.status == 200 && !answer.head.contains("access-control"), "{answer:?}");
    assert!(!answer.head.contains("vary"), "{answer:?}");
}
