//! Recovery of every background thread from a panic: a table of threads. Only in builds with the
//! feature `failpoints`.

use crate::collector::traceparent;
use hotrow_testkit::harness::panics::Panicking;
use hotrow_testkit::harness::{Client, Config, Database, Ended, SOON, Server, await_until};

/// A thread, the settings under which it exists, an action that makes its loop iterate, and a check
/// that it works.
struct Case {
    thread: &'static str,
    settings: &'static [(&'static str, &'static str)],
    turn: fn(&Server),
    works: fn(&Database, &Server),
}

/// Does nothing, because the loop iterates by itself.
fn by_itself(_: &Server) {}

/// Reads an uncached key. The panicking thread may be the one that would answer.
fn read_uncached_key(server: &Server) {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);
    let id = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let answer = server.get(&format!("/products/{}", 1_000 + id));
    assert!([404, 503].contains(&answer.status), "{answer:?}");
}

fn purge(server: &Server) {
    assert_eq!(server.admin_client().change("/purge/products", "").status, 200);
}

/// Checks that reads are answered from the database and then from the cache.
fn reads(_: &Database, server: &Server) {
    let mut client = server.client();
    await_until("a read", SOON, || client.get("/products/7").status == 200);
    await_until("a hit", SOON, || client.get("/products/7").cache() == "hit");
}

fn assert_changes_visible(database: &Database, server: &Server) {
    reads(database, server);
    let mut client = server.client();
    for price in 1..4 {
        database.execute(&format!("UPDATE products SET price = {price} WHERE id = 7"));
        await_until("the change", SOON, || client.get("/products/7").json()["price"] == price);
    }
}

fn assert_hot_records_prefetched(database: &Database, server: &Server) {
    let mut client = server.client();
    let refreshed = || server.metrics().sum("hotrow_hot_refreshes_total", &[]);
    let before = refreshed();
    await_until("a record to be hot and read again", SOON, || {
        (0..20).for_each(|_| _ = client.get("/products/3"));
        database.execute("UPDATE products SET price = price + 1 WHERE id = 3");
        refreshed() > before
    });
    // No request for it arrives, and it is cached again.
    let entries = || server.metrics().sum("hotrow_cache_entries", &[]);
    await_until("the record to be there again", SOON, || entries() > 0.0);
}

fn assert_answers_checked(_: &Database, server: &Server) {
    let mut client = server.client();
    let checked = || server.metrics().sum("hotrow_checked_answers_total", &[]);
    let before = checked();
    await_until("a check", SOON, || {
        client.get("/products/5");
        checked() > before
    });
}

fn get_gzip(client: &mut Client, path: &str) -> hotrow_testkit::harness::Answer {
    client.get_with(path, &[("Accept-Encoding", "gzip")])
}

fn assert_compresses(database: &Database, server: &Server) {
    database
        .execute("UPDATE products SET name = replace(hex(zeroblob(500)), '0', 'a') WHERE id = 2");
    let mut client = server.client();
    await_until("a compressed answer", SOON, || {
        get_gzip(&mut client, "/products/2").header("content-encoding") == Some("gzip")
    });
}

fn assert_lines_written(_: &Database, server: &Server) {
    let before = server.log().matches("purged by request").count();
    await_until("a line", SOON, || {
        purge(server);
        server.log().matches("purged by request").count() > before
    });
}

fn assert_samples_taken(_: &Database, server: &Server) {
    let samples = || server.admin_client().get("/history").json()["next"].as_u64();
    let before = samples();
    await_until("another sample", SOON, || samples() > before);
}

fn assert_entries_seen(_: &Database, server: &Server) {
    (1..31).for_each(|id| _ = server.get(&format!("/products/{id}")));
    await_until("the predictor to see the entries", SOON, || {
        let status = server.status();
        let seen = format!("the cache has {} entries so far", status["cache"]["entries"]);
        let unknown = status["miss_ratio_curve"]["unknown"].as_str().unwrap_or_default();
        unknown.starts_with(&seen)
    });
}

