use super::*;

/// Waits for a flush of the collection by the schema poll, after event `from`.
fn reshaped(feed: &Feed, from: usize, collection: u16) {
    feed.sink.wait("a flush for the new shape", |events| {
        let is_it =
            |e: &Event| matches!(e, Event::Flush(c, FlushCause::Schema, None) if c.0 == collection);
        events[from..].iter().any(is_it).then_some(())
    });
}

#[test]
fn changed_columns_flush_the_collection() {
    let server = Server::any();
    server
        .batch("CREATE TABLE a (id int PRIMARY KEY, x text); CREATE TABLE b (id int PRIMARY KEY)");
    let feed = Feed::start(&server, &["a(id)", "b(id)"]);
    server.batch("INSERT INTO a VALUES (1)");
    for sql in [
        "ALTER TABLE a ADD y int DEFAULT 7",
        "ALTER TABLE a RENAME x TO z",
        "ALTER TABLE a ALTER y TYPE bigint",
        "ALTER TABLE a DROP y",
        "ALTER TABLE a REPLICA IDENTITY FULL",
    ] {
        let from = feed.sink.len();
        server.batch(sql);
        reshaped(&feed, from, 0);
        // Rows are decoded with their new description.
        let events = feed.delivered(&server, "INSERT INTO a (id) VALUES (4)");
        assert!(
            matches!(events.last(), Some(Event::Flush(_, FlushCause::Schema, Some(_)))),
            "{sql}: {events:?}"
        );
        assert_eq!(
            feed.keys(&server, "UPDATE a SET id = 5 WHERE id = 4"),
            [feed.int(0, 4), feed.int(0, 5)],
            "{sql}"
        );
        feed.delivered(&server, "DELETE FROM a");
    }
    let others = feed
        .sink
        .since(0)
        .into_iter()
        .filter(|e| matches!(e, Event::Flush(c, ..) if c.0 == 1))
        .count();
    assert_eq!(others, 0, "the other table did not change");
    let losses = feed.sink.since(0).into_iter().filter(|e| matches!(e, Event::Loss(..))).count();
    assert_eq!(losses, 0);
}

#[test]
fn a_row_of_the_new_shape_flushes_before_the_poll() {
    let server = Server::any();
    server.batch("CREATE TABLE a (id int PRIMARY KEY, x text)");
    let mut config = config(server.url(), &["a(id)"]);
    config.server.schema_poll = std::time::Duration::from_secs(3600);
    let feed = Feed::launch(config, |_| {});
    feed.settle();
    feed.delivered(&server, "INSERT INTO a VALUES (1)");
    let from = feed.sink.len();
    server.batch("ALTER TABLE a ADD y int DEFAULT 1; UPDATE a SET x = ''");
    // A flush at the first row with the row's mark; then one without a mark by the catalogue check.
    feed.sink.wait("the flush with the row", |events| {
        events[from..]
            .iter()
            .find(|e| matches!(e, Event::Flush(_, FlushCause::Schema, Some(_))))
            .map(drop)
    });
    reshaped(&feed, from, 0);
}

#[test]
fn a_recreated_table_is_followed() {
    let server = Server::any();
    server.batch("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY)");
    let feed = Feed::start(&server, &["a(id)", "b(id)"]);
    let from = feed.sink.len();
    server.batch("DROP TABLE a");
    reshaped(&feed, from, 0);
    // The other tables are delivered in between.
    assert_eq!(feed.keys(&server, "INSERT INTO b VALUES (1)"), [feed.int(1, 1)]);
    let from = feed.sink.len();
    server.batch("CREATE TABLE a (x text, id int PRIMARY KEY); INSERT INTO a VALUES ('', 2)");
    // It is added to the publication again; rows written before that are unknown.
    gap_closes(&feed, from, 0);
    assert_no_loss(&feed, from);
    feed.settle();
    assert_eq!(feed.keys(&server, "UPDATE a SET x = 'y'"), [feed.int(0, 2)]);
}

#[test]
fn in_a_publication_of_all_tables_a_recreated_table_is_followed_at_its_first_row() {
    let server = Server::any();
    server.batch("CREATE TABLE a (id int PRIMARY KEY); CREATE PUBLICATION hotrow FOR ALL TABLES");
    let mut config = config(server.url(), &["a(id)"]);
    config.server.schema_poll = std::time::Duration::from_secs(3600);
    let feed = Feed::launch(config, |_| {});
    feed.settle();
    feed.delivered(&server, "INSERT INTO a VALUES (1)");
    let from = feed.sink.len();
    server.batch("DROP TABLE a; CREATE TABLE a (id int PRIMARY KEY); INSERT INTO a VALUES (1)");
    reshaped(&feed, from, 0);
    let marked = |e: &Event| matches!(e, Event::Flush(_, FlushCause::Schema, Some(_)));
    assert!(feed.sink.since(from).iter().any(marked), "{:?}", feed.sink.since(from));
    assert_eq!(feed.keys(&server, "INSERT INTO a VALUES (2)"), [feed.int(0, 2)]);
}

