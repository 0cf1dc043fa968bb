use super::*;
use crate::error::sql_error;
use crate::tests::harness::refusal;

fn lost_for(feed: &Feed, from: usize) -> String {
    feed.sink.loses(from, LossCause::NotWatched)
}

#[test]
fn it_is_created_and_completed() {
    let server = Server::start(&[]);
    server.batch(
        "CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE \"B \"\"x\" (id int PRIMARY KEY)",
    );
    drop(Feed::start(&server, &["a(id)"]));
    let tables = "SELECT string_agg(tablename, ',' ORDER BY tablename) FROM pg_publication_tables \
                  WHERE pubname = 'hotrow'";
    assert_eq!(server.query(tables), "a");
    let feed = Feed::start(&server, &["a(id)", "B \"x(id)"]);
    assert_eq!(server.query(tables), "B \"x,a");
    assert_eq!(feed.keys(&server, "INSERT INTO \"B \"\"x\" VALUES (1)"), [feed.int(1, 1)]);
    assert_eq!(server.query("SELECT pubviaroot FROM pg_publication"), "t");
}

#[test]
fn faults_are_reported_with_the_sql_that_corrects_them() {
    let server = Server::start(&[]);
    server.batch(
        "CREATE TABLE a (id int PRIMARY KEY, n int); \
         CREATE TABLE m (id int PRIMARY KEY) PARTITION BY HASH (id)",
    );
    let url = server.url();
    for (publication, collections, remedy) in [
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
        server.batch(&format!(
            "DROP PUBLICATION IF EXISTS hotrow; CREATE PUBLICATION hotrow {publication}"
        ));
        let message = refusal(config(url.clone(), collections));
        assert!(
            message.contains(remedy) && message.contains("`hotrow`"),
            "{publication}: \
             {message}"
        );
        // The reported SQL corrects the fault.
        let sql: Vec<&str> =
            message.lines().filter_map(|line| line.trim().strip_prefix("-> ")).collect();
        server.batch(&sql.join("\n"));
        let feed = Feed::start(&server, collections);
        drop(feed);
    }
}

#[test]
fn without_the_privilege_the_sql_is_reported() {
    let server = Server::start(&[]);
    server.batch(
        "CREATE TABLE a (id int PRIMARY KEY); CREATE ROLE reader LOGIN REPLICATION; \
         GRANT SELECT ON a TO reader;
         CREATE TABLE b (id int PRIMARY KEY); GRANT SELECT ON b TO reader",
    );
    let url = server.url_for("reader", "postgres");
    let message = refusal(config(url.clone(), &["a(id)"]));
    let sql = "CREATE PUBLICATION \"hotrow\" FOR TABLE \"public\".\"a\" WITH \
               (publish_via_partition_root = true);";
    assert!(message.contains(sql), "{message}");
    server.batch(sql);
    let message = refusal(config(url.clone(), &["a(id)", "b(id)"]));
    let sql = "ALTER PUBLICATION \"hotrow\" ADD TABLE \"public\".\"b\";";
    assert!(message.contains(sql), "{message}");
    server.batch(sql);
    let feed = Feed::launch(config(url, &["a(id)", "b(id)"]), |_| {});
    feed.settle();
    assert_eq!(feed.keys(&server, "INSERT INTO b VALUES (1)"), [feed.int(1, 1)]);
    // No statement was refused: the privilege was checked first.
    assert!(!server.log().contains("permission denied"), "{}", server.log());
    // A removed table cannot be added again by this user: only its collection fails.
    let from = feed.sink.len();
    server.batch("ALTER PUBLICATION hotrow DROP TABLE a");
    feed.sink.wait("the flush", |events| {
        events[from..]
            .iter()
            .any(|e| matches!(e, Event::Flush(c, FlushCause::Schema, None) if c.0 == 0))
            .then_some(())
    });
    assert_eq!(feed.keys(&server, "INSERT INTO b VALUES (2)"), [feed.int(1, 2)]);
    let from = feed.sink.len();
    server.batch("ALTER PUBLICATION hotrow ADD TABLE a");
    gap_closes(&feed, from, 0);
    assert_no_loss(&feed, from);
    feed.settle();
    assert_eq!(feed.keys(&server, "INSERT INTO a VALUES (1)"), [feed.int(0, 1)]);
}

#[test]
fn an_added_table_does_not_affect_the_others() {
    let server = Server::start(&[]);
    server.batch("CREATE TABLE a (id int PRIMARY KEY, n int); CREATE TABLE b (id int PRIMARY KEY)");
    let feed = Feed::start(&server, &["a(id)", "b(id)"]);
    for sql in [
        "ALTER PUBLICATION hotrow DROP TABLE a",
        "BEGIN; ALTER PUBLICATION hotrow DROP TABLE a; ALTER PUBLICATION hotrow ADD TABLE a; \
         COMMIT",
    ] {
        let from = feed.sink.len();
        server.batch(sql);
        if !sql.ends_with("COMMIT") {
            // It was removed on purpose: its collection is refused until it is back.
            feed.sink.wait("the refusal", |events| {
                let is_flush = |e: &Event| matches!(e, Event::Flush(c, ..) if c.0 == 0);
                events[from..].iter().any(is_flush).then_some(())
            });
            assert_eq!(server.query("SELECT count(*) FROM pg_publication_rel"), "1");
            server.batch("ALTER PUBLICATION hotrow ADD TABLE a");
        }
        gap_closes(&feed, from, 0);
        assert_no_loss(&feed, from);
        let events = feed.sink.since(from);
        assert!(
            !events.iter().any(|e| matches!(e, Event::Flush(c, ..) if c.0 == 1)),
            "{sql}: {events:?}"
        );
        assert_eq!(
            feed.keys(&server, "INSERT INTO a SELECT 1 + coalesce(max(id), 0) FROM a").len(),
            1,
            "{sql}"
        );
    }
}

