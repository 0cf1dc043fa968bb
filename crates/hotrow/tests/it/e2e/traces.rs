//! Traces of the real binary, as a stand-in for a collector receives them. Names of
//! the other databases: `shop::traces`.

use std::time::{Duration, Instant};

use hotrow_testkit::harness::{Config, Database, Gate, SOON, Server, await_until};
use rustix::process::Signal;

use crate::collector::{
    Behaviour, CLIENT, Collector, INTERNAL, PARENT, SERVER, Span, attributes, of, traceparent,
};

/// Returns a request for a path, by a caller that records its trace of this number.
fn request(path: &str, trace_id: u128) -> String {
    let traceparent = traceparent(trace_id, true);
    format!("GET {path} HTTP/1.1\r\nHost: a\r\ntraceparent: {traceparent}\r\n\r\n")
}

pub(crate) fn config(database: &Database, collector: &Collector) -> Config {
    Config::new(database.path())
        .collection("products")
        .set("trace.endpoint", &collector.endpoint())
        .set("trace.sample", "0")
        .set("trace.service_name", "\"shop\"")
}

#[test]
fn a_miss_of_a_recorded_trace_has_a_server_span_and_a_query_below_it() {
    let database = Database::with_products(10);
    let collector = Collector::start(Behaviour::ok());
    let server = Server::start(&config(&database, &collector));
    let mut client = server.client();
    let headers = [("traceparent", traceparent(1, true))];
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    assert_eq!(client.get_with("/products/7", &headers).cache(), "miss");
    let span = collector.await_server_span(1);
    assert_eq!(span.name, "GET /products/{id}");
    assert_eq!(span.parent_span_id, format!("{PARENT:016x}"));
    let found = attributes(&span);
    let expected = [
        ("http.request.method", "GET"),
        ("http.route", "/products/{id}"),
        ("http.response.status_code", "200"),
        ("url.path", "/products/REDACTED"),
        ("url.scheme", "http"),
        ("network.protocol.version", "1.1"),
        ("hotrow.cache", "miss"),
        ("hotrow.read", "normal"),
    ];
    assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    let query = collector.await_span("a query", |span| of(span, 1) && span.kind == CLIENT);
    assert_eq!(query.parent_span_id, span.span_id);
    assert_eq!(query.name, "SELECT products");
    let file = database.path().file_name().unwrap().to_str().unwrap().to_owned();
    let found = attributes(&query);
    let expected = [
        ("db.system.name", "sqlite"),
        ("db.namespace", &file),
        ("db.collection.name", "products"),
        ("db.operation.name", "SELECT"),
        ("db.query.summary", "SELECT products"),
        ("db.response.returned_rows", "1"),
        ("hotrow.fill.kept", "1"),
    ];
    assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    let inside = |outer: &Span| {
        outer.start_time_unix_nano <= query.start_time_unix_nano
            && query.start_time_unix_nano <= query.end_time_unix_nano
    };
    assert!(inside(&span), "{span:?} {query:?}");
    let wait = collector.await_span("a wait", |span| of(span, 1) && span.kind == INTERNAL);
    assert_eq!((&*wait.name, &wait.parent_span_id), ("wait for query", &span.span_id));
    let resource = &collector.received()[0].message.resource_spans[0];
    let resource = resource.resource.to_string();
    assert!(resource.contains("service.name") && resource.contains("\"shop\""), "{resource}");
    // A hit has one span, and the caller's decision against it is followed.
    assert_eq!(
        client.get_with("/products/7", &[("traceparent", &traceparent(2, true))]).status,
        200
    );
    assert_eq!(
        client.get_with("/products/8", &[("traceparent", &traceparent(3, false))]).status,
        200
    );
    assert_eq!(client.get("/products/9").status, 200);
    let hit = collector.await_server_span(2);
    assert_eq!(attributes(&hit)["hotrow.cache"], "hit");
    server.signal(Signal::TERM);
    assert_eq!(server.ended(SOON).code(), 0);
    let spans = collector.spans();
    assert_eq!(spans.iter().filter(|span| of(span, 2)).count(), 1);
    let others = spans.iter().filter(|span| !of(span, 1) && !of(span, 2));
    let others: Vec<&str> = others.map(|span| span.name.as_str()).collect();
    assert_eq!(others, ["feed start"], "{spans:?}");
}

