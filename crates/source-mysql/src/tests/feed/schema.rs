use std::time::{Duration, Instant};

use super::super::recorder::DEADLINE;
use super::*;

/// Waits for a flush of the collection by a catalogue check, after event `from`.
fn wait_for_schema_flush(feed: &Feed, from: usize, collection: u16) {
    feed.sink.wait("a flush for the schema change", |events| {
        let is_match =
            |e: &Event| matches!(e, Event::Flush(c, FlushCause::Schema, None) if c.0 == collection);
        events[from..].iter().any(is_match).then_some(())
    });
}

/// Runs `sql`, which changes two rows, until both arrive as keys.
fn wait_for_keys(feed: &Feed, server: &Server, sql: &str) {
    let end = Instant::now() + DEADLINE;
    loop {
        let events = feed.delivered(server, sql);
        if events.len() == 2 && events.iter().all(|e| matches!(e, Event::Change(_))) {
            return;
        }
        assert!(Instant::now() < end, "{sql}: {events:?}");
    }
}

/// Starts a feed that checks the catalogue only where a change requires it.
fn without_poll(server: &Server, collections: &[&str]) -> Feed {
    let mut config = config(server.url(), collections);
    config.server.schema_poll = Duration::from_secs(3600);
    let feed = Feed::launch(config, |_| {});
    feed.settle();
    feed
}

#[test]
fn logged_schema_changes_are_seen_before_the_poll() {
    let server = Server::any();
    server.batch(
        "CREATE TABLE a (id INT, x VARCHAR(9), PRIMARY KEY (id));
         CREATE TABLE b (id INT PRIMARY KEY)",
    );
    let feed = without_poll(&server, &["a(id)", "b(id)"]);
    feed.delivered(&server, "INSERT INTO a VALUES (1, 'a')");
    for sql in [
        "ALTER TABLE a ADD y INT DEFAULT 7 FIRST",
        "ALTER TABLE a CHANGE x z VARCHAR(20)",
        "ALTER TABLE a MODIFY id INT AFTER z",
        "ALTER TABLE a DROP y",
        "ALTER TABLE a MODIFY z VARCHAR(20) CHARACTER SET latin1",
    ] {
        let from = feed.sink.len();
        server.batch(sql);
        wait_for_schema_flush(&feed, from, 0);
        let is_marked =
            |e: &Event| matches!(e, Event::Flush(c, FlushCause::Schema, Some(_)) if c.0 == 0);
        assert!(feed.sink.since(from).iter().any(is_marked), "{sql}");
        // Rows are decoded by the new definition after the check.
        wait_for_keys(&feed, &server, "INSERT INTO a (id) VALUES (4); DELETE FROM a WHERE id = 4");
    }
    let others = feed
        .sink
        .since(0)
        .into_iter()
        .filter(|e| matches!(e, Event::Flush(c, ..) if c.0 == 1))
        .count();
    assert_eq!(others, 0, "the other table did not change");
    assert!(feed.sink.since(0).iter().all(|e| !matches!(e, Event::Loss(..))));
}

#[test]
fn rows_right_after_a_schema_change_flush() {
    let server = Server::start(&[]);
    server.batch("CREATE TABLE a (id INT PRIMARY KEY, x INT); INSERT INTO a VALUES (1, 2)");
    let feed = without_poll(&server, &["a(id)"]);
    let from = feed.sink.len();
    // Without names in the log, the two columns would be confused.
    server.batch(
        "SET GLOBAL binlog_row_metadata = MINIMAL; ALTER TABLE a MODIFY id INT AFTER x;
         UPDATE a SET x = 5;
         SET GLOBAL binlog_row_metadata = FULL",
    );
    wait_for_schema_flush(&feed, from, 0);
    feed.settle();
    for event in feed.sink.since(from) {
        match event {
            Event::Flush(..) => {}
            Event::Change(change) => assert_eq!(change.key, feed.int(0, 1)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_table_is_gone_until_it_is_back() {
    let server = Server::any();
    server.batch("CREATE TABLE a (id INT PRIMARY KEY); CREATE TABLE b (id INT PRIMARY KEY)");
    let feed = without_poll(&server, &["a(id)", "b(id)"]);
    for (remove, restore) in [
        ("DROP TABLE a", "CREATE TABLE a (x INT, id INT PRIMARY KEY)"),
        ("RENAME TABLE a TO c", "RENAME TABLE c TO a"),
    ] {
        let from = feed.sink.len();
        server.batch(remove);
        wait_for_schema_flush(&feed, from, 0);
        // Other tables are still delivered.
        wait_for_keys(&feed, &server, "INSERT INTO b VALUES (1); DELETE FROM b");
        let from = feed.sink.len();
        server.batch(restore);
        wait_for_schema_flush(&feed, from, 0);
        wait_for_keys(&feed, &server, "INSERT INTO a (id) VALUES (2); DELETE FROM a");
    }
}

#[test]
fn the_poll_detects_changes_that_are_not_logged() {
    let server = Server::any();
    server.batch("CREATE TABLE a (id INT PRIMARY KEY, x INT)");
    let feed = Feed::start(&server, &["a(id)"]);
    let from = feed.sink.len();
    server.batch("SET SESSION sql_log_bin = 0; ALTER TABLE a ADD y INT");
    wait_for_schema_flush(&feed, from, 0);
}

#[test]
fn names_of_columns_are_not_needed_in_the_log() {
    let server = Server::start(&[("binlog-row-metadata", "NO_LOG")]);
    server.batch("CREATE TABLE a (x INT UNSIGNED, id INT UNSIGNED, PRIMARY KEY (id))");
    let feed = Feed::start(&server, &["a(id)"]);
    assert_eq!(
        feed.keys(&server, "INSERT INTO a VALUES (1, 4294967295)"),
        [feed.int(0, 4_294_967_295)]
    );
}