fn assert_requests_logged(_: &Database, server: &Server) {
    let lines = || server.output().matches("\"path\":\"/products/9?logged\"").count();
    let before = lines();
    let mut client = server.client();
    await_until("a line of the access log", SOON, || {
        client.get("/products/9?logged");
        lines() > before
    });
}

/// Nothing listens on the port: each attempt fails.
fn assert_spans_sent(_: &Database, server: &Server) {
    let attempts = || server.metrics().sum("hotrow_trace_export_failures_total", &[]);
    let before = attempts();
    await_until("an attempt to send", SOON, || {
        server.client().get_with("/products/1", &[("traceparent", &traceparent(1, true))]);
        attempts() > before
    });
}

const CASES: [Case; 13] = [
    Case { thread: "feed", settings: &[], turn: by_itself, works: assert_changes_visible },
    Case {
        thread: "sqlite-read-0",
        settings: &[("source.reads_in_flight", "1")],
        turn: read_uncached_key,
        works: reads,
    },
    Case {
        thread: "refresh",
        settings: &[("cache.prefetch_on_change", "true")],
        // Its loop iterates at its start and when a hot record changes.
        turn: by_itself,
        works: assert_hot_records_prefetched,
    },
    Case {
        thread: "check",
        settings: &[("limits.checks_per_s", "100")],
        turn: |server| _ = server.get("/products/1"),
        works: assert_answers_checked,
    },
    Case {
        thread: "compress",
        settings: &[("collections.products.compression_min", "0")],
        turn: |server| {
            purge(server);
            // The second request offers the record.
            (0..2).for_each(|_| _ = get_gzip(&mut server.client(), "/products/1"));
        },
        works: assert_compresses,
    },
    Case { thread: "history", settings: &[], turn: by_itself, works: assert_samples_taken },
    Case { thread: "miss-ratio", settings: &[], turn: by_itself, works: assert_entries_seen },
    Case { thread: "pressure", settings: &[], turn: by_itself, works: reads },
    Case { thread: "hotrow-http-0", settings: &[], turn: by_itself, works: reads },
    Case { thread: "admin", settings: &[], turn: by_itself, works: reads },
    Case { thread: "log", settings: &[], turn: purge, works: assert_lines_written },
    Case {
        thread: "access-log",
        settings: &[("access_log.output", "\"stdout\""), ("access_log.sample", "1")],
        turn: |server| _ = server.get("/products/1"),
        works: assert_requests_logged,
    },
    Case {
        thread: "traces",
        settings: &[("trace.endpoint", "\"http://127.0.0.1:9/v1/traces\"")],
        turn: |server| {
            server.client().get_with("/products/1", &[("traceparent", &traceparent(1, true))]);
        },
        works: assert_spans_sent,
    },
];

#[test]
fn every_thread_recovers_from_a_panic() {
    for Case { thread, settings, turn, works } in CASES {
        println!("{thread}");
        let database = Database::with_products(100);
        let config = Config::new(database.path()).collection("products").with(settings);
        let panicking = Panicking::once(&config, thread);
        if thread == "refresh" {
            panicking.panic();
            assert_hot_records_prefetched(&database, &panicking.server);
        } else {
            panicking.panic_once(turn);
        }
        works(&database, &panicking.server);
        panicking.ends_well();
    }
}

/// The loops of these threads iterate at their start, and rarely or never after it.
#[test]
fn threads_recover_from_a_panic_at_their_start() {
    for thread in ["drain", "signals", "sqlite-prune"] {
        println!("{thread}");
        let database = Database::with_products(10);
        let config = Config::new(database.path()).collection("products");
        let failpoint = format!("panic:{thread}");
        let server = Server::start_with(&config, &[("HOTROW_FAILPOINTS", &failpoint)]);
        server.await_ready();
        // A thread that starts behind readiness has no series before.
        let labels = [("thread", thread)];
        let panics = || server.metrics().sum_or_zero("hotrow_thread_panics_total", &labels);
        await_until("the panic", SOON, || panics() == 1.0);
        server.signal(rustix::process::Signal::TERM);
        assert_eq!(server.ended(SOON).code(), 0);
    }
}