#[test]
fn a_share_of_other_misses_is_traced() {
    let database = Database::with_products(10);
    let collector = Collector::start(Behaviour::ok());
    let server = Server::start(&config(&database, &collector).set("trace.sample", "1"));
    let mut client = server.client();
    assert_eq!(client.get("/products/1").cache(), "miss");
    assert_eq!(client.get("/products/1").cache(), "hit");
    let batch = client.get("/products?ids=1,2,3");
    assert_eq!(batch.cache(), "miss");
    let posted = client.post("/products", r#"{"ids":[4,5]}"#);
    assert_eq!(posted.cache(), "miss");
    // All of it is in memory: there is no wait for a key.
    assert_eq!(client.post("/products", r#"{"ids":[4,5]}"#).cache(), "hit");
    server.signal(Signal::TERM);
    assert_eq!(server.ended(SOON).code(), 0);
    let spans = collector.spans();
    let named = |name: &str| spans.iter().filter(|span| span.name == name).collect::<Vec<_>>();
    assert_eq!(named("GET /products/{id}").len(), 1, "{spans:?}");
    assert_eq!((named("GET /products").len(), named("POST /products").len()), (1, 1));
    let root = named("POST /products")[0];
    assert!(root.parent_span_id.is_empty());
    let queries: Vec<_> = spans.iter().filter(|span| span.kind == CLIENT).collect();
    assert_eq!(queries.len(), 3);
    let query = queries.iter().find(|query| query.trace_id == root.trace_id).expect("its query");
    assert_eq!(query.parent_span_id, root.span_id);
    assert_eq!(attributes(query)["db.operation.batch.size"], "2");
}

#[cfg(feature = "failpoints")]
#[test]
fn requests_that_share_a_query_are_linked_to_it() {
    let database = Database::with_products(10);
    let collector = Collector::start(Behaviour::ok());
    let gate = Gate::new("products/1");
    let server = Server::start(&config(&database, &collector).gate(&gate));
    let in_flight = || server.metrics().sum("hotrow_queries_in_flight", &[]);
    let coalesced = || server.metrics().sum("hotrow_coalesced_total", &[]);
    let mut clients: Vec<_> = (0..3).map(|_| server.client()).collect();
    clients[0].send(request("/products/1", 1));
    await_until("the query", SOON, || in_flight() == 1.0);
    clients[1].send(request("/products/1", 2));
    // Of the same trace as the first.
    clients[2].send(request("/products/1", 1));
    await_until("the others", SOON, || coalesced() == 2.0);
    gate.open();
    clients.iter_mut().for_each(|client| assert_eq!(client.answer().status, 200));
    server.signal(Signal::TERM);
    assert_eq!(server.ended(SOON).code(), 0);
    let spans = collector.spans();
    let queries: Vec<_> = spans.iter().filter(|span| span.kind == CLIENT).collect();
    assert_eq!(queries.len(), 1, "{spans:?}");
    let query = queries[0];
    assert!(of(query, 1));
    let servers: Vec<_> = spans.iter().filter(|span| span.kind == SERVER).collect();
    let owner = servers.iter().find(|span| span.span_id == query.parent_span_id).expect("owner");
    assert_eq!(attributes(owner)["hotrow.cache"], "miss");
    let linked: Vec<_> = query.links.iter().map(|link| &link.span_id).collect();
    assert_eq!(linked.len(), 2);
    for other in servers.iter().filter(|span| span.span_id != owner.span_id) {
        assert_eq!(attributes(other)["hotrow.cache"], "coalesced");
        assert!(linked.contains(&&other.span_id));
        let shared = spans.iter().find(|span| span.parent_span_id == other.span_id);
        let shared = shared.expect("its part of the query");
        assert_eq!((&*shared.name, &shared.trace_id), ("shared query", &other.trace_id));
        assert_eq!(shared.links[0].span_id, query.span_id);
        assert_eq!(shared.links[0].trace_id, query.trace_id);
    }
}

#[cfg(feature = "failpoints")]
#[test]
fn a_failed_query_fails_its_spans_without_its_text() {
    let database = Database::with_products(10);
    let collector = Collector::start(Behaviour::ok());
    let gate = Gate::new("products/1");
    let server = Server::start(&config(&database, &collector).gate(&gate));
    let mut client = server.client();
    client.send(request("/products/1", 1));
    await_until("the query", SOON, || server.metrics().sum("hotrow_queries_in_flight", &[]) == 1.0);
    database.execute("DROP TABLE products");
    gate.open();
    let status = client.answer().status;
    assert!(status >= 500, "{status}");
    let span = collector.await_server_span(1);
    assert_eq!(attributes(&span)["error.type"], status.to_string());
    assert_eq!(span.status.as_ref().map(|status| status.code), Some(2));
    let query = collector.await_span("the query", |span| span.kind == CLIENT);
    assert_eq!(attributes(&query)["error.type"], "broken");
    assert!(!format!("{:?}", collector.spans()).contains("no such table"));
}

#[test]
fn a_wait_for_a_position_is_a_part_of_its_request() {
    let database = Database::with_products(10);
    let collector = Collector::start(Behaviour::ok());
    let config = config(&database, &collector)
        .set("collections.products.allow_min_position", "true")
        .set("collections.products.allow_no_cache", "true");
    let server = Server::start(&config);
    let mut client = server.client();
    let log = client.get("/products/1").position();
    database.execute("UPDATE products SET price = 5 WHERE id = 2");
    let position = log.with(database.log_end()).to_string();
    let trace = traceparent(1, true);
    let headers = [("Hotrow-Min-Position", &*position), ("traceparent", &trace)];
    let answer = client.get_with("/products/2", &headers);
    assert_eq!((answer.status, answer.json()["price"].as_u64()), (200, Some(5)));
    let span = collector.await_server_span(1);
    assert_eq!(attributes(&span)["hotrow.read"], "min_position");
    let wait = collector.await_span("the wait", |span| span.name == "wait for position");
    assert_eq!(wait.parent_span_id, span.span_id);
    assert!(attributes(&wait).contains_key("hotrow.position.passed"));
    let trace = traceparent(2, true);
    client.get_with("/products/2", &[("Cache-Control", "no-cache"), ("traceparent", &trace)]);
    let span = collector.await_server_span(2);
    let found = attributes(&span);
    assert_eq!((&*found["hotrow.read"], &*found["hotrow.cache"]), ("revalidate", "bypass"));
}

#[test]
fn a_request_by_an_alias_shows_both_of_its_queries() {
    let database = Database::new();
    database.execute(
        "CREATE TABLE users(id INTEGER PRIMARY KEY, email TEXT UNIQUE);
         INSERT INTO users VALUES (1, 'ann@x.org'), (2, 'bob@x.org');",
    );
    let collector = Collector::start(Behaviour::ok());
    let config = Config::new(database.path())
        .collection("users")
        .set("collections.users.by.email.columns", "\"email\"")
        .set("trace.endpoint", &collector.endpoint())
        .set("trace.sample", "0");
    let server = Server::start(&config);
    let mut client = server.client();
    client.get("/users/2");
    let queries_of = |spans: &[Span], trace_id: u128| {
        let queries = spans.iter().filter(|span| of(span, trace_id) && span.kind == CLIENT);
        let mut queries: Vec<Span> = queries.cloned().collect();
        queries.sort_by_key(|query| query.start_time_unix_nano);
        queries
    };
    for (trace_id, path) in [
        (1, "/users/by/email/ann@x.org"),
        // Its record is in memory, and then its value too.
        (2, "/users/by/email/bob@x.org"),
        (3, "/users/by/email/bob@x.org"),
        (4, "/users/by/email/none@x.org"),
    ] {
        client.send(request(path, trace_id));
        client.answer();
        collector.await_server_span(trace_id);
    }
    server.signal(Signal::TERM);
    assert_eq!(server.ended(SOON).code(), 0);
    let spans = collector.spans();
    for (trace_id, count) in [(1, 2), (2, 1), (3, 0), (4, 1)] {
        let queries = queries_of(&spans, trace_id);
        assert_eq!(queries.len(), count, "{trace_id}: {spans:?}");
        let server_span =
            spans.iter().find(|span| of(span, trace_id) && span.kind == SERVER).unwrap();
        assert_eq!(server_span.name, "GET /users/{id}");
        assert!(queries.iter().all(|query| query.parent_span_id == server_span.span_id));
        assert!(queries.iter().all(|query| query.name == "SELECT users"), "{queries:?}");
        assert!(!format!("{server_span:?}").contains("x.org"));
    }
    let [value, record] = &queries_of(&spans, 1)[..] else { panic!("two queries") };
    assert!(value.end_time_unix_nano <= record.start_time_unix_nano, "one after the other");
    let waits: Vec<_> =
        spans.iter().filter(|span| of(span, 1) && span.name == "wait for query").collect();
    assert_eq!(waits.len(), 2, "one before each query: {waits:?}");
}

#[test]
fn ids_and_credentials_are_in_no_span_and_no_line() {
    let database = Database::with_products(10);
    let collector = Collector::start(Behaviour::ok());
    let headers = database.folder().join("headers");
    std::fs::write(&headers, "Authorization: Bearer s3cret\nx-scope: shop\n").unwrap();
    let config = config(&database, &collector)
        .set("trace.headers_file", &format!("{headers:?}"))
        .set("log.level", "\"trace\"");
    let server = Server::start(&config);
    let mut client = server.client();
    let trace = traceparent(1, true);
    client.get_with("/products/77777777", &[("traceparent", &trace), ("X-API-Key", "k3y")]);
    client.get_with(
        "/products?ids=77777777,88888888&x=k3y",
        &[("traceparent", &traceparent(2, true))],
    );
    collector.await_server_span(2);
    // They are read again: a new token is sent with the next message.
    std::fs::write(&headers, "Authorization: Bearer an0ther\n").unwrap();
    client.get_with("/products/77777777", &[("traceparent", &traceparent(3, true))]);
    collector.await_server_span(3);
    let received = collector.received();
    assert!(received[0].head.contains("authorization: Bearer s3cret"), "{}", received[0].head);
    assert!(received.last().unwrap().head.contains("authorization: Bearer an0ther"));
    for received in &received {
        let text = String::from_utf8_lossy(&received.bytes);
        // Ids that no time and no random id contains.
        for secret in ["77777777", "88888888", "k3y", "s3cret", "an0ther"] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
    }
    for secret in ["s3cret", "an0ther", "k3y"] {
        assert!(!server.log().contains(secret), "{secret}");
    }
    let with_keys = Server::start(&config.set("trace.record_keys", "true"));
    with_keys
        .client()
        .get_with("/products/77777777?x=1", &[("traceparent", &traceparent(4, true))]);
    assert_eq!(attributes(&collector.await_server_span(4))["url.path"], "/products/77777777");
}

/// Sends requests of recorded traces, and asserts that each is answered quickly. Returns their
/// number.
fn send_many(server: &Server, times: u32) -> u32 {
    let mut client = server.client();
    let begun = Instant::now();
    for number in 0..times {
        let path = format!("/products/{}", number % 10 + 1);
        client.send(request(&path, u128::from(number) + 1_000));
        assert_eq!(client.answer().status, 200);
    }
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    times
}

#[test]
fn a_collector_that_does_not_work_delays_no_request_and_takes_no_memory() {
    let database = Database::with_products(10);
    for (what, behaviour) in [
        ("refuses", None),
        ("silent", Some(Behaviour::Silence)),
        ("garbage", Some(Behaviour::Garbage)),
        ("503", Some(Behaviour::Answer(503, "retry-after: 1\r\n", Vec::new()))),
    ] {
        let collector = Collector::start(behaviour.clone().unwrap_or(Behaviour::Silence));
        let config = config(&database, &collector).set("trace.max_per_s", "10000");
        // A port that nothing listens on.
        let config = match behaviour {
            None => config.set("trace.endpoint", "\"http://127.0.0.1:9/v1/traces\""),
            Some(_) => config,
        };
        let server = Server::start(&config);
        let sum = |name: &str, labels: &[(&str, &str)]| server.metrics().sum(name, labels);
        let dropped = || sum("hotrow_trace_spans_dropped_total", &[("reason", "queue_full")]);
        // Until the queue is full, and then as many again.
        await_until("a full queue", SOON, || {
            send_many(&server, 500);
            dropped() > 500.0
        });
        let queued = sum("hotrow_trace_queue_bytes", &[]);
        assert!((1.0..=262_144.0).contains(&queued), "{what}: {queued}");
        if !matches!(behaviour, Some(Behaviour::Silence)) {
            await_until("a failure", SOON, || sum("hotrow_trace_export_failures_total", &[]) > 0.0);
            let line = if what == "503" { "answers 503" } else { "spans were not exported" };
            server.await_log(line);
        }
        assert_eq!(sum("hotrow_trace_spans_total", &[("outcome", "exported")]), 0.0, "{what}");
        // The end does not wait for it.
        let begun = Instant::now();
        server.signal(Signal::TERM);
        assert_eq!(server.ended(SOON).code(), 0, "{what}");
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}: {:?}", begun.elapsed());
    }
}

#[test]
fn what_the_collector_asks_to_repeat_arrives() {
    let database = Database::with_products(10);
    let collector = Collector::start(Behaviour::Answer(429, "retry-after: 1\r\n", Vec::new()));
    let server = Server::start(&config(&database, &collector));
    let trace = traceparent(1, true);
    server.client().get_with("/products/1", &[("traceparent", &trace)]);
    await_until("two attempts", SOON, || collector.received().len() >= 2);
    collector.behave(Behaviour::ok());
    let sum = |labels: &[(&str, &str)]| server.metrics().sum("hotrow_trace_spans_total", labels);
    await_until("the export", SOON, || sum(&[("outcome", "exported")]) >= 3.0);
    assert_eq!(sum(&[("outcome", "failed")]), 0.0);
    let received = collector.received();
    assert_eq!(received[0].bytes, received[1].bytes, "the same message");
}

#[test]
fn rejected_and_refused_spans_are_counted() {
    let database = Database::with_products(10);
    let partial = r#"{"partialSuccess": {"rejectedSpans": "1", "errorMessage": "too \u0007old"}}"#;
    let collector = Collector::start(Behaviour::Answer(200, "", partial.into()));
    let server = Server::start(&config(&database, &collector));
    let sum =
        |outcome: &str| server.metrics().sum("hotrow_trace_spans_total", &[("outcome", outcome)]);
    await_until("a rejected span", SOON, || sum("rejected") == 1.0);
    server.await_log("detail=\"too old\"");
    collector.behave(Behaviour::Answer(400, "", Vec::new()));
    server.client().get_with("/products/1", &[("traceparent", &traceparent(1, true))]);
    // The server span, the wait and the query; none is sent again.
    await_until("failed spans", SOON, || sum("failed") == 3.0);
    server.await_log("answers 400");
    // A body that is no message rejects nothing.
    collector.behave(Behaviour::Answer(200, "", b"<html>".to_vec()));
    server.client().get_with("/products/2", &[("traceparent", &traceparent(2, true))]);
    await_until("exported spans", SOON, || sum("exported") >= 3.0);
}

#[test]
fn the_traces_of_a_second_are_bounded() {
    let database = Database::with_products(10);
    let collector = Collector::start(Behaviour::ok());
    let server = Server::start(&config(&database, &collector).set("trace.max_per_s", "1"));
    let dropped = |reason: &str| {
        server.metrics().sum("hotrow_trace_spans_dropped_total", &[("reason", reason)])
    };
    await_until("a dropped trace", SOON, || {
        send_many(&server, 100);
        dropped("rate") > 90.0
    });
    assert_eq!(dropped("queue_full"), 0.0);
}

#[test]
fn a_feed_that_loses_its_position_has_a_span_of_its_own() {
    let database = Database::with_products(10);
    let collector = Collector::start(Behaviour::ok());
    let server = Server::start(&config(&database, &collector));
    let start = collector.await_span("the start", |span| span.name == "feed start");
    assert!(start.parent_span_id.is_empty() && start.kind == INTERNAL);
    // Another instance prunes changes that the feed has not read.
    server.stop();
    database.execute("UPDATE products SET price = 1");
    database.execute(
        "BEGIN; UPDATE _hotrow_meta SET pruned_to = 5; DELETE FROM _hotrow_log WHERE seq <= 5;
         COMMIT",
    );
    server.signal(Signal::CONT);
    let gap = collector.await_span("the gap", |span| span.name == "feed gap");
    assert_ne!(gap.trace_id, start.trace_id);
    assert_eq!(attributes(&gap)["hotrow.feed.loss_cause"], "log_pruned");
    assert!(gap.start_time_unix_nano < gap.end_time_unix_nano);
}

#[test]
fn a_stopped_process_reports_its_staleness() {
    let database = Database::with_products(10);
    let collector = Collector::start(Behaviour::ok());
    let config = config(&database, &collector).set("cache.max_staleness", "\"100ms\"");
    let server = Server::start(&config);
    collector.await_span("the start", |span| span.name == "feed start");
    server.stop();
    std::thread::sleep(Duration::from_millis(300));
    server.signal(Signal::CONT);
    let stale = collector.await_span("the episode", |span| span.name == "feed stale");
    assert!(stale.end_time_unix_nano > stale.start_time_unix_nano);
}

#[test]
fn a_reload_leaves_traces_as_they_are() {
    let database = Database::with_products(10);
    let collector = Collector::start(Behaviour::ok());
    let other = Collector::start(Behaviour::ok());
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("hotrow.toml");
    let own = config(&database, &collector).set("reload.watch_file", "true");
    std::fs::write(&file, own.text()).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_hotrow"));
    command.args(["serve", "--config"]).arg(&file).stdin(std::process::Stdio::null());
    let server = Server::start_command(command);
    server.await_ready();
    let changed = own
        .set("trace.endpoint", &other.endpoint())
        .set("collections.products.cache_control", "\"max-age=9\"");
    std::fs::write(&file, changed.text()).unwrap();
    await_until("the reload", SOON, || {
        server.get("/products/1").header("cache-control") == Some("max-age=9")
    });
    // The log is written by a thread of its own.
    server.await_log("path=\"trace.endpoint\"");
    server.client().get_with("/products/2", &[("traceparent", &traceparent(1, true))]);
    collector.await_server_span(1);
    assert!(other.received().is_empty());
}

#[test]
fn a_file_of_header_fields_is_checked_at_the_start() {
    let database = Database::with_products(1);
    let collector = Collector::start(Behaviour::ok());
    let config = config(&database, &collector).set("trace.headers_file", "\"/nonexistent/fields\"");
    let ended = hotrow_testkit::harness::Ended::run_config(&config, SOON);
    assert_eq!(ended.code(), 1);
    assert!(ended.log.contains("trace.headers_file /nonexistent/fields cannot be read"));
}
