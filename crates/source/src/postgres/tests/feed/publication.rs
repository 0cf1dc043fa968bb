use super::*;
use crate::postgres::tests::recorder::refusal;

fn lost_for(feed: &Feed, from: usize) -> String {
    feed.sink.wait("the loss", |events| {
        events[from..].iter().find_map(|e| match e {
            Event::Loss(LossCause::NotWatched, detail) => Some(detail.clone()),
            _ => None,
        })
    })
}

#[test]
fn it_is_made_and_completed() {
    let server = Server::start(&[]);
    server.batch("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE \"B \"\"x\" (id int PRIMARY KEY)");
    drop(Feed::start(&server, &["a(id)"]));
    let tables =
        "SELECT string_agg(tablename, ',' ORDER BY tablename) FROM pg_publication_tables WHERE pubname = 'hotrow'";
    assert_eq!(server.query(tables), "a");
    let feed = Feed::start(&server, &["a(id)", "B \"x(id)"]);
    assert_eq!(server.query(tables), "B \"x,a");
    assert_eq!(feed.keys(&server, "INSERT INTO \"B \"\"x\" VALUES (1)"), [feed.int(1, 1)]);
    assert_eq!(server.query("SELECT pubviaroot FROM pg_publication"), "t");
}

#[test]
fn what_is_wrong_with_it_is_told_with_the_sql() {
    let server = Server::start(&[]);
    server.batch(
        "CREATE TABLE a (id int PRIMARY KEY, n int); CREATE TABLE m (id int PRIMARY KEY) PARTITION BY HASH (id)",
    );
    let url = server.url();
    for (publication, collections, mend) in [
        (
            "FOR TABLE a WITH (publish = 'insert, update')",
            &["a(id)"][..],
            "SET (publish = 'insert, update, delete, truncate')",
        ),
        (
            "FOR TABLE a WITH (publish = 'insert, update, delete')",
            &["a(id)"],
            "SET (publish = 'insert, update, delete, truncate')",
        ),
        ("FOR TABLE a WHERE (id > 5)", &["a(id)"], "DROP TABLE \"public\".\"a\";"),
        ("FOR TABLE a (id)", &["a(id)"], "DROP TABLE \"public\".\"a\";"),
        ("FOR TABLE m", &["m(id)"], "SET (publish_via_partition_root = true)"),
    ] {
        server.batch(&format!("DROP PUBLICATION IF EXISTS hotrow; CREATE PUBLICATION hotrow {publication}"));
        let told = refusal(config(url.clone(), collections));
        assert!(told.contains(mend) && told.contains("`hotrow`"), "{publication}: {told}");
        // The SQL that is told does mend it.
        let sql: Vec<&str> = told.lines().filter_map(|line| line.trim().strip_prefix("-> ")).collect();
        server.batch(&sql.join("\n"));
        let feed = Feed::start(&server, collections);
        drop(feed);
    }
}

#[test]
fn who_may_not_make_it_gets_the_sql() {
    let server = Server::start(&[]);
    server.batch(
        "CREATE TABLE a (id int PRIMARY KEY); CREATE ROLE reader LOGIN REPLICATION; GRANT SELECT ON a TO reader;
         CREATE TABLE b (id int PRIMARY KEY); GRANT SELECT ON b TO reader",
    );
    let url = server.url_for("reader", "postgres");
    let told = refusal(config(url.clone(), &["a(id)"]));
    let sql = "CREATE PUBLICATION \"hotrow\" FOR TABLE \"public\".\"a\" WITH (publish_via_partition_root = true);";
    assert!(told.contains(sql), "{told}");
    server.batch(sql);
    let told = refusal(config(url.clone(), &["a(id)", "b(id)"]));
    let sql = "ALTER PUBLICATION \"hotrow\" ADD TABLE \"public\".\"b\";";
    assert!(told.contains(sql), "{told}");
    server.batch(sql);
    let feed = Feed::launch(config(url, &["a(id)", "b(id)"]), |_| {});
    feed.settle();
    assert_eq!(feed.keys(&server, "INSERT INTO b VALUES (1)"), [feed.int(1, 1)]);
    // Nobody was refused anything: whether it is permitted was asked before.
    assert!(!server.log().contains("permission denied"), "{}", server.log());
    // A table that is taken away cannot be given back by this user: its collection alone is gone.
    let from = feed.sink.len();
    server.batch("ALTER PUBLICATION hotrow DROP TABLE a");
    feed.sink.wait("the flush", |events| {
        events[from..].iter().any(|e| matches!(e, Event::Flush(c, FlushCause::Schema, None) if c.0 == 0)).then_some(())
    });
    assert_eq!(feed.keys(&server, "INSERT INTO b VALUES (2)"), [feed.int(1, 2)]);
    let from = feed.sink.len();
    server.batch("ALTER PUBLICATION hotrow ADD TABLE a");
    feed.recovers(from, LossCause::NotWatched);
    feed.settle();
    assert_eq!(feed.keys(&server, "INSERT INTO a VALUES (1)"), [feed.int(0, 1)]);
}

#[test]
fn damage_while_it_runs_is_a_loss() {
    let server = Server::start(&[]);
    server.batch("CREATE TABLE a (id int PRIMARY KEY, n int)");
    let feed = Feed::start(&server, &["a(id)"]);
    // Dropped: a new one is made. Emptied: it is completed. Taken out and put back: something was missed.
    for sql in [
        "DROP PUBLICATION hotrow",
        "ALTER PUBLICATION hotrow DROP TABLE a",
        "BEGIN; ALTER PUBLICATION hotrow DROP TABLE a; ALTER PUBLICATION hotrow ADD TABLE a; COMMIT",
        "BEGIN; DROP PUBLICATION hotrow; CREATE PUBLICATION hotrow FOR ALL TABLES; COMMIT",
    ] {
        let from = feed.sink.len();
        server.batch(sql);
        feed.recovers(from, LossCause::NotWatched);
        feed.settle();
        assert_eq!(feed.keys(&server, "INSERT INTO a SELECT 1 + coalesce(max(id), 0) FROM a").len(), 1, "{sql}");
    }
    // What cannot be mended here keeps the feed from starting until somebody does.
    let from = feed.sink.len();
    server.batch("ALTER PUBLICATION hotrow SET (publish = 'insert')");
    let detail = lost_for(&feed, from);
    assert!(detail.contains("publish = 'insert, update, delete, truncate'"), "{detail}");
    server.batch("ALTER PUBLICATION hotrow SET (publish = 'insert, update, delete, truncate')");
    feed.recovers(from, LossCause::NotWatched);
    feed.settle();
}
