//! Circuit breaker: queries to a failing database stop and resume; requests that need no read are
//! answered all the time.

use rusqlite::Connection;

use hotrow_testkit::harness::{Answer, Config, Database, SOON, Server, await_some, await_until};

use hotrow_testkit::postgres as server;

use server::{Server as Postgres, Stop};

/// Creates a database that can be locked against readers (not in WAL mode).
fn database() -> Database {
    let database = Database::with_products(20);
    database.execute("PRAGMA journal_mode = DELETE");
    database
}

/// Locks the database: reads time out until the lock is released.
#[track_caller]
fn lock(database: &Database) -> Connection {
    let locker = database.another();
    locker.execute_batch("BEGIN EXCLUSIVE").expect("the lock");
    locker
}

fn config(database: &Database) -> Config {
    Config::new(database.path())
        .collection("products")
        .set("source.watch", "\"none\"")
        // The lock stops the feed too; a long bound keeps hits valid.
        .set("cache.max_staleness", "\"1h\"")
        .set("source.read_timeout", "\"1s\"")
        .set("cache.error_ttl", "\"0s\"")
        .set("limits.breaker.failures", "3")
        .set("limits.breaker.probes", "2")
        .set("limits.breaker.open_for", "\"5s\"")
        .set("limits.breaker.open_for_max", "\"5s\"")
}

#[track_caller]
fn assert_circuit_open(answer: &Answer) {
    let (title, detail) = answer.problem(503);
    assert!(title == "Not available" && detail.contains("failed too often"), "{detail}");
    let retry_after: u32 =
        answer.header("retry-after").and_then(|s| s.parse().ok()).expect("Retry-After");
    assert!((1..=30).contains(&retry_after), "{retry_after}");
}

fn lines(server: &Server, text: &str) -> usize {
    server.log().lines().filter(|line| line.contains(text)).count()
}

fn readyz(server: &Server) -> (u16, String) {
    let answer = server.admin_client().get("/readyz");
    (answer.status, answer.json()["breaker"].as_str().expect("a state").to_owned())
}

fn entered(server: &Server, state: &str) -> f64 {
    server.metrics().sum("hotrow_breaker_transitions_total", &[("state", state)])
}

#[test]
fn it_opens_answers_hits_probes_and_closes_with_one_line_each() {
    let database = database();
    let server = Server::start(&config(&database));
    let mut client = server.client();
    assert_eq!(client.get("/products/1").status, 200);
    let locker = lock(&database);
    for id in 2..5 {
        client.get(&format!("/products/{id}")).problem(504);
    }
    // Open: no query reaches the database, and hits are answered.
    let queries = server.queries();
    for id in 2..12 {
        assert_circuit_open(&client.get(&format!("/products/{id}")));
    }
    assert_circuit_open(&client.get("/products?ids=1,13,14"));
    assert_eq!(client.get("/products/1").cache(), "hit");
    assert_eq!(client.get("/products?ids=1").cache(), "hit");
    assert_eq!(server.queries(), queries);
    assert_eq!(readyz(&server), (503, "open".to_owned()));
    assert_eq!(server.admin_client().get("/healthz").status, 200);
    let metrics = server.metrics();
    assert_eq!(metrics.sum("hotrow_breaker_state", &[("state", "open")]), 1.0);
    assert_eq!(metrics.sum("hotrow_breaker_state", &[]), 1.0, "one state at a time");
    assert_eq!(metrics.sum("hotrow_breaker_refused_keys_total", &[]), 12.0);
    assert_eq!(server.status()["overload"]["breaker"], "open");
    // The first probe fails. Nothing reads but the probe of the service itself, and a database that
    // accepts connections and answers no read never counts as ready.
    await_until("a probe to fail", SOON, || {
        let (status, state) = readyz(&server);
        assert_eq!(status, 503, "{state}");
        entered(&server, "open") >= 2.0
    });
    assert_eq!(client.get("/products/1").cache(), "hit");
    // The next ones succeed, again without a request.
    drop(locker);
    await_until("readiness", SOON, || readyz(&server).0 == 200);
    assert_eq!(readyz(&server), (200, "closed".to_owned()));
    assert_eq!(client.get("/products/2").status, 200);
    let states = ["open", "half_open", "closed"].map(|state| entered(&server, state));
    assert!(states[0] >= 2.0 && states[1] == states[0] && states[2] == 1.0, "{states:?}");
    let messages = ["circuit breaker open", "circuit breaker half open", "circuit breaker closed"];
    await_until("a line for each", SOON, || {
        messages.map(|text| lines(&server, text) as f64) == states
    });
}

