//! Slow and failed queries in the log, with the traces of the requests that waited for them.

use std::time::Duration;

use hotrow_testkit::harness::config::read_delay;
use hotrow_testkit::harness::{Config, Database, Gate, SOON, Server, await_until};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn traceparent() -> String {
    format!("00-{TRACE}-00f067aa0ba902b7-01")
}

/// Returns the lines of the log with this message, once there is one.
fn lines(server: &Server, message: &str) -> Vec<serde_json::Value> {
    let find = || -> Vec<serde_json::Value> {
        let log = server.log();
        let lines = log.lines().filter_map(|line| serde_json::from_str(line).ok());
        lines.filter(|line: &serde_json::Value| line["message"] == message).collect()
    };
    await_until(message, SOON, || !find().is_empty());
    find()
}

#[test]
fn a_slow_query_is_logged_with_its_trace() {
    let database = Database::with_products(10);
    let config = Config::new(database.path())
        .collection("products")
        .with(&[("log.format", "\"json\""), ("source.slow_query", "\"20ms\"")])
        .failpoint(read_delay("products", Duration::from_millis(20)));
    let server = Server::start(&config);
    let mut client = server.client();
    let answer = client.get_with("/products?ids=1,2", &[("traceparent", &traceparent())]);
    assert_eq!(answer.status, 200);
    let lines = lines(&server, "slow query");
    let line = &lines[0];
    assert_eq!((&line["collection"], &line["keys"]), (&"products".into(), &2.into()), "{line}");
    assert_eq!((&line["trace_ids"], &line["has_failed"]), (&TRACE.into(), &false.into()), "{line}");
    assert!(line["duration_ms"].as_f64().is_some_and(|ms| ms >= 20.0), "{line}");
    assert!(line["waited_ms"].as_f64().is_some(), "{line}");
    assert!(server.metrics().sum("hotrow_slow_queries_total", &[("collection", "products")]) > 0.0);
}

#[test]
fn a_quick_query_is_not_logged() {
    let database = Database::with_products(10);
    let config = Config::new(database.path()).collection("products");
    let server = Server::start(&config);
    assert_eq!(server.client().get("/products/1").status, 200);
    assert_eq!(server.metrics().sum("hotrow_slow_queries_total", &[]), 0.0);
    assert!(!server.log().contains("slow query"), "{}", server.log());
}

#[test]
fn a_failed_query_is_logged_with_its_trace() {
    let database = Database::with_products(10);
    let gate = Gate::new("products/1");
    let config = Config::new(database.path())
        .collection("products")
        .set("log.format", "\"json\"")
        .gate(&gate);
    let server = Server::start(&config);
    let mut client = server.client();
    client.send(format!("GET /products/1 HTTP/1.1\r\nHost: a\r\ntraceparent: {}\r\n\r\n", {
        traceparent()
    }));
    await_until("the read", SOON, || {
        server.metrics().sum("hotrow_queries_in_flight", &[("collection", "products")]) > 0.0
    });
    database.execute("DROP TABLE products");
    gate.open();
    let answer = client.answer();
    assert!(answer.status >= 500, "{}", answer.status);
    let lines = lines(&server, "query failed");
    assert_eq!(lines[0]["trace_ids"], TRACE, "{}", lines[0]);
}
