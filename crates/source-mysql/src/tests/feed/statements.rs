use super::*;

/// Runs `sql` and returns the flushed collections in order. Panics on any other event.
fn flushed(feed: &Feed, server: &Server, sql: &str, cause: FlushCause) -> Vec<u16> {
    let event = |event| match event {
        Event::Flush(collection, c, Some(_)) if c == cause => Some(collection.0),
        // By the catalogue check.
        Event::Flush(_, FlushCause::Schema, None) => None,
        other => panic!("{sql}: {other:?}"),
    };
    let mut flushed: Vec<u16> = feed.delivered(server, sql).into_iter().filter_map(event).collect();
    flushed.sort_unstable();
    flushed
}

#[test]
fn logged_statements_flush_the_tables_that_they_may_change() {
    let server = Server::start(&[]);
    server.batch(
        "CREATE TABLE a (id INT PRIMARY KEY); CREATE TABLE b (id INT PRIMARY KEY);
         CREATE TABLE c (id INT)",
    );
    let feed = Feed::start(&server, &["a(id)", "b(id)"]);
    assert_eq!(flushed(&feed, &server, "TRUNCATE a", FlushCause::Bulk), [0]);
    assert_eq!(flushed(&feed, &server, "TRUNCATE c", FlushCause::Bulk), [0_u16; 0]);
    assert_eq!(
        flushed(
            &feed,
            &server,
            "CREATE TABLE unconcerned (x INT); DROP TABLE unconcerned",
            FlushCause::Bulk
        ),
        [0_u16; 0]
    );
    let by_statement = "SET SESSION binlog_format = STATEMENT; INSERT INTO b VALUES (1)";
    assert_eq!(flushed(&feed, &server, by_statement, FlushCause::Bulk), [0, 1]);
    // The mark is that of the statement, which a read from now on sees.
    let events = feed.delivered(&server, "TRUNCATE b");
    let [Event::Flush(_, FlushCause::Bulk, Some(mark))] = &events[..] else { panic!("{events:?}") };
    assert!(feed.version_of_a_read(1, 1).contains(mark));
    assert_eq!(feed.keys(&server, "INSERT INTO a VALUES (1)"), [feed.int(0, 1)]);
}

#[test]
fn foreign_keys_that_change_rows_flush_their_tables() {
    let native = [("innodb-native-foreign-keys", "ON")];
    let server = Server::start(Flavor::of_run().choose(&[], &native));
    server.batch(
        "CREATE TABLE p (id INT PRIMARY KEY, x INT);
         CREATE TABLE c (id INT PRIMARY KEY, p INT,
             FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE ON UPDATE CASCADE);
         CREATE TABLE n (id INT PRIMARY KEY, c INT,
             FOREIGN KEY (c) REFERENCES c (id) ON DELETE SET NULL);
         CREATE TABLE r (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id));
         INSERT INTO p VALUES (1, 1), (2, 2), (3, 3);
         INSERT INTO c VALUES (1, 1), (2, 2), (3, 3); INSERT INTO n VALUES (1, 1)",
    );
    let feed = Feed::start(&server, &["p(id)", "c(id)", "n(id)", "r(id)"]);
    let flushed_children = |sql: &str| {
        let events = feed.delivered(&server, sql);
        let mut flushed = Vec::new();
        for event in &events {
            match event {
                Event::Flush(collection, FlushCause::Bulk, Some(_)) => flushed.push(collection.0),
                Event::Change(change) => assert_eq!(change.key.collection().0, 0, "{sql}"),
                other => panic!("{sql}: {other:?}"),
            }
        }
        flushed.sort_unstable();
        flushed
    };
    assert_eq!(flushed_children("DELETE FROM p WHERE id = 1"), [1, 2]);
    // No key of `n` has an action on updates.
    assert_eq!(flushed_children("UPDATE p SET id = 20 WHERE id = 2"), [1]);
    assert_eq!(flushed_children("INSERT INTO p VALUES (9, 9)"), [] as [u16; 0]);
    // Rows of the child itself are delivered as keys. Rows that depend on them are not.
    let events = feed.delivered(&server, "DELETE FROM c WHERE id = 3");
    let is_change = |e: &Event| matches!(e, Event::Change(change) if change.key == feed.int(1, 3));
    let is_flush = |e: &Event| matches!(e, Event::Flush(c, FlushCause::Bulk, Some(_)) if c.0 == 2);
    assert!(
        events.len() == 2 && events.iter().any(is_change) && events.iter().any(is_flush),
        "{events:?}"
    );
}

#[test]
fn rows_written_by_triggers_are_delivered() {
    let server = Server::any();
    server.batch(
        "CREATE TABLE a (id INT PRIMARY KEY); CREATE TABLE b (id INT PRIMARY KEY);
         CREATE TRIGGER t AFTER INSERT ON a FOR EACH ROW INSERT INTO b VALUES (NEW.id + 100)",
    );
    let feed = Feed::start(&server, &["a(id)", "b(id)"]);
    assert_eq!(feed.keys(&server, "INSERT INTO a VALUES (1)"), [feed.int(0, 1), feed.int(1, 101)]);
}