#[test]
fn a_gap_lasts_as_long_as_the_transactions_that_ran_across_it() {
    let server = Server::start(&[]);
    server.batch(
        "CREATE TABLE a (id int PRIMARY KEY, n int); INSERT INTO a VALUES (1, 0); \
         CREATE TABLE b (id int PRIMARY KEY)",
    );
    let feed = Feed::start(&server, &["a(id)", "b(id)"]);
    let from = feed.sink.len();
    let is_closed = |e: &Event| matches!(e, Event::GapClosed(c) if c.0 == 0);
    std::thread::scope(|scope| {
        let wait = |what: &str| {
            let sql = format!("SELECT count(*) FROM pg_stat_activity WHERE wait_event = '{what}'");
            feed.sink.wait(what, |_| (server.query(&sql) == "1").then_some(()));
        };
        // The other transaction waits for its lock until the test ends this session.
        let holder =
            scope.spawn(|| server.try_query("SELECT pg_advisory_lock(7); SELECT pg_sleep(600)"));
        wait("PgSleep");
        let across = scope.spawn(|| {
            server.try_query(
                "BEGIN; UPDATE a SET n = 1; SELECT pg_advisory_lock(7); UPDATE a SET n = 2; COMMIT",
            )
        });
        wait("advisory");
        server.batch(
            "BEGIN; ALTER PUBLICATION hotrow DROP TABLE a; ALTER PUBLICATION hotrow \
             ADD TABLE a; COMMIT",
        );
        feed.sink.wait("the gap", |events| {
            events[from..].iter().any(|e| matches!(e, Event::Gap(c) if c.0 == 0)).then_some(())
        });
        // The others continue, as fresh as before, for the whole time.
        for id in 1..=5 {
            assert_eq!(
                feed.keys(&server, &format!("INSERT INTO b VALUES ({id})")),
                [feed.int(1, id)]
            );
        }
        assert!(!feed.sink.since(from).iter().any(is_closed), "{:?}", feed.sink.since(from));
        server.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'",
        );
        drop(holder.join().unwrap());
        across.join().unwrap().unwrap();
    });
    gap_closes(&feed, from, 0);
    assert_no_loss(&feed, from);
    feed.settle();
    assert_eq!(feed.keys(&server, "UPDATE a SET n = 3"), [feed.int(0, 1)]);
}

/// The publication can disappear while the catalogue is being read.
#[test]
fn an_error_that_names_the_publication_is_a_loss_of_what_is_watched() {
    let server = Server::start(&[]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let cause_of = |sql: &str| {
        runtime.block_on(async {
            let (client, connection) =
                tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await.unwrap();
            let driver = tokio::spawn(connection);
            let error = client.query(sql, &[]).await.unwrap_err();
            driver.abort();
            sql_error("reading the catalogue", &error).cause
        })
    };
    let gone = "SELECT * FROM pg_get_publication_tables('gone')";
    assert_eq!(cause_of(gone), LossCause::NotWatched);
    assert_eq!(cause_of("SELECT * FROM gone"), LossCause::Unavailable);
}

#[test]
fn a_fault_at_run_time_is_a_loss() {
    let server = Server::start(&[]);
    server.batch("CREATE TABLE a (id int PRIMARY KEY, n int)");
    let feed = Feed::start(&server, &["a(id)"]);
    // If it is replaced by another, changes may have been missed.
    for sql in [
        "BEGIN; DROP PUBLICATION hotrow; CREATE PUBLICATION hotrow FOR TABLE a; COMMIT",
        "BEGIN; DROP PUBLICATION hotrow; CREATE PUBLICATION hotrow FOR ALL TABLES; COMMIT",
    ] {
        let from = feed.sink.len();
        server.batch(sql);
        feed.recovers(from, LossCause::NotWatched);
        feed.settle();
        assert_eq!(
            feed.keys(&server, "INSERT INTO a SELECT 1 + coalesce(max(id), 0) FROM a").len(),
            1,
            "{sql}"
        );
    }
    // Dropped on purpose, it stays away until it is created again.
    let from = feed.sink.len();
    server.batch("DROP PUBLICATION hotrow");
    let detail = lost_for(&feed, from);
    assert!(detail.contains("does not exist: it was dropped"), "{detail}");
    assert_eq!(server.query("SELECT count(*) FROM pg_publication"), "0");
    server.batch("CREATE PUBLICATION hotrow FOR TABLE a");
    feed.recovers(from, LossCause::NotWatched);
    feed.settle();
    // A fault that cannot be corrected here keeps the feed from starting until it is corrected.
    let from = feed.sink.len();
    server.batch("ALTER PUBLICATION hotrow SET (publish = 'insert')");
    let detail = lost_for(&feed, from);
    assert!(detail.contains("publish = 'insert, update, delete, truncate'"), "{detail}");
    server.batch("ALTER PUBLICATION hotrow SET (publish = 'insert, update, delete, truncate')");
    feed.recovers(from, LossCause::NotWatched);
    feed.settle();
}