#[test]
fn probes_are_requests_while_there_are_any() {
    let database = database();
    // Long enough open for the state to be observed, then half open for half a second.
    let server = Server::start(&config(&database).set("limits.breaker.failures", "1"));
    let mut client = server.client();
    let locker = lock(&database);
    client.get("/products/2").problem(504);
    drop(locker);
    // Requests arrive all the time: the first two that are let through close it.
    await_until("it to close", SOON, || {
        client.get("/products/2");
        client.get_with("/products?ids=3,4,5", &[]);
        entered(&server, "closed") == 1.0
    });
    assert_eq!(readyz(&server), (200, "closed".to_owned()));
}

#[test]
fn a_request_that_waits_for_a_query_when_it_opens_is_answered() {
    let database = database();
    let config = config(&database)
        .set("limits.breaker.failures", "1")
        .set("source.reads_in_flight", "1")
        // Long enough for another request to queue behind it.
        .set("source.read_timeout", "\"2s\"");
    let server = Server::start(&config);
    let mut reading = server.client();
    let mut waiting = server.client();
    let locker = lock(&database);
    let queued = || server.metrics().sum("hotrow_waiting_keys", &[]);
    // Timing decides whether the second is queued before the first fails, so repeat until it was.
    let answer = await_some("one to wait while the other fails", SOON, || {
        await_until("the breaker to let reads through", SOON, || readyz(&server).1 != "open");
        reading.send("GET /products/1 HTTP/1.1\r\nHost: h\r\n\r\n");
        await_until("the read to start", SOON, || {
            server.metrics().sum("hotrow_queries_in_flight", &[]) == 1.0
        });
        waiting.send("GET /products/2 HTTP/1.1\r\nHost: h\r\n\r\n");
        let was_queued = queued() == 1.0;
        // 503: the service's own probe came first, and failed.
        let was_read = reading.answer().status == 504;
        let answer = waiting.answer();
        (was_queued && was_read).then_some(answer)
    });
    assert_circuit_open(&answer);
    assert_eq!(queued(), 0.0);
    drop(locker);
    await_until("reads again", SOON, || waiting.get("/products/2").status == 200);
}

#[test]
fn a_stale_entry_replaces_a_failed_read_and_one_that_is_not_attempted() {
    let database = database();
    let config =
        config(&database).set("cache.ttl", "\"100ms\"").set("cache.stale_if_error", "\"1h\"");
    let server = Server::start(&config);
    let mut client = server.client();
    assert_eq!(client.get("/products/1").status, 200);
    let _locker = lock(&database);
    for id in 2..5 {
        client.get(&format!("/products/{id}")).problem(504);
    }
    await_until("the entry to expire", SOON, || client.get("/products/1").cache() == "stale");
    assert_eq!(client.get("/products?ids=1").cache(), "stale");
    assert_circuit_open(&client.get("/products/2"));
    assert_circuit_open(&client.get("/products?ids=1,2"));
    assert_eq!(readyz(&server).1, "open", "still open");
}

#[test]
fn an_unreadable_row_or_table_is_no_failure_of_the_database() {
    let database = database();
    database.execute("CREATE TABLE gone(id INTEGER PRIMARY KEY); INSERT INTO gone VALUES (1)");
    let config = config(&database).collection("gone");
    let server = Server::start(&config);
    let mut client = server.client();
    assert_eq!(client.get("/gone/1").status, 200);
    database.execute("DROP TABLE gone");
    await_until("the missing table to be noticed", SOON, || client.get("/gone/1").status == 503);
    for id in 1..20 {
        let (_, detail) = client.get(&format!("/gone/{id}")).problem(503);
        assert!(detail.contains("this collection cannot be read"), "{detail}");
    }
    assert_eq!(readyz(&server).1, "closed");
    assert_eq!(client.get("/products/1").status, 200);
}

