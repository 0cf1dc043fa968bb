//! Queries at the database: one read per uncached key for any number of requests, and shared
//! queries for several keys.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Barrier;

use hotrow_testkit::harness::{Answer, Client, Config, Database, Server};
#[cfg(feature = "failpoints")]
use hotrow_testkit::harness::{Gate, SOON, await_until};

/// Connects `count` clients and lets all send their requests at the same moment. Returns the
/// answers in the order of the clients.
fn all_at_once(
    server: &Server,
    count: usize,
    path: impl Fn(usize) -> String + Sync,
) -> Vec<Answer> {
    all_at_once_while(server, count, path, || {})
}

/// Does as [`all_at_once`]; runs `during` while the clients send and wait.
fn all_at_once_while(
    server: &Server,
    count: usize,
    path: impl Fn(usize) -> String + Sync,
    during: impl FnOnce(),
) -> Vec<Answer> {
    const THREADS: usize = 8;
    let barrier = Barrier::new(THREADS);
    let path = &path;
    let mut clients: Vec<(usize, Client)> = (0..count).map(|i| (i, server.client())).collect();
    let share = count.div_ceil(THREADS);
    let mut answers: Vec<(usize, Answer)> = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for _ in 0..THREADS {
            let mut mine: Vec<(usize, Client)> =
                clients.split_off(clients.len().saturating_sub(share));
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
        during();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    answers.sort_by_key(|(i, _)| *i);
    assert_eq!(answers.len(), count);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// Returns the number of requests that wait for the database.
#[cfg(feature = "failpoints")]
fn waiting(server: &Server) -> f64 {
    server.metrics().sum("hotrow_requests_waiting", &[])
}

/// Raises the limit on open files for a thousand sockets of this process; the server raises its
/// own.
#[cfg(feature = "failpoints")]
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum })
        .expect("raise the limit");
}

#[cfg(feature = "failpoints")]
#[test]
fn a_thousand_requests_for_one_uncached_key_are_one_query() {
    raise_open_files();
    let database = Database::new();
    let gate = Gate::new("slow/1");
    database.add_table("slow", 1);
    let config = Config::new(database.path()).set("listen.workers", "2").collection("slow");
    let server = Server::start(&config.gate(&gate));
    let answers = all_at_once_while(
        &server,
        1000,
        |_| "/slow/1".to_owned(),
        || {
            await_until("all requests to wait", SOON, || waiting(&server) == 1000.0);
            gate.open();
        },
    );
    assert!(answers.iter().all(|answer| answer.status == 200 && answer.body == answers[0].body));
    let count = |cache: &str| answers.iter().filter(|answer| answer.cache() == cache).count();
    assert_eq!((count("miss"), count("coalesced")), (1, 999));
    assert_eq!(server.queries(), 1);
    let status = &server.status()["collections"]["slow"];
    assert_eq!(
        (&status["misses"], &status["coalesced"]),
        (&serde_json::json!(1), &serde_json::json!(999))
    );
}

#[test]
fn a_missing_record_is_one_query_too() {
    let database = Database::with_products(3);
    let server = Server::start(&Config::new(database.path()).collection("products"));
    let answers = all_at_once(&server, 200, |_| "/products/77".to_owned());
    assert!(answers.iter().all(|answer| answer.status == 404));
    assert_eq!(server.queries(), 1);
}

/// Blocks the only query in flight until 500 requests for other uncached ids wait behind it.
#[cfg(feature = "failpoints")]
fn gather(server: &Server, gate: &Gate) -> Vec<Answer> {
    const COLD: usize = 500;
    let mut holding = server.client();
    holding.send("GET /slow/1 HTTP/1.1\r\nHost: h\r\n\r\n");
    await_until("the read to start", SOON, || {
        server.metrics().sum("hotrow_queries_in_flight", &[]) > 0.0
    });
    let path = |i: usize| format!("/slow/{}", i + 2);
    let answers = all_at_once_while(server, COLD, path, || {
        await_until("all to wait", SOON, || waiting(server) == (COLD + 1) as f64);
        gate.open();
    });
    assert_eq!(holding.answer().status, 200);
    for (i, answer) in answers.iter().enumerate() {
        assert_eq!((answer.status, &answer.json()["id"]), (200, &serde_json::json!(i + 2)));
    }
    answers
}

