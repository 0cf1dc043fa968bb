//! Forms of changes that only MySQL has.

use super::*;

/// Settings of a session with which a transaction has another form in the log.
const SESSIONS: [&str; 5] = [
    "binlog_transaction_compression = ON",
    "gtid_next = 'AUTOMATIC:blue'",
    "binlog_row_image = MINIMAL",
    "binlog_row_image = NOBLOB",
    "foreign_key_checks = OFF",
];

#[test]
fn every_form_of_a_transaction_is_delivered_with_its_number() {
    let server = Server::start_as(Flavor::MySql, &[]);
    server.batch(
        "CREATE TABLE p (id INT PRIMARY KEY, j JSON, v VECTOR(3), n INT) \
             PARTITION BY HASH (id) PARTITIONS 3",
    );
    let feed = Feed::start(&server, &["p(id)"]);
    let vector = "STRING_TO_VECTOR('[1, 2, 3]')";
    for session in SESSIONS {
        let run = |sql: &str| {
            let events = feed.delivered(&server, &format!("SET SESSION {session}; {sql}"));
            let [Event::Change(change)] = &events[..] else { panic!("{session}: {events:?}") };
            assert_eq!(change.key, feed.int(0, 1), "{session}");
            assert!(feed.version_of_a_read(0, 1).contains(&change.mark), "{session}");
        };
        run(&format!("INSERT INTO p VALUES (1, '{{\"a\": 1}}', {vector}, 0)"));
        run("UPDATE p SET j = JSON_SET(j, '$.a', 2) WHERE id = 1");
        run("DELETE FROM p WHERE id = 1");
    }
    for ddl in [
        "ALTER TABLE p ADD x INT DEFAULT 7, ALGORITHM = INSTANT",
        "ALTER TABLE p DROP n, ALGORITHM = INSTANT",
        "ALTER TABLE p ADD PARTITION PARTITIONS 2",
    ] {
        server.batch(ddl);
        feed.settle();
        let sql = "INSERT INTO p (id) VALUES (4); DELETE FROM p WHERE id = 4";
        let events = feed.delivered(&server, sql);
        assert!(!events.is_empty(), "{ddl}");
    }
    let truncated = feed.delivered(&server, "ALTER TABLE p TRUNCATE PARTITION p1");
    assert!(truncated.iter().any(|e| matches!(e, Event::Flush(..))), "{truncated:?}");
}

/// A session may log parts of documents, although the start refuses the global setting.
#[test]
fn parts_of_documents_are_a_flush_or_a_loud_loss() {
    let server = Server::start_as(Flavor::MySql, &[]);
    server.batch(
        "CREATE TABLE p (id INT PRIMARY KEY, j JSON); \
         INSERT INTO p VALUES (1, '{\"a\": \"long enough\", \"b\": 2}')",
    );
    let feed = Feed::start(&server, &["p(id)"]);
    let from = feed.sink.len();
    server.batch(
        "SET SESSION binlog_row_value_options = PARTIAL_JSON; \
         UPDATE p SET j = JSON_SET(j, '$.a', 'short') WHERE id = 1",
    );
    feed.settle();
    let events = feed.sink.since(from);
    assert!(!events.is_empty(), "nothing is silent");
    assert_eq!(feed.keys(&server, "UPDATE p SET j = '{}'"), [feed.int(0, 1)]);
}

#[test]
fn a_group_of_one_is_followed() {
    let server = Server::start_as(Flavor::MySql, &[]);
    let port = hotrow_testkit::process::free_port(38_000);
    server.batch(&format!(
        "CREATE TABLE p (id INT PRIMARY KEY); INSTALL PLUGIN group_replication \
         SONAME 'group_replication.so'; \
         SET GLOBAL group_replication_group_name = '2c5a2ae8-1c4f-4e0f-9a69-0f2d1d8d3b6a', \
         GLOBAL group_replication_local_address = '127.0.0.1:{port}', \
         GLOBAL group_replication_bootstrap_group = ON; START GROUP_REPLICATION"
    ));
    super::super::harness::wait("the primary to accept writes", || {
        server.query("SELECT @@super_read_only") == "0"
    });
    let feed = Feed::start(&server, &["p(id)"]);
    assert_eq!(feed.keys(&server, "INSERT INTO p VALUES (1)"), [feed.int(0, 1)]);
    let events = feed.delivered(&server, "DELETE FROM p");
    let [Event::Change(change)] = &events[..] else { panic!("{events:?}") };
    assert!(feed.version_of_a_read(0, 1).contains(&change.mark));
}

