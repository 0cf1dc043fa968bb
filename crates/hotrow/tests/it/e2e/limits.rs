//! Limits on the resources that a client can use.

#[cfg(feature = "failpoints")]
use hotrow_testkit::harness::{Client, await_until};
use hotrow_testkit::harness::{Config, Database, SOON, Server};

fn start(settings: &[(&str, &str)]) -> (Database, Server) {
    let database = Database::with_products(10);
    let server = Server::start(&Config::new(database.path()).collection("products").with(settings));
    (database, server)
}

#[test]
fn heads_targets_and_bodies_over_their_limits_are_refused() {
    let limits = [
        ("limits.header_bytes", "\"8KiB\""),
        ("limits.headers", "10"),
        ("limits.target_bytes", "\"200B\""),
        ("limits.body_bytes", "\"1KiB\""),
    ];
    let (_database, server) = start(&limits);
    let fields = |n: usize| (0..n).map(|i| format!("X-{i}: y\r\n")).collect::<String>();
    let get = |target: &str, more: &str| format!("GET {target} HTTP/1.1\r\nHost: h\r\n{more}\r\n");
    let post = |length: usize| {
        let body = format!("{{\"ids\":[1]{}}}", " ".repeat(length - 11));
        format!("POST /products HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    let chunked = |length: usize| {
        let body = format!("{{\"ids\":[1]{}}}", " ".repeat(length - 11));
        format!(
            "POST /products HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\
             {length:x}\r\n{body}\r\n0\r\n\r\n"
        )
    };
    let query = |length: usize| format!("/products/1?{}", "&".repeat(length - 12));
    for (request, status) in [
        (get("/products/1", &fields(9)), 200),
        (get("/products/1", &fields(10)), 431),
        (get("/products/1", &format!("X: {}\r\n", "y".repeat(7_000))), 200),
        (get("/products/1", &format!("X: {}\r\n", "y".repeat(8_200))), 431),
        (get("/products/1", &format!("{}: y\r\n", "X".repeat(100_000))), 431),
        (get(&query(200), ""), 200),
        (get(&query(201), ""), 414),
        (get(&query(50_000), ""), 414),
        (post(1024), 200),
        (post(1025), 413),
        (post(100_000), 413),
        (chunked(1024), 200),
        (chunked(1025), 413),
        (chunked(100_000), 413),
    ] {
        let mut client = server.client();
        // A large request may not be read completely.
        let _ = client.try_send(&request);
        let answer = client.answer();
        assert_eq!(answer.status, status, "{}", &request[..request.len().min(100)]);
        if status != 200 {
            answer.problem(status);
        }
        if matches!(status, 414 | 431) {
            client.closed(SOON);
        }
    }
}

#[cfg(feature = "failpoints")]
#[test]
fn requests_in_flight_are_bounded_and_hits_do_not_count() {
    let database = Database::new();
    let gate = hotrow_testkit::harness::Gate::new("slow/1");
    database.add_table("slow", 3);
    let config =
        Config::new(database.path()).collection("slow").set("limits.requests_in_flight", "2");
    let server = Server::start(&config.gate(&gate));
    let mut client = server.client();
    client.get("/slow/2");
    let mut held: Vec<Client> = (0..2).map(|_| server.client()).collect();
    held.iter_mut().for_each(|client| client.send("GET /slow/1 HTTP/1.1\r\nHost: h\r\n\r\n"));
    await_until("two to wait", SOON, || {
        server.metrics().sum("hotrow_requests_waiting", &[]) == 2.0
    });
    let refused = client.get("/slow/3");
    assert_eq!(refused.problem(503).0, "Overloaded");
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(client.get("/slow/2").cache(), "hit");
    gate.open();
    assert!(held.iter_mut().all(|client| client.answer().status == 200));
    assert_eq!(client.get("/slow/3").status, 200);
    assert_eq!(
        server.metrics().sum("hotrow_requests_refused_total", &[("limit", "requests_in_flight")]),
        1.0
    );
}

#[cfg(feature = "failpoints")]
#[test]
fn a_read_that_takes_too_long_is_504() {
    let database = Database::with_products(3);
    let gate = hotrow_testkit::harness::Gate::new("slow/1");
    database.add_table("slow", 2);
    let settings = [("limits.request_timeout", "\"200ms\""), ("source.read_timeout", "\"1m\"")];
    let config =
        Config::new(database.path()).collection("products").collection("slow").with(&settings);
    let server = Server::start(&config.gate(&gate));
    let mut client = server.client();
    let begun = std::time::Instant::now();
    for path in ["/slow/1", "/slow?ids=1,2"] {
        assert_eq!(client.get(path).problem(504).0, "Timed out", "{path}");
    }
    assert!(begun.elapsed() >= std::time::Duration::from_millis(400));
    await_until("another table's answer", SOON, || client.get("/products/1").status == 200);
    // The read continues; its answer is then cached for the next request.
    gate.open();
    await_until("the answer", SOON, || client.get("/slow/1").status == 200);
}