#[test]
fn without_a_breaker_every_read_is_tried() {
    let database = database();
    let server = Server::start(&config(&database).set("limits.breaker.enabled", "false"));
    let mut client = server.client();
    let locker = lock(&database);
    for id in 1..6 {
        client.get(&format!("/products/{id}")).problem(504);
    }
    drop(locker);
    await_until("reads again", SOON, || client.get("/products/1").status == 200);
    assert_eq!(readyz(&server), (200, "closed".to_owned()));
}

/// Uses a PostgreSQL server that is stopped (reads time out), then killed (reads fail at once).
#[test]
fn a_stopped_or_dead_server_gets_no_queries_until_it_is_back() {
    let mut postgres = Postgres::start(&[]);
    postgres.batch(
        "CREATE TABLE products(id integer PRIMARY KEY, price integer NOT NULL);
         -- More than are read in all the time that the waits below allow.
         INSERT INTO products SELECT n, 100 * n FROM generate_series(1, 400000) n",
    );
    let config = Config::over(&postgres.url())
        .collection("products")
        .set("source.read_timeout", "\"1s\"")
        .set("cache.when_stale", "\"stale\"")
        .set("admin.ready_when", "\"fresh\"")
        .set("limits.breaker.failures", "3")
        .set("limits.breaker.open_for", "\"500ms\"")
        .set("limits.breaker.open_for_max", "\"500ms\"");
    let server = Server::start(&config);
    let mut client = server.client();
    assert_eq!(client.get("/products/1").status, 200);
    let mut next = 1;
    let mut cold = |client: &mut hotrow_testkit::harness::Client| {
        next += 1;
        client.get(&format!("/products/{next}"))
    };
    for (round, what) in ["is stopped", "is dead"].into_iter().enumerate() {
        // A stop that takes long is a loss of the feed's position: entries are read again after it.
        await_until("the record in memory", SOON, || client.get("/products/1").cache() == "hit");
        match round {
            0 => postgres.pause(),
            _ => postgres.stop(Stop::Immediate),
        }
        let closed = entered(&server, "closed");
        let refused = await_some("it to open", SOON, || {
            let answer = cold(&mut client);
            assert!(answer.status == 503 || answer.status == 504, "{what}: {answer:?}");
            answer.text().contains("failed too often").then_some(answer)
        });
        assert_circuit_open(&refused);
        let held = client.get("/products/1");
        assert!(held.status == 200 && ["hit", "stale"].contains(&held.cache()), "{what}: {held:?}");
        // Because of the breaker, or, while it is half open, of the feed, which is late by then.
        await_until("not ready", SOON, || readyz(&server).0 == 503);
        match round {
            0 => postgres.resume(),
            _ => postgres.restart(),
        }
        await_until("reads to work again", SOON, || cold(&mut client).status == 200);
        await_until("the breaker to close", SOON, || {
            cold(&mut client);
            entered(&server, "closed") > closed
        });
        server.await_ready();
    }
    for (state, text) in
        [("open", "breaker open"), ("half_open", "breaker half open"), ("closed", "breaker closed")]
    {
        await_until(&format!("a line for each {text}"), SOON, || {
            lines(&server, text) as f64 == entered(&server, state)
        });
    }
}

/// A balancer sends no request to an instance that is not ready.
#[test]
fn it_is_ready_again_without_a_request() {
    let mut postgres = Postgres::start(&[]);
    postgres.batch(
        "CREATE TABLE products(id integer PRIMARY KEY);
         INSERT INTO products SELECT generate_series(1, 10000)",
    );
    let config = Config::over(&postgres.url())
        .collection("products")
        .set("limits.breaker.failures", "1")
        .set("limits.breaker.open_for", "\"500ms\"")
        .set("limits.breaker.open_for_max", "\"500ms\"");
    let server = Server::start(&config);
    let mut client = server.client();
    assert_eq!(client.get("/products/1").status, 200);
    postgres.stop(Stop::Immediate);
    let mut id = 1;
    let source = || server.admin_client().get("/readyz").json()["source"].to_string();
    await_until("a failed attempt to connect", SOON, || {
        id += 1;
        client.get(&format!("/products/{id}")).status == 503
            && entered(&server, "open") > 0.0
            && source() == "\"unreachable\""
    });
    postgres.restart();
    await_until("readiness", SOON, || readyz(&server).0 == 200);
    assert_eq!(readyz(&server).1, "closed", "reads work, by probes of its own");
    assert_eq!(source(), "\"reachable\"");
    await_until("reads", SOON, || client.get("/products/2").status == 200);
}
