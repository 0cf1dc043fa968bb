//! What the database sees: one read per cold key however many ask, and cold keys that go together.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Barrier;
use std::time::Duration;

use crate::harness::{Answer, Client, Config, Database, SOON, Server, await_until};

/// Connects `count` clients, and lets each send its request at the same moment; the answers in their order.
fn all_at_once(server: &Server, count: usize, path: impl Fn(usize) -> String + Sync) -> Vec<Answer> {
    const THREADS: usize = 8;
    let (barrier, path) = (Barrier::new(THREADS), &path);
    let mut clients: Vec<(usize, Client)> = (0..count).map(|i| (i, server.client())).collect();
    let share = count.div_ceil(THREADS);
    let mut answers: Vec<(usize, Answer)> = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for _ in 0..THREADS {
            let mut mine: Vec<(usize, Client)> = clients.split_off(clients.len().saturating_sub(share));
            let barrier = &barrier;
            threads.push(scope.spawn(move || {
                barrier.wait();
                for (i, client) in &mut mine {
                    let request = format!("GET {} HTTP/1.1\r\nHost: h\r\n\r\n", path(*i));
                    let mut stream: &TcpStream = client.stream();
                    stream.write_all(request.as_bytes()).unwrap();
                }
                mine.iter_mut().map(|(i, client)| (*i, client.answer())).collect::<Vec<_>>()
            }));
        }
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    answers.sort_by_key(|(i, _)| *i);
    assert_eq!(answers.len(), count);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// Room for a thousand sockets on our side; the server sees to its own.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum }).expect("raise the limit");
}

#[test]
fn a_thousand_who_ask_for_one_cold_key_are_one_query() {
    raise_open_files();
    let database = Database::new();
    // Slow enough that all have asked before it is answered.
    database.add_slow_table(Duration::from_millis(1000));
    let server = Server::start(&Config::new(database.path()).set("listen.workers", "2").collection("slow"));
    let answers = all_at_once(&server, 1000, |_| "/slow/1".to_owned());
    assert!(answers.iter().all(|answer| answer.status == 200 && answer.body == answers[0].body));
    let count = |cache: &str| answers.iter().filter(|answer| answer.cache() == cache).count();
    let (misses, waits, hits) = (count("miss"), count("wait"), count("hit"));
    println!("of 1,000 concurrent requests: {misses} read, {waits} waited, {hits} came later");
    assert_eq!((misses, misses + waits + hits), (1, 1000));
    assert!(waits > 0, "they were concurrent: {waits} waited");
    assert_eq!(server.queries(), 1);
    let status = &server.status()["collections"]["slow"];
    assert_eq!((&status["misses"], &status["waits"]), (&serde_json::json!(1), &serde_json::json!(waits)));
}

#[test]
fn a_missing_record_is_one_query_too() {
    let database = Database::with_products(3);
    let server = Server::start(&Config::new(database.path()).collection("products"));
    let answers = all_at_once(&server, 200, |_| "/products/77".to_owned());
    assert!(answers.iter().all(|answer| answer.status == 404));
    assert_eq!(server.queries(), 1);
}

/// Holds the one query that may be in flight, and lets 500 different cold ids gather behind it.
fn gather(server: &Server, cold: usize) -> Vec<Answer> {
    let mut holding = server.client();
    holding.send("GET /slow/1 HTTP/1.1\r\nHost: h\r\n\r\n");
    await_until("the read to begin", SOON, || server.metrics().sum("hotrow_queries_in_flight", &[]) > 0.0);
    let answers = all_at_once(server, cold, |i| format!("/slow/{}", i + 2));
    assert_eq!(holding.answer().status, 200);
    for (i, answer) in answers.iter().enumerate() {
        assert_eq!((answer.status, &answer.json()["id"]), (200, &serde_json::json!(i + 2)));
    }
    answers
}

#[test]
fn cold_keys_that_gather_go_together() {
    let database = Database::new();
    database.add_slow_table(Duration::from_millis(500));
    let config = Config::new(database.path())
        .set("source.reads_in_flight", "1")
        .set("limits.concurrency.queue", "\"fifo\"")
        .collection("slow");
    let server = Server::start(&config);
    let _answers = gather(&server, 500);
    let queries = server.queries();
    println!("500 cold ids behind one slow read: {queries} queries in all");
    assert!(queries <= 10, "{queries} queries for 501 keys");
    assert_eq!(server.metrics().sum("hotrow_queried_keys_total", &[]), 501.0);
}

