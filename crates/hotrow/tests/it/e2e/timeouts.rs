//! Slow and silent clients.

use std::time::{Duration, Instant};

use hotrow_testkit::harness::{Config, Database, SOON, Server, await_until};

const SHORT: &str = "\"300ms\"";

fn start(database: &Database, settings: &[(&str, &str)]) -> Server {
    Server::start(&Config::new(database.path()).collection("products").with(settings))
}

fn closed_by(server: &Server, cause: &str) -> f64 {
    server.metrics().sum("hotrow_http_connections_closed_total", &[("cause", cause)])
}

#[test]
fn a_head_that_does_not_arrive_is_answered_408_and_closed() {
    let database = Database::with_products(3);
    let server = start(&database, &[("limits.header_timeout", SHORT)]);
    for half in [
        "G",
        "GET /products/1 HTTP/1.1\r\nHost: h\r\n",
        "GET /products/1 HTTP/1.1\r\nHost: h\r\nX: ",
    ] {
        let begun = Instant::now();
        let mut client = server.client();
        client.send(half);
        client.answer().problem(408);
        assert!(begun.elapsed() >= Duration::from_millis(300));
        client.closed(SOON);
    }
    // Single bytes do not extend the time.
    let mut client = server.client();
    let begun = Instant::now();
    for byte in
        b"GET /products/1 HTTP/1.1\r\nX: ".iter().chain(std::iter::repeat_n(&b'y', 1_000_000))
    {
        if client.try_send([*byte]).is_err() || begun.elapsed() > Duration::from_secs(5) {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
        if closed_by_now(&client) {
            break;
        }
    }
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    await_until("four connections closed by it", SOON, || {
        closed_by(&server, "header_timeout") == 4.0
    });
}

fn closed_by_now(client: &hotrow_testkit::harness::Client) -> bool {
    let mut byte = [0];
    client.stream().set_nonblocking(true).unwrap();
    let peeked = client.stream().peek(&mut byte);
    client.stream().set_nonblocking(false).unwrap();
    // An answer (408) or the end: in both cases the server has finished the connection.
    peeked.is_ok()
}

#[test]
fn a_body_that_does_not_arrive_is_answered_408_and_closed() {
    let database = Database::with_products(3);
    let server = start(&database, &[("limits.body_timeout", SHORT)]);
    for request in [
        "POST /products HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\n{\"ids\"",
        "POST /products HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"id",
    ] {
        let mut client = server.client();
        client.send(request);
        client.answer().problem(408);
        client.closed(SOON);
    }
    await_until("two connections closed by it", SOON, || closed_by(&server, "body_timeout") == 2.0);
}

#[test]
fn an_idle_connection_is_closed_and_a_busy_one_is_not() {
    let database = Database::with_products(3);
    // Longer than this thread may be delayed by a busy machine.
    let server = start(&database, &[("limits.idle_timeout", "\"2s\"")]);
    let mut idle = server.client();
    let mut fresh = server.client();
    let mut busy = server.client();
    assert_eq!(idle.get("/products/1").status, 200);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(4500) {
        assert_eq!(busy.get("/products/1").status, 200);
    }
    idle.closed(SOON);
    fresh.closed(SOON);
    assert_eq!(busy.get("/products/1").status, 200);
    assert_eq!(closed_by(&server, "idle_timeout"), 2.0);
}

#[test]
fn a_client_that_never_reads_is_cut_off_without_affecting_others() {
    let database = Database::new();
    database.execute(
        "CREATE TABLE products(id INTEGER PRIMARY KEY, text TEXT);
         INSERT INTO products VALUES (1, hex(zeroblob(10000))), (2, 'small')",
    );
    let server = start(&database, &[("limits.write_timeout", SHORT)]);
    assert_eq!(server.get("/products/1").body.len(), 20_000 + r#"{"id":1,"text":""}"#.len());
    let mut greedy = server.client();
    // 2,000 answers of 20 kB: far more than the sockets' buffers can store.
    let _ = greedy.try_send("GET /products/1 HTTP/1.1\r\nHost: h\r\n\r\n".repeat(2_000));
    let mut other = server.client();
    await_until("it to be cut off", SOON, || {
        assert_eq!(other.get("/products/2").status, 200);
        closed_by(&server, "write_timeout") == 1.0
    });
    let resident = server.metrics().sum("process_resident_memory_bytes", &[]);
    assert!(resident < 200e6, "{resident} bytes are too much for one greedy client");
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
    let begun = Instant::now();
    for path in ["/slow/1", "/slow?ids=1,2"] {
        assert_eq!(client.get(path).problem(504).0, "Timed out", "{path}");
    }
    assert!(begun.elapsed() >= Duration::from_millis(400));
    await_until("another table's answer", SOON, || client.get("/products/1").status == 200);
    // The read continues; its answer is then cached for the next request.
    gate.open();
    await_until("the answer", SOON, || client.get("/slow/1").status == 200);
}
