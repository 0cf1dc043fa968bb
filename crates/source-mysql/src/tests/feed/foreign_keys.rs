//! Changes by foreign keys, of which the log has no rows. The account has exactly the privileges of
//! docs/mysql.md, per table, and sees neither the parents nor `REFERENTIAL_CONSTRAINTS`.

use super::super::harness::refusal;
use super::*;

const USER: &str = "narrow";

/// A parent with a child and a grandchild, a parent in another database, and a table that
/// references itself.
const TABLES: &str = "
    CREATE DATABASE other;
    CREATE TABLE top (id INT PRIMARY KEY, n INT);
    CREATE TABLE mid (id INT PRIMARY KEY, p INT,
        FOREIGN KEY (p) REFERENCES top (id) ON DELETE CASCADE ON UPDATE CASCADE);
    CREATE TABLE low (id INT PRIMARY KEY, p INT,
        FOREIGN KEY (p) REFERENCES mid (id) ON DELETE SET NULL ON UPDATE CASCADE);
    CREATE TABLE other.far (id INT PRIMARY KEY);
    CREATE TABLE near (id INT PRIMARY KEY, p INT,
        FOREIGN KEY (p) REFERENCES other.far (id) ON DELETE CASCADE);
    CREATE TABLE tree (id INT PRIMARY KEY, p INT,
        FOREIGN KEY (p) REFERENCES tree (id) ON DELETE CASCADE);
    CREATE TABLE strict (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES top (id));
    CREATE TABLE free (id INT PRIMARY KEY, p INT, KEY (p));
    INSERT INTO top VALUES (1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 0);
    INSERT INTO mid SELECT id, id FROM top; INSERT INTO low SELECT id, id FROM top;
    INSERT INTO mid VALUES (30, NULL); INSERT INTO low VALUES (30, 30);
    INSERT INTO other.far VALUES (1), (2); INSERT INTO near VALUES (1, 1), (2, 2);
    INSERT INTO tree VALUES (1, NULL), (2, 1), (3, 2), (4, NULL);
    INSERT INTO free VALUES (1, 1)";

const SERVED: [&str; 6] = ["mid(id)", "low(id)", "near(id)", "tree(id)", "strict(id)", "free(id)"];

/// Starts a server with the tables. Returns it with the connection string of an account that may
/// read each served table and no other.
fn server() -> (Server, String) {
    // MySQL logs such changes unless InnoDB applies them.
    let native = [("innodb-native-foreign-keys", "ON")];
    let server = Server::start(Flavor::of_run().choose(&[], &native));
    server.batch(TABLES);
    let mut grants = format!(
        "CREATE USER {USER}@'%' IDENTIFIED BY 'pw';
         GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO {USER}@'%';"
    );
    for table in SERVED {
        let name = table.trim_end_matches("(id)");
        grants += &format!("GRANT SELECT ON {}.{name} TO {USER}@'%';", server.database());
    }
    if server.flavor() == Flavor::MySql {
        for parent in ["test.top", "other.far"] {
            grants += &format!("GRANT SELECT ON {parent} TO {USER}@'%';");
        }
    }
    server.batch(&grants);
    let url = server.url_for(USER, "pw");
    (server, url)
}

/// Starts a feed that checks the catalogue only where a change requires it.
fn feed(url: String) -> Feed {
    let mut config = config(url, &SERVED);
    config.server.schema_poll = std::time::Duration::from_secs(3600);
    let feed = Feed::launch(config, |_| {});
    feed.settle();
    feed
}

/// Returns the collections that `events` flush, in order.
fn flushed(events: &[Event]) -> Vec<&'static str> {
    let of = |event: &Event| match event {
        Event::Flush(collection, FlushCause::Bulk, Some(_)) => Some(collection.0),
        _ => None,
    };
    let mut found: Vec<u16> = events.iter().filter_map(of).collect();
    found.sort_unstable();
    found.dedup();
    found.into_iter().map(|i| SERVED[usize::from(i)].trim_end_matches("(id)")).collect()
}

