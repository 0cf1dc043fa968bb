//! Visibility of every kind of change without waiting for a TTL, which is a day here.

use std::time::Duration;

use hotrow_testkit::harness::{Client, Config, Database, SOON, Server, await_until};

/// Time after COMMIT within which a change must be visible; the default of `max_staleness`.
const FRESH: Duration = Duration::from_secs(1);

struct Watched {
    database: Database,
    server: Server,
    client: Client,
}

impl Watched {
    fn new() -> Self {
        let database = Database::with_products(200);
        database.execute(
            "CREATE TABLE tags(id INTEGER PRIMARY KEY, name TEXT UNIQUE, v INTEGER);
             INSERT INTO tags VALUES (1,'a',1), (2,'b',2), (3,'c',3)",
        );
        let server =
            Server::start(&Config::new(database.path()).collection("products").collection("tags"));
        let client = server.client();
        Self { database, server, client }
    }

    /// Returns the record of a path, or `-` if there is none.
    fn shown(&mut self, path: &str) -> String {
        let answer = self.client.get(path);
        assert!(matches!(answer.status, 200 | 404), "{answer:?}");
        if answer.status == 404 { "-".to_owned() } else { answer.text() }
    }

    /// Caches the paths, runs the statements, and waits until each path shows the expected record,
    /// independent of TTLs.
    #[track_caller]
    fn change(&mut self, sql: &str, after: &[(&str, &str)]) {
        for (path, _) in after {
            self.shown(path);
            let client = &mut self.client;
            await_until(&format!("{path} to be cached before {sql}"), SOON, || {
                client.get(path).cache() == "hit"
            });
        }
        self.database.execute(sql);
        let client = &mut self.client;
        let mut seen = String::new();
        for (path, expected) in after {
            await_until(
                &format!("{path} to show {expected} after {sql}; last {seen}"),
                FRESH,
                || {
                    let answer = client.get(path);
                    seen = if answer.status == 404 { "-".to_owned() } else { answer.text() };
                    seen == *expected
                },
            );
        }
    }
}

