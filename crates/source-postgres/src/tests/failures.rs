//! Slow queries, dead servers, too many reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::harness::{Reader, config, wait};
use super::server::{Server, Stop};
use crate::Hooks;
use hotrow_source::testkit::DEADLINE;
use hotrow_source::{Source as _, SourceError};

const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'x');";
const SESSIONS: &str = "SELECT count(*) FROM pg_stat_activity \
    WHERE application_name = 'hotrow' AND datname = current_database()";
const WAITING: &str = "SELECT count(*) FROM pg_stat_activity \
    WHERE application_name = 'hotrow' AND datname = current_database() \
    AND wait_event_type = 'Lock'";
const SESSION: &str = "SELECT string_agg(pid::text, ',') FROM pg_stat_activity \
    WHERE application_name = 'hotrow' AND datname = current_database() \
    AND backend_type = 'client backend'";

/// A lock on the table that blocks all reads until it is released.
struct Lock(std::process::Child);

impl Lock {
    fn take(server: &Server) -> Self {
        let sql = "BEGIN; LOCK TABLE t; SELECT pg_sleep(60);";
        let mut psql = std::process::Command::new("psql");
        let child = psql
            .args(["-X", "-q", "-d", &server.url(), "-c", sql])
            .stdout(std::process::Stdio::null());
        let lock = Self(child.stderr(std::process::Stdio::null()).spawn().expect("psql"));
        wait("the table to be locked", || {
            server.query(
                "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' \
                 AND relation = 't'::regclass",
            ) == "1"
        });
        lock
    }

    fn release(mut self, server: &Server) {
        server.batch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE query LIKE '%LOCK TABLE t; SELECT pg_sleep%' \
             AND datname = current_database() AND pid <> pg_backend_pid()",
        );
        _ = self.0.wait();
    }
}

#[test]
fn a_slow_query_is_cancelled_and_its_connection_reused() {
    let server = Server::any();
    server.batch(TABLE);
    let mut short = config(&server.url(), &["t(id)"]);
    // With one connection, the cancelled query must be over before the next read.
    (short.server.read_timeout, short.server.reads_in_flight) = (Duration::from_secs(1), 1);
    let reader = Reader::open(short);
    reader.text(0, "1");
    let pid = server.query(SESSION);
    let lock = Lock::take(&server);
    let begun = Instant::now();
    let error = reader.read(0, &["1"]).unwrap_err();
    assert!(matches!(error, SourceError::Timeout { .. }), "{error}");
    assert!(begun.elapsed() < DEADLINE / 2, "long before the lock ends");
    wait("nothing to wait at the server", || server.query(WAITING) == "0");
    lock.release(&server);
    wait("the next read", || reader.read(0, &["1"]).is_ok());
    assert_eq!(server.query(SESSION), pid);
}

#[test]
fn an_abandoned_read_is_cancelled() {
    let server = Server::any();
    server.batch(TABLE);
    let mut one = config(&server.url(), &["t(id)"]);
    (one.server.read_timeout, one.server.reads_in_flight) = (DEADLINE, 1);
    let reader = Reader::open(one);
    reader.text(0, "1");
    let lock = Lock::take(&server);
    let reading = reader.reading(0, &["1"]);
    reader.block_on(async {
        let reading = tokio::spawn(reading);
        while server.query(WAITING) == "0" {
            tokio::task::yield_now().await;
        }
        reading.abort();
        assert!(reading.await.unwrap_err().is_cancelled());
    });
    // Long before its own time-out.
    let begun = Instant::now();
    wait("the query to be cancelled", || server.query(WAITING) == "0");
    assert!(begun.elapsed() < DEADLINE / 2);
    lock.release(&server);
    reader.text(0, "1");
    assert_eq!(server.query(SESSIONS), "1", "the connection is reused");
}

#[test]
fn connections_are_bounded_and_further_reads_wait() {
    let server = Server::any();
    server.batch(TABLE);
    let mut three = config(&server.url(), &["t(id)"]);
    three.server.reads_in_flight = 3;
    let reader = Reader::open(three);
    assert_eq!(server.query(SESSIONS), "1", "opened when needed");
    let lock = Lock::take(&server);
    let results = reader.block_on(async {
        let reads: Vec<_> = (0..20).map(|_| tokio::spawn(reader.reading(0, &["1"]))).collect();
        while server.query(WAITING) != "3" {
            tokio::task::yield_now().await;
        }
        assert_eq!(server.query(SESSIONS), "3");
        lock.release(&server);
        let mut results = Vec::new();
        for read in reads {
            results.push(read.await.unwrap());
        }
        results
    });
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(server.query(SESSIONS), "3", "kept");
}

