use std::time::{Duration, Instant};

use hotrow_measure::clock::Nanos;

use super::*;

/// Samples the staleness every few milliseconds; returns the sorted values.
fn watch(feed: &Feed, time: Duration) -> Vec<Duration> {
    let until = Instant::now() + time;
    let mut all = Vec::new();
    let mut newest = Nanos::ZERO;
    while Instant::now() < until {
        if let Some(sent_at) = feed.sink.newest_advance() {
            newest = sent_at;
        }
        all.push(Nanos::now().since(newest));
        std::thread::sleep(Duration::from_millis(2));
    }
    all.sort_unstable();
    all
}

/// Asserts that the feed is fresher than the bound for nearly all of the time. One in several
/// attempts must succeed, because the machine may stall.
fn is_fresh(what: &str, feed: &Feed, time: Duration, bound: Duration) {
    let p99 = || {
        let all = watch(feed, time);
        let at = |share: f64| all[((all.len() - 1) as f64 * share) as usize];
        println!(
            "{what}: p50 {:?}, p99 {:?}, max {:?} of {} samples",
            at(0.5),
            at(0.99),
            at(1.0),
            all.len()
        );
        at(0.99)
    };
    assert!((0..5).any(|_| p99() < bound), "{what}: it is never fresher than {bound:?}");
}

/// The default bound of one second.
fn fresh_feed(server: &Server) -> Feed {
    let mut config = config(server.url(), &["p(id)"]);
    config.server.max_staleness = Duration::from_secs(1);
    config.server.schema_poll = Duration::from_secs(1);
    let feed = Feed::launch(config, |_| {});
    feed.settle();
    feed
}

#[test]
fn an_idle_database_stays_fresh() {
    let server = Server::start(&[]);
    server.batch("CREATE TABLE p (id int PRIMARY KEY); CREATE TABLE u (id int)");
    let feed = fresh_feed(&server);
    is_fresh("idle", &feed, Duration::from_secs(3), Duration::from_millis(600));
}

#[test]
fn an_open_transaction_on_an_idle_database_does_not_hide_what_is_committed() {
    let server = Server::start(&[]);
    server.batch("CREATE TABLE p (id int PRIMARY KEY); CREATE TABLE u (id int)");
    let feed = fresh_feed(&server);
    std::thread::scope(|scope| {
        // It leaves a record in the log that nothing flushes to disk.
        scope.spawn(|| {
            _ = server.try_query("BEGIN; INSERT INTO u VALUES (1); SELECT pg_sleep(60); ROLLBACK")
        });
        feed.sink.wait("its start", |_| {
            (server.query("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'")
                == "1")
                .then_some(())
        });
        is_fresh(
            "idle with an open transaction",
            &feed,
            Duration::from_secs(2),
            Duration::from_secs(1),
        );
        server.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'",
        );
        server.batch(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'",
        );
    });
}

#[test]
fn asynchronous_commits_are_delivered() {
    let server = Server::start(&[("synchronous_commit", "off"), ("wal_writer_delay", "200ms")]);
    server.batch("CREATE TABLE p (id int PRIMARY KEY)");
    let feed = fresh_feed(&server);
    server.batch("INSERT INTO p VALUES (1)");
    feed.sink.wait("the change", |events| {
        events.iter().any(|e| matches!(e, Event::Change(_))).then_some(())
    });
    feed.settle();
    is_fresh("asynchronous commits", &feed, Duration::from_secs(2), Duration::from_secs(1));
}

#[test]
fn a_busy_database_stays_fresh() {
    let server = Server::start(&[]);
    server.batch(
        "CREATE TABLE p (id int PRIMARY KEY, n int); \
         INSERT INTO p SELECT i, 0 FROM generate_series(1, 1000) i",
    );
    let feed = fresh_feed(&server);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            server.batch(
                "CREATE PROCEDURE busy() LANGUAGE plpgsql AS $$ DECLARE i int;
                 BEGIN FOR n IN 1..2000 LOOP i := 1 + random() * 998; \
                 UPDATE p SET n = p.n + 1 WHERE id = i; COMMIT;
                 PERFORM pg_sleep(0.001);
                 END LOOP; END $$; CALL busy()",
            );
        });
        is_fresh("busy", &feed, Duration::from_secs(2), Duration::from_secs(1));
    });
    feed.settle();
    let changes = feed.sink.since(0).iter().filter(|e| matches!(e, Event::Change(_))).count();
    assert_eq!(changes, 2000);
}

#[test]
fn a_huge_transaction_becomes_a_flush() {
    let server = Server::start(&[]);
    server
        .batch("CREATE TABLE p (id int PRIMARY KEY, n text); CREATE TABLE q (id int PRIMARY KEY)");
    let feed = Feed::launch(config(server.url(), &["p(id)", "q(id)"]), |_| {});
    feed.settle();
    let before_bytes = resident_bytes();
    let events = feed.delivered(
        &server,
        "BEGIN; INSERT INTO p SELECT i, repeat('x', 500) FROM generate_series(1, 100000) i; \
         INSERT INTO q VALUES (1); COMMIT",
    );
    let grown_bytes = resident_bytes().saturating_sub(before_bytes);
    let changes = events.iter().filter(|e| matches!(e, Event::Change(_))).count();
    let flushes: Vec<&Event> = events.iter().filter(|e| matches!(e, Event::Flush(..))).collect();
    assert!(
        matches!(flushes[..], [Event::Flush(c, FlushCause::Bulk, Some(_))] if c.0 == 0),
        "{flushes:?}"
    );
    assert_eq!(changes, crate::delivery::KEYS_PER_TRANSACTION_MAX + 1);
    assert!(feed.sink.longest_portion() <= 1000);
    println!("100,000 rows (50 MB): resident memory grew by {} KiB", grown_bytes >> 10);
    // The test's sink stores 10,000 changes; the rows themselves have 50 MB.
    assert!(grown_bytes < 24 << 20, "{grown_bytes}");
}

fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}