#[test]
fn every_statement_that_changes_rows_is_visible() {
    let mut w = Watched::new();
    let tag = |id: u32, name: &str, v: u32| format!(r#"{{"id":{id},"name":"{name}","v":{v}}}"#);
    w.change("INSERT INTO tags VALUES (9,'z',9)", &[("/tags/9", &tag(9, "z", 9))]);
    w.change("UPDATE tags SET v = 10 WHERE id = 9", &[("/tags/9", &tag(9, "z", 10))]);
    w.change(
        "UPDATE tags SET id = 19 WHERE id = 9",
        &[("/tags/9", "-"), ("/tags/19", &tag(19, "z", 10))],
    );
    w.change("DELETE FROM tags WHERE id = 19", &[("/tags/19", "-")]);
    w.change("INSERT INTO tags VALUES (9,'z',11)", &[("/tags/9", &tag(9, "z", 11))]);
    w.change("REPLACE INTO tags VALUES (9,'z',12)", &[("/tags/9", &tag(9, "z", 12))]);
    // Replaces row 1 through the unique name, without a DELETE.
    w.change(
        "REPLACE INTO tags VALUES (9,'a',13)",
        &[("/tags/9", &tag(9, "a", 13)), ("/tags/1", "-")],
    );
    w.change(
        "UPDATE OR REPLACE tags SET name = 'b' WHERE id = 3",
        &[("/tags/2", "-"), ("/tags/3", &tag(3, "b", 3))],
    );
    w.change(
        "INSERT INTO tags VALUES (3,'c',30) ON CONFLICT(id) DO UPDATE SET v = excluded.v",
        &[("/tags/3", &tag(3, "b", 30))],
    );
    w.change(
        "INSERT INTO tags VALUES (4,'b',31) ON CONFLICT(name) DO UPDATE SET v = excluded.v",
        &[("/tags/3", &tag(3, "b", 31)), ("/tags/4", "-")],
    );
    w.change(
        "BEGIN; DELETE FROM tags WHERE id = 3; INSERT INTO tags VALUES (3,'q',1); UPDATE tags SET \
         v = 2 WHERE id = 3; COMMIT",
        &[("/tags/3", &tag(3, "q", 2))],
    );
    w.change("DELETE FROM tags", &[("/tags/3", "-"), ("/tags/9", "-")]);
}

#[test]
fn a_bulk_change_and_an_unfiltered_delete_are_visible_on_every_record() {
    let mut w = Watched::new();
    let paths: Vec<String> = (1..=200).map(|id| format!("/products/{id}")).collect();
    for path in &paths {
        w.client.get(path);
    }
    w.change(
        "WITH RECURSIVE n(i) AS (SELECT 1000 UNION ALL SELECT i + 1 FROM n WHERE i < 20999)
         INSERT INTO products SELECT i, 'n', i FROM n;
         UPDATE products SET name = 'bulk'",
        &[("/products/200", r#"{"id":200,"name":"bulk","price":20000}"#)],
    );
    let end = w.database.log_end();
    await_until("the feed to receive it all", SOON, || {
        w.server.metrics().sum("hotrow_feed_position", &[]) as u64 >= end
    });
    for path in &paths {
        assert_eq!(w.client.get(path).json()["name"], "bulk", "{path}");
    }
    w.change(
        "DELETE FROM products",
        &[("/products/1", "-"), ("/products/200", "-"), ("/products/20000", "-")],
    );
    for path in &paths {
        assert_eq!(w.shown(path), "-");
    }
}

#[test]
fn a_rollback_changes_nothing() {
    let mut w = Watched::new();
    let before = w.shown("/products/1");
    let changes = w.server.metrics().sum("hotrow_feed_changes_total", &[]);
    w.database.execute(
        "BEGIN; UPDATE products SET price = 1; DELETE FROM products WHERE id = 2; ROLLBACK",
    );
    w.database.execute(
        "BEGIN; SAVEPOINT s; UPDATE products SET price = 5 WHERE id = 1; ROLLBACK TO s; COMMIT",
    );
    // A later change shows that the feed has passed them.
    w.change(
        "UPDATE products SET price = 1 WHERE id = 3",
        &[("/products/3", r#"{"id":3,"name":"p3","price":1}"#)],
    );
    assert_eq!(w.shown("/products/1"), before);
    assert_eq!(w.client.get("/products/1").cache(), "hit", "not even invalidated");
    assert_eq!(w.server.metrics().sum("hotrow_feed_changes_total", &[]), changes + 1.0);
}

#[test]
fn a_change_of_the_table_itself_is_visible() {
    let mut w = Watched::new();
    let status = |w: &Watched| {
        w.server.metrics().sum_or_zero("hotrow_feed_flushes_total", &[("cause", "schema")])
    };
    assert_eq!(w.shown("/products/1"), r#"{"id":1,"name":"p1","price":100}"#);
    for (sql, expected) in [
        (
            "ALTER TABLE products ADD COLUMN color TEXT DEFAULT 'red'",
            r#"{"id":1,"name":"p1","price":100,"color":"red"}"#,
        ),
        (
            "ALTER TABLE products RENAME COLUMN price TO cents",
            r#"{"id":1,"name":"p1","cents":100,"color":"red"}"#,
        ),
        ("ALTER TABLE products DROP COLUMN color", r#"{"id":1,"name":"p1","cents":100}"#),
    ] {
        w.database.execute(sql);
        // Found by polling the catalogue, once a second, and then within the bound.
        await_until(&format!("{expected} after {sql}"), FRESH * 4, || {
            w.client.get("/products/1").text() == expected
        });
    }
    assert!(status(&w) >= 3.0, "flushes by cause");
    // The new shape is followed.
    w.change(
        "UPDATE products SET cents = 2 WHERE id = 1",
        &[("/products/1", r#"{"id":1,"name":"p1","cents":2}"#)],
    );
}

#[test]
fn a_dropped_table_is_503_until_it_is_created_again() {
    let mut w = Watched::new();
    assert_eq!(w.client.get("/tags/1").status, 200);
    w.database.execute("DROP TABLE tags");
    let client = &mut w.client;
    await_until("the collection to be refused", FRESH * 4, || client.get("/tags/1").status == 503);
    let refused = client.get("/tags/1");
    let (_, detail) = refused.problem(503);
    assert!(
        !detail.contains("tags") && !detail.contains("SQL"),
        "internal details are not shown: {detail}"
    );
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(client.get("/products/1").status, 200, "other collections are served");
    w.database.execute(
        "CREATE TABLE tags(id INTEGER PRIMARY KEY, name TEXT UNIQUE, v INTEGER); INSERT INTO tags \
         VALUES (1,'new',1)",
    );
    await_until("the new table", FRESH * 4, || client.get("/tags/1").text().contains("new"));
    w.change(
        "UPDATE tags SET v = 2 WHERE id = 1",
        &[("/tags/1", r#"{"id":1,"name":"new","v":2}"#)],
    );
}

#[test]
fn a_hot_record_is_prefetched_and_another_is_not() {
    let database = Database::with_products(200);
    let server = Server::start(&Config::new(database.path()).collection("products"));
    let mut client = server.client();
    for (path, how_often) in [("/products/1", 5), ("/products/2", 1)] {
        (0..how_often).for_each(|_| assert_eq!(client.get(path).status, 200));
    }
    let before = server.queries();
    database.execute("UPDATE products SET price = 7 WHERE id IN (1, 2)");
    await_until("the refresh", SOON, || {
        let metrics = server.metrics();
        metrics.sum("hotrow_invalidations_total", &[]) == 2.0
            && metrics.sum("hotrow_cache_entries", &[]) == 1.0
    });
    assert_eq!(server.queries() - before, 1);
    let answers = ["/products/1", "/products/2"].map(|path| client.get(path));
    assert_eq!(answers.each_ref().map(|answer| answer.cache()), ["hit", "miss"]);
    assert!(answers.iter().all(|answer| answer.json()["price"] == 7));
    assert_eq!(server.metrics().sum("hotrow_hot_refreshes_total", &[]), 1.0);
}

#[test]
fn without_triggers_any_change_flushes_and_there_are_no_positions() {
    let database = Database::with_products(3);
    let config =
        Config::new(database.path()).set("source.watch", "\"none\"").collection("products");
    let server = Server::start(&config);
    let mut client = server.client();
    client.get("/products/1");
    let hit = client.get("/products/1");
    assert_eq!((hit.cache(), hit.header("hotrow-position")), ("hit", None));
    database.execute("UPDATE products SET price = 5 WHERE id = 1");
    await_until("the change", FRESH, || client.get("/products/1").json()["price"] == 5);
    let added: i64 = database
        .connection
        .query_row("SELECT count(*) FROM sqlite_schema WHERE name <> 'products'", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(added, 0, "nothing is added to the database");
}