/// Whichever layer executes them: the server since 9.6, or InnoDB, which logs none of the rows.
#[test]
fn cascades_reach_the_children() {
    for native in ["OFF", "ON"] {
        let server = Server::start_as(Flavor::MySql, &[("innodb-native-foreign-keys", native)]);
        server.batch(
            "CREATE TABLE p (id INT PRIMARY KEY, n INT); \
             CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id) \
             ON DELETE CASCADE ON UPDATE CASCADE); \
             INSERT INTO p VALUES (1, 0), (2, 0); INSERT INTO c VALUES (10, 1), (20, 2)",
        );
        let feed = Feed::start(&server, &["c(id)"]);
        for (sql, child) in
            [("UPDATE p SET id = 3 WHERE id = 1", 10), ("DELETE FROM p WHERE id = 2", 20)]
        {
            let events = feed.delivered(&server, sql);
            let reaches = |event: &Event| match event {
                Event::Change(change) => change.key == feed.int(0, child),
                Event::Flush(..) => true,
                _ => false,
            };
            assert!(events.iter().any(reaches), "{native} {sql}: {events:?}");
        }
    }
}

/// Keys above the collection's table that no look at the catalogue finds: it is looked at only
/// after what requires that.
#[test]
fn keys_that_exist_for_a_moment_cascade_to_the_children() {
    let server = Server::start_as(Flavor::MySql, &[("innodb-native-foreign-keys", "ON")]);
    server.batch(
        "CREATE TABLE grp (id INT PRIMARY KEY); CREATE TABLE cat (id INT PRIMARY KEY, g INT, \
         n INT, KEY (g)); CREATE TABLE sub (id INT PRIMARY KEY, c INT, n INT, \
         FOREIGN KEY (c) REFERENCES cat (id) ON DELETE CASCADE); \
         INSERT INTO grp VALUES (1), (2), (3), (4); \
         INSERT INTO cat VALUES (1, 1, 0), (2, 2, 0), (3, 3, 0), (4, 4, 0); \
         INSERT INTO sub VALUES (1, 1, 0), (2, 2, 0), (3, 3, 0), (4, 4, 0)",
    );
    let mut settings = config(server.url(), &["sub(id)"]);
    settings.server.schema_poll = std::time::Duration::from_secs(3600);
    let feed = Feed::launch(settings, |_| {});
    feed.settle();
    // An update cannot cascade by these keys.
    let updated = feed.delivered(&server, "UPDATE cat SET n = n + 1; UPDATE sub SET n = 1");
    assert!(updated.iter().all(|event| matches!(event, Event::Change(_))), "{updated:?}");
    let key = "ALTER TABLE cat ADD CONSTRAINT k FOREIGN KEY (g) REFERENCES grp (id) \
               ON DELETE CASCADE";
    for (sql, gone) in [
        (format!("{key}; DELETE FROM grp WHERE id = 1; ALTER TABLE cat DROP FOREIGN KEY k"), 1),
        (
            format!(
                "{key}; RENAME TABLE grp TO other; DELETE FROM other WHERE id = 2; \
                 RENAME TABLE other TO grp"
            ),
            2,
        ),
        ("RENAME TABLE grp TO other; DELETE FROM other WHERE id = 3".to_owned(), 3),
    ] {
        let from = feed.sink.len();
        server.batch(&sql);
        assert_eq!(server.query(&format!("SELECT COUNT(*) FROM sub WHERE id = {gone}")), "0");
        // One is not enough: that may be of the first definition alone. A flush without a mark is
        // that of the recheck, which finds the key or the table renamed.
        feed.sink.wait(&format!("flushes by {sql}"), |events| {
            let flushes = events[from..].iter().filter_map(|event| match event {
                Event::Flush(_, _, mark) => Some(mark.is_some()),
                _ => None,
            });
            let (marked, found): (Vec<bool>, Vec<bool>) = flushes.partition(|is_marked| *is_marked);
            (marked.len() >= 2 || !found.is_empty()).then_some(())
        });
    }
    // By the table's new name, which the recheck finds.
    let from = feed.sink.len();
    server.batch("DELETE FROM other WHERE id = 4");
    feed.sink.wait("a flush by the delete", |events| {
        events[from..].iter().any(|event| matches!(event, Event::Flush(..))).then_some(())
    });
}

/// Numbers recur with another meaning, also when the new log is longer than the old one before
/// anything looks at it. Nothing that was read before may be kept by them.
#[test]
fn a_log_that_is_reset_and_outgrows_the_old_one_is_a_loss() {
    let server = Server::start_as(Flavor::MySql, &[]);
    server.batch("CREATE TABLE p (id INT PRIMARY KEY, n INT); RESET MASTER");
    let feed = Feed::start(&server, &["p(id)"]);
    assert_eq!(feed.keys(&server, "INSERT INTO p VALUES (1, 0)"), [feed.int(0, 1)]);
    let from = feed.sink.len();
    let more = "UPDATE p SET n = n + 1;".repeat(50);
    server.batch(&format!("RESET MASTER; {more}"));
    feed.sink.wait("the loss and a start", |events| {
        let lost = events[from..].iter().position(|e| matches!(e, Event::Loss(..)))?;
        events[from + lost..].iter().any(|e| matches!(e, Event::Started(_))).then_some(())
    });
    feed.settle();
    let events = feed.delivered(&server, "UPDATE p SET n = 0");
    let [Event::Change(change)] = &events[..] else { panic!("{events:?}") };
    assert!(feed.version_of_a_read(0, 1).contains(&change.mark));
}