#[test]
fn a_dead_server_fails_reads_at_once_and_is_found_again() {
    let mut server = Server::start(&[]);
    server.batch(TABLE);
    let reader = Reader::on(&server, &["t(id)"]);
    reader.text(0, "1");
    server.kill9();
    let begun = Instant::now();
    for _ in 0..1000 {
        let error = reader.read(0, &["1"]).unwrap_err();
        assert!(matches!(error, SourceError::Unavailable { .. }), "{error}");
    }
    assert!(begun.elapsed() < DEADLINE / 2, "{:?}", begun.elapsed());
    assert!(reader.source.health().is_err());
    server.restart();
    wait("reads to work again", || reader.read(0, &["1"]).is_ok());
    assert!(reader.source.health().is_ok());
}

#[test]
fn a_server_that_is_back_is_found_without_a_read() {
    let mut server = Server::start(&[]);
    server.batch(TABLE);
    let reader = Reader::on(&server, &["t(id)"]);
    reader.text(0, "1");
    server.kill9();
    wait("an outage", || reader.read(0, &["1"]).is_err() && reader.source.health().is_err());
    server.restart();
    let queries = reader.source.queries_total();
    wait("health", || reader.source.health().is_ok());
    assert_eq!(reader.source.queries_total(), queries);
}

#[test]
fn a_restart_between_two_reads_is_not_noticed() {
    let mut server = Server::start(&[]);
    server.batch(TABLE);
    let reader = Reader::on(&server, &["t(id)"]);
    for _ in 0..3 {
        reader.text(0, "1");
        server.stop(Stop::Fast);
        server.restart();
    }
    server.batch(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'hotrow'",
    );
    reader.text(0, "1");
}

#[test]
fn a_stopped_server_costs_at_most_the_time_limit() {
    let server = Server::start(&[]);
    server.batch(TABLE);
    let mut short = config(&server.url(), &["t(id)"]);
    short.server.read_timeout = Duration::from_secs(2);
    let reader = Reader::open(short);
    reader.text(0, "1");
    server.pause();
    for _ in 0..2 {
        let begun = Instant::now();
        assert!(reader.read(0, &["1"]).is_err());
        assert!(begun.elapsed() < DEADLINE / 2, "{:?}", begun.elapsed());
    }
    server.resume();
    wait("reads to work again", || reader.read(0, &["1"]).is_ok());
}

#[test]
fn hooks_are_called_around_each_query() {
    let server = Server::any();
    server.batch(TABLE);
    let calls = Arc::new(AtomicU64::new(0));
    let count = |by: u64| {
        let calls = Arc::clone(&calls);
        let hook: crate::Hook = Arc::new(move |_, keys| {
            calls.fetch_add(by * keys.len() as u64, Ordering::Relaxed);
        });
        Some(hook)
    };
    let hooks = Hooks { before_read: count(1), after_read: count(100) };
    let reader = Reader::try_open(config(&server.url(), &["t(id)"]), hooks).unwrap();
    reader.read(0, &["1", "2"]).unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 202);
}

#[test]
fn an_error_of_a_row_leaves_the_connection_and_the_other_rows() {
    let server = Server::any();
    server.batch(
        "CREATE TABLE damaged (id int PRIMARY KEY, v text); \
         ALTER TABLE damaged ALTER v SET STORAGE EXTERNAL; \
         INSERT INTO damaged SELECT i, repeat(md5(i::text), 100) FROM generate_series(1, 9) i; \
         CREATE TABLE parts (id int PRIMARY KEY, n int); \
         INSERT INTO parts SELECT i, i - 1 FROM generate_series(1, 9) i; \
         CREATE VIEW shares AS SELECT id, 100 / n AS share FROM parts; \
         CREATE EXTENSION pg_surgery; \
         SELECT heap_force_kill((SELECT reltoastrelid FROM pg_class WHERE relname = 'damaged')\
           ::regclass, ARRAY['(0,1)'::tid])",
    );
    let reader = Reader::on(&server, &["damaged(id)", "shares(id)"]);
    reader.read(0, &["9"]).unwrap();
    let before = server.query(SESSION);
    // A chunk of a value that is missing (XX001), and a division by zero (22012).
    for (collection, state) in [(0, "XX001"), (1, "22012")] {
        for ids in [&["1"][..], &["1", "9"]] {
            let error = reader.read(collection, ids).unwrap_err();
            let is_of_data =
                matches!(&error, SourceError::Data { detail } if detail.contains(state));
            assert!(is_of_data, "{error}");
        }
        assert_eq!(reader.read(collection, &["9", "8"]).unwrap().rows.len(), 2);
    }
    assert_eq!(server.query(SESSION), before, "no connection was closed");
    assert_eq!(reader.source.health(), Ok(()));
}