#[test]
fn a_renamed_table_is_not_served_until_it_is_back() {
    let server = Server::any();
    server.batch("CREATE TABLE a (id int PRIMARY KEY)");
    let feed = Feed::start(&server, &["a(id)"]);
    let from = feed.sink.len();
    server.batch("ALTER TABLE a RENAME TO b; INSERT INTO b VALUES (1)");
    reshaped(&feed, from, 0);
    let from = feed.sink.len();
    server.batch("ALTER TABLE b RENAME TO a");
    reshaped(&feed, from, 0);
    gap_closes(&feed, from, 0);
    assert_no_loss(&feed, from);
    // The stream describes the table by its new name before the first row.
    let events = feed.delivered(&server, "INSERT INTO a VALUES (2)");
    assert!(matches!(events[..], [Event::Flush(_, FlushCause::Schema, Some(_))]), "{events:?}");
    assert_eq!(feed.keys(&server, "INSERT INTO a VALUES (3)"), [feed.int(0, 3)]);
}

#[test]
fn partitions_have_their_tables_name() {
    let server = Server::any();
    server.batch(
        "CREATE TABLE m (id int, day int, x text, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
         CREATE TABLE m1 PARTITION OF m FOR VALUES FROM (0) TO (10);
         CREATE TABLE m2 (x text, day int NOT NULL, id int NOT NULL);
         ALTER TABLE m ATTACH PARTITION m2 FOR VALUES FROM (10) TO (20)",
    );
    let feed = Feed::start(&server, &["m(id,day)"]);
    let key = |id, day| feed.key(0, &[KeyPart::Integer(id), KeyPart::Integer(day)]);
    assert_eq!(feed.keys(&server, "INSERT INTO m VALUES (1, 5), (2, 15)"), [key(1, 5), key(2, 15)]);
    assert_eq!(feed.keys(&server, "UPDATE m2 SET x = 'y'"), [key(2, 15)]);
    // Into another partition: a delete and an insert.
    assert_eq!(feed.keys(&server, "UPDATE m SET day = 6 WHERE id = 2"), [key(2, 15), key(2, 6)]);
    let from = feed.sink.len();
    let events = feed.delivered(&server, "TRUNCATE m");
    assert!(
        events.iter().any(|e| matches!(e, Event::Flush(_, FlushCause::Bulk, Some(_)))),
        "{events:?}"
    );
    // Its partitions have other files now, which the catalogue check finds a little later.
    reshaped(&feed, from, 0);
    // Changes that are in no feed are found in the catalogue.
    for sql in [
        "TRUNCATE m1",
        "ALTER TABLE m DETACH PARTITION m1",
        "ALTER TABLE m ATTACH PARTITION m1 FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE m3 PARTITION OF m DEFAULT",
        "DROP TABLE m3",
    ] {
        let from = feed.sink.len();
        server.batch(sql);
        reshaped(&feed, from, 0);
    }
    feed.settle();
    assert_eq!(feed.keys(&server, "INSERT INTO m1 VALUES (3, 3)"), [key(3, 3)]);
}

#[test]
fn a_changed_type_flushes() {
    let server = Server::any();
    server.batch(
        "CREATE TYPE mood AS ENUM ('calm'); CREATE TYPE pair AS (m mood, n int); \
         CREATE DOMAIN pairs AS pair[]; CREATE TYPE tone AS ENUM ('low'); \
         CREATE TYPE tones AS RANGE (subtype = tone, multirange_type_name = tone_sets); \
         CREATE TABLE a (id int PRIMARY KEY, p pairs, t tone_sets)",
    );
    let feed = Feed::start(&server, &["a(id)"]);
    for sql in [
        "ALTER TYPE mood ADD VALUE 'wild'",
        "ALTER TYPE mood RENAME VALUE 'calm' TO 'quiet'",
        "ALTER TYPE tone RENAME VALUE 'low' TO 'deep'",
        "ALTER TYPE pair RENAME ATTRIBUTE n TO o",
    ] {
        let from = feed.sink.len();
        server.batch(sql);
        reshaped(&feed, from, 0);
    }
}

#[test]
fn cascades_are_ordinary_changes() {
    let server = Server::any();
    server.batch(
        "CREATE TABLE p (id int PRIMARY KEY);
         CREATE TABLE c (id int PRIMARY KEY, p int REFERENCES p ON DELETE CASCADE ON \
         UPDATE CASCADE);
         CREATE TABLE n (id int PRIMARY KEY, p int REFERENCES p ON DELETE SET NULL);",
    );
    let feed = Feed::start(&server, &["p(id)", "c(id)", "n(id)"]);
    server.batch(
        "INSERT INTO p VALUES (1); INSERT INTO c VALUES (10, 1), (11, 1); \
         INSERT INTO n VALUES (20, 1)",
    );
    feed.settle();
    let mut keys = feed.keys(&server, "DELETE FROM p");
    keys.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
    assert_eq!(keys, [feed.int(0, 1), feed.int(1, 10), feed.int(1, 11), feed.int(2, 20)]);
}