#[test]
fn the_writer_of_the_demonstration_recovers() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let panicking = Panicking::start("panic", "demo-writer", |failpoints| {
        Server::start_demo_with(folder.path(), &["--demo-writes", "50"], failpoints)
    });
    panicking.panic_once(by_itself);
    let changes = || panicking.server.metrics().sum("hotrow_feed_changes_total", &[]);
    let before = changes();
    await_until("more writes", SOON, || changes() > before + 10.0);
    panicking.ends_well();
}

#[test]
fn a_panic_of_the_feed_is_a_loss() {
    let database = Database::with_products(10);
    let config = Config::new(database.path()).collection("products");
    let panicking = Panicking::once(&config, "feed");
    reads(&database, &panicking.server);
    panicking.panic_once(by_itself);
    let server = &panicking.server;
    let of_feed = |metric: &str, labels: &[(&str, &str)]| server.metrics().sum(metric, labels);
    assert_eq!(of_feed("hotrow_feed_gaps_total", &[("cause", "feed_failed")]), 1.0);
    await_until("the feed to start again", SOON, || {
        of_feed("hotrow_feed_starts_total", &[]) == 2.0
    });
    server.await_ready();
    let answer = server.get("/products/7");
    assert_eq!(
        (answer.status, answer.cache()),
        (200, "miss"),
        "earlier cached records are not served"
    );
    panicking.ends_well();
}

#[test]
fn a_panicking_worker_loses_its_own_connections_only() {
    const CLIENTS: usize = 64;
    let database = Database::with_products(10);
    let config = Config::new(database.path()).collection("products").set("listen.workers", "2");
    let panicking = Panicking::once(&config, "hotrow-http-1");
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| panicking.server.client()).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.get("/products/1").status, 200));
    panicking.panic_once(by_itself);
    let answers = clients.iter_mut().filter_map(|client| {
        client.try_send("GET /products/1 HTTP/1.1\r\nHost: h\r\n\r\n").ok()?;
        client.try_answer("GET", SOON).ok()
    });
    let alive = answers.inspect(|answer| assert_eq!(answer.status, 200)).count();
    assert!((1..CLIENTS).contains(&alive), "{alive} of {CLIENTS} connections are left");
    // The kernel distributes new connections over both listeners again.
    for _ in 0..CLIENTS {
        assert_eq!(panicking.server.get("/products/1").status, 200);
    }
    let open = || panicking.server.metrics().sum("hotrow_http_connections", &[]);
    drop(clients);
    await_until("all connections to be closed", SOON, || open() == 0.0);
    panicking.ends_well();
}

#[test]
fn a_thread_that_keeps_panicking_makes_the_process_unhealthy() {
    for thread in ["feed", "pressure", "hotrow-http-0"] {
        println!("{thread}");
        let database = Database::with_products(10);
        let config = Config::new(database.path()).collection("products");
        let panicking = Panicking::always(&config, thread);
        panicking.panic();
        let said = panicking.await_unhealthy();
        assert!(said.contains(&format!("thread {thread} failed")), "{said}");
        panicking.server.signal(rustix::process::Signal::TERM);
        assert_eq!(panicking.server.ended(SOON).code(), 0);
    }
}

#[test]
fn without_its_main_thread_the_process_ends() {
    let database = Database::with_products(10);
    let file = database.folder().join("hotrow.toml");
    std::fs::write(&file, Config::new(database.path()).collection("products").text())
        .expect("written");
    let arguments = ["serve", "--config", file.to_str().expect("UTF-8")];
    let ended = Ended::run_with(&arguments, &[("HOTROW_FAILPOINTS", "panic:main")], SOON);
    assert_eq!(ended.code(), 1, "{ended:?}");
    assert!(ended.log.contains("the main thread panicked"), "{}", ended.log);
}