#[test]
fn every_way_to_change_a_parent_flushes_what_foreign_keys_change() {
    let (server, url) = server();
    let feed = feed(url);
    let both = &["mid", "low"][..];
    let cases: &[(&str, &[&str])] = &[
        ("DELETE FROM top WHERE id = 1", both),
        ("UPDATE top SET id = 20 WHERE id = 2", both),
        ("REPLACE INTO top VALUES (3, 9)", both),
        ("INSERT INTO top VALUES (4, 9) ON DUPLICATE KEY UPDATE id = 40", both),
        ("LOCK TABLES top WRITE; DELETE FROM top WHERE id = 5; UNLOCK TABLES", both),
        ("SET @id = 40; PREPARE s FROM 'DELETE FROM top WHERE id = ?'; EXECUTE s USING @id", both),
        ("SET SESSION binlog_row_image = MINIMAL; DELETE FROM top WHERE id = 20", both),
        // Rows of the child in the same statement, beside those that the key changes.
        ("DELETE top, mid FROM top LEFT JOIN mid ON mid.id = 999 WHERE top.id = 6", both),
        // A row that no case above deletes, because a statement without a match is not logged.
        ("DELETE FROM mid WHERE id = 30", &["low"]),
        ("DELETE FROM other.far WHERE id = 1", &["near"]),
        ("DELETE FROM tree WHERE id = 1", &["tree"]),
        (
            "XA START 'x'; DELETE FROM other.far WHERE id = 2; XA END 'x'; XA PREPARE 'x'; \
             XA COMMIT 'x'",
            &["near"],
        ),
        // Statements without an effect on foreign keys.
        ("INSERT INTO top VALUES (7, 0)", &[]),
        ("INSERT INTO tree VALUES (9, NULL); UPDATE tree SET p = 4 WHERE id = 9", &[]),
        ("INSERT INTO free VALUES (9, 9); DELETE FROM free WHERE id = 9", &[]),
    ];
    for (sql, expected) in cases {
        assert_eq!(flushed(&feed.delivered(&server, sql)), *expected, "{sql}");
    }
}

#[test]
fn a_trigger_that_writes_to_the_child_hides_no_foreign_key() {
    let (server, url) = server();
    server.batch(
        "CREATE TABLE log (x INT);
         DELIMITER //
         CREATE TRIGGER t AFTER INSERT ON log FOR EACH ROW
         BEGIN
             DELETE FROM top WHERE id = NEW.x;
             INSERT INTO mid VALUES (100 + NEW.x, 2);
             INSERT INTO free VALUES (100 + NEW.x, 0);
         END//
         DELIMITER ;
         CREATE TABLE log2 (x INT);
         CREATE TRIGGER t2 AFTER INSERT ON log2 FOR EACH ROW DELETE FROM free WHERE id = NEW.x",
    );
    let feed = feed(url);
    let events = feed.delivered(&server, "INSERT INTO log VALUES (1)");
    assert_eq!(flushed(&events), ["mid", "low"]);
    assert!(
        events.iter().any(|e| matches!(e, Event::Change(c) if c.key == feed.int(5, 101))),
        "{events:?}"
    );
    // It changed no row, and the table has no foreign keys.
    assert_eq!(feed.delivered(&server, "INSERT INTO log2 VALUES (999)"), []);
}

#[test]
fn a_foreign_key_that_is_added_while_the_feed_runs_is_seen() {
    let (server, url) = server();
    let feed = feed(url);
    let before =
        feed.delivered(&server, "INSERT INTO top VALUES (8, 0); DELETE FROM top WHERE id = 8");
    assert_eq!(flushed(&before), ["mid", "low"]);
    let events = feed.delivered(
        &server,
        "ALTER TABLE free ADD FOREIGN KEY (p) REFERENCES top (id) ON DELETE CASCADE; \
         DELETE FROM top WHERE id = 1",
    );
    let frees = events.iter().filter(|e| matches!(e, Event::Flush(c, ..) if c.0 == 5)).count();
    assert!(frees >= 2, "for the schema change and for the cascade: {events:?}");
    // Also after the catalogue check has confirmed it.
    feed.sink.wait("the catalogue check", |events| {
        events
            .iter()
            .any(|e| matches!(e, Event::Flush(c, FlushCause::Schema, None) if c.0 == 5))
            .then_some(())
    });
    server.batch("INSERT INTO free VALUES (2, 2)");
    assert!(flushed(&feed.delivered(&server, "DELETE FROM top WHERE id = 2")).contains(&"free"));
}

#[test]
fn more_privileges_while_the_feed_runs_break_nothing() {
    let (server, url) = server();
    let feed = feed(url.clone());
    // With some of these, parents' names in `REFERENTIAL_CONSTRAINTS` are NULL.
    for privilege in ["UPDATE", "INSERT", "REFERENCES", "DELETE", "ALTER", "SELECT"] {
        let from = feed.sink.len();
        server.batch(&format!("GRANT {privilege} ON {}.* TO {USER}@'%'", server.database()));
        feed.settle();
        assert_eq!(
            flushed(&feed.delivered(
                &server,
                "DELETE FROM tree WHERE id = 1; INSERT INTO tree VALUES (1, NULL)"
            )),
            ["tree"]
        );
        let lost = feed.sink.since(from).into_iter().find(|e| matches!(e, Event::Loss(..)));
        assert_eq!(lost, None, "{privilege}");
        // A start with these privileges.
        drop(Feed::launch(config(url.clone(), &SERVED), |_| {}));
    }
    let mut hidden = config(url, &SERVED);
    hidden.server.collections[0].table = "absent".into();
    assert!(refusal(hidden).contains("there is no table `absent`"));
}