/// Starts a server with `slow`, read by one query at a time in the order of requests, and a gate
/// for its row 1.
#[cfg(feature = "failpoints")]
fn one_reader(settings: &[(&str, &str)]) -> (Database, Gate, Server) {
    let database = Database::new();
    let gate = Gate::new("slow/1");
    database.add_table("slow", 2000);
    let config = Config::new(database.path())
        .set("source.reads_in_flight", "1")
        .set("limits.concurrency.queue", "\"fifo\"")
        .collection("slow")
        .with(settings);
    let server = Server::start(&config.gate(&gate));
    (database, gate, server)
}

#[cfg(feature = "failpoints")]
#[test]
fn waiting_uncached_keys_share_queries() {
    let (_database, gate, server) = one_reader(&[]);
    let _answers = gather(&server, &gate);
    let queries = server.queries();
    println!("500 uncached ids behind one slow read: {queries} queries in total");
    assert!(queries <= 10, "{queries} queries for 501 keys");
    assert_eq!(server.metrics().sum("hotrow_batch_keys_total", &[]), 501.0);
}

#[cfg(feature = "failpoints")]
#[test]
fn without_merging_each_key_is_a_query() {
    let (_database, gate, server) = one_reader(&[("source.merge", "false")]);
    let _answers = gather(&server, &gate);
    assert_eq!(server.queries(), 501);
    assert_eq!(server.get("/slow?ids=1001,1002,1003").status, 200);
    assert_eq!(server.queries(), 504);
}

#[cfg(feature = "failpoints")]
#[test]
fn the_keys_of_a_query_are_bounded() {
    let (_database, gate, server) =
        one_reader(&[("source.query_keys", "50"), ("limits.max_batch", "50")]);
    let _answers = gather(&server, &gate);
    assert!(server.queries() > 10, "{}", server.queries());
    let large =
        server.metrics().sum_or_zero("hotrow_merged_queries_total", &[("keys_up_to", "more")]);
    assert_eq!(large, 0.0);
}

#[test]
fn without_a_cache_every_request_reads() {
    let database = Database::with_products(3);
    let server = Server::start(
        &Config::new(database.path()).set("cache.enabled", "false").collection("products"),
    );
    let mut client = server.client();
    for n in 1..=10 {
        assert_eq!(client.get("/products/1").cache(), "bypass");
        assert_eq!(server.queries(), n);
    }
    database.execute("UPDATE products SET price = 3 WHERE id = 1");
    assert_eq!(client.get("/products/1").json()["price"], 3, "at once");
    assert_eq!(server.status()["cache"]["entries"], 0);
}

#[cfg(feature = "failpoints")]
#[test]
fn waiting_keys_are_bounded_and_hits_are_not_refused() {
    let (_database, gate, server) = one_reader(&[
        ("limits.waiting_keys", "20"),
        ("limits.max_batch", "20"),
        ("cache.error_ttl", "\"0s\""),
    ]);
    assert_eq!(server.get("/slow/2").status, 200);
    let mut holding = server.client();
    holding.send("GET /slow/1 HTTP/1.1\r\nHost: h\r\n\r\n");
    await_until("the read to begin", SOON, || {
        server.metrics().sum("hotrow_queries_in_flight", &[]) > 0.0
    });
    let answers = all_at_once_while(
        &server,
        100,
        |i| format!("/slow/{}", i + 3),
        || {
            let refused = || server.metrics().sum("hotrow_keys_refused_total", &[]);
            await_until("20 to wait and 80 to be refused", SOON, || {
                waiting(&server) == 21.0 && refused() == 80.0
            });
            assert_eq!(server.get("/slow/2").cache(), "hit");
            gate.open();
        },
    );
    let refused: Vec<&Answer> = answers.iter().filter(|answer| answer.status != 200).collect();
    assert_eq!(refused.len(), 80, "20 may wait");
    for answer in refused {
        assert_eq!(answer.problem(503).0, "Overloaded");
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
    assert_eq!(holding.answer().status, 200);
}

#[cfg(feature = "failpoints")]
#[test]
fn hits_do_not_wait_behind_misses() {
    let (_database, gate, server) = one_reader(&[]);
    let mut client = server.client();
    client.get("/slow/2");
    let mut holding = server.client();
    holding.send("GET /slow/1 HTTP/1.1\r\nHost: h\r\n\r\n");
    await_until("the read to begin", SOON, || {
        server.metrics().sum("hotrow_queries_in_flight", &[]) > 0.0
    });
    for _ in 0..100 {
        assert_eq!(client.get("/slow/2").cache(), "hit");
    }
    assert_eq!(server.metrics().sum("hotrow_queries_in_flight", &[]), 1.0, "the read still runs");
    gate.open();
    assert_eq!(holding.answer().status, 200);
}