#[test]
fn without_merging_each_key_is_a_query() {
    let database = Database::new();
    database.add_slow_table(Duration::from_millis(200));
    let config = Config::new(database.path())
        .set("source.reads_in_flight", "1")
        .set("limits.concurrency.queue", "\"fifo\"")
        .set("source.merge", "false")
        .collection("slow");
    let server = Server::start(&config);
    let _answers = gather(&server, 500);
    assert_eq!(server.queries(), 501);
    assert_eq!(server.get("/slow?ids=1001,1002,1003").status, 200);
    assert_eq!(server.queries(), 504);
}

#[test]
fn a_query_is_bounded_in_keys() {
    let database = Database::new();
    database.add_slow_table(Duration::from_millis(500));
    let config = Config::new(database.path())
        .set("source.reads_in_flight", "1")
        .set("limits.concurrency.queue", "\"fifo\"")
        .set("source.query_keys", "50")
        .set("limits.max_batch", "50")
        .collection("slow");
    let server = Server::start(&config);
    let _answers = gather(&server, 500);
    assert!(server.queries() > 10, "{}", server.queries());
    let large = server.metrics().sum_or_zero("hotrow_merged_queries_total", &[("keys_up_to", "more")]);
    assert_eq!(large, 0.0);
}

#[test]
fn without_a_cache_every_request_reads() {
    let database = Database::with_products(3);
    let server = Server::start(&Config::new(database.path()).set("cache.enabled", "false").collection("products"));
    let mut client = server.client();
    for n in 1..=10 {
        assert_eq!(client.get("/products/1").cache(), "bypass");
        assert_eq!(server.queries(), n);
    }
    database.execute("UPDATE products SET price = 3 WHERE id = 1");
    assert_eq!(client.get("/products/1").json()["price"], 3, "at once");
    assert_eq!(server.status()["cache"]["entries"], 0);
}

#[test]
fn waiting_keys_are_bounded_and_hits_are_not_refused() {
    let database = Database::new();
    database.add_slow_table(Duration::from_millis(1000));
    let config = Config::new(database.path())
        .set("source.reads_in_flight", "1")
        .set("limits.concurrency.queue", "\"fifo\"")
        .set("limits.waiting_keys", "20")
        .set("limits.max_batch", "20")
        .set("cache.error_ttl", "\"0s\"")
        .collection("slow");
    let server = Server::start(&config);
    assert_eq!(server.get("/slow/2").status, 200);
    let mut holding = server.client();
    holding.send("GET /slow/1 HTTP/1.1\r\nHost: h\r\n\r\n");
    await_until("the read to begin", SOON, || server.metrics().sum("hotrow_queries_in_flight", &[]) > 0.0);
    let answers = all_at_once(&server, 100, |i| format!("/slow/{}", i + 3));
    let refused = answers.iter().filter(|answer| answer.status == 503).count();
    assert_eq!(refused, 80, "20 may wait");
    for answer in answers.iter().filter(|answer| answer.status != 200) {
        assert_eq!(answer.problem(503).0, "Overloaded");
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
    assert_eq!(server.metrics().sum("hotrow_keys_refused_total", &[]), 80.0);
    assert_eq!(holding.answer().status, 200);
}

#[test]
fn hits_do_not_wait_behind_misses() {
    let database = Database::new();
    database.add_slow_table(Duration::from_millis(1000));
    let config = Config::new(database.path())
        .set("source.reads_in_flight", "1")
        .set("limits.concurrency.queue", "\"fifo\"")
        .collection("slow");
    let server = Server::start(&config);
    let mut client = server.client();
    client.get("/slow/2");
    let mut holding = server.client();
    holding.send("GET /slow/1 HTTP/1.1\r\nHost: h\r\n\r\n");
    await_until("the read to begin", SOON, || server.metrics().sum("hotrow_queries_in_flight", &[]) > 0.0);
    for _ in 0..100 {
        assert_eq!(client.get("/slow/2").cache(), "hit");
    }
    assert_eq!(server.metrics().sum("hotrow_queries_in_flight", &[]), 1.0, "the read still runs");
    assert_eq!(holding.answer().status, 200);
}
