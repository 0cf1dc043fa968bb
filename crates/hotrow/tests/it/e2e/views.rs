//! Views of a file: changes of the table, another text while the service runs, aliases.

use crate::shop::{await_body, await_status, cached};
use hotrow_testkit::harness::{Config, Database, SOON, Server, await_until};

#[test]
fn a_view_follows_its_table_and_its_text() {
    let database = Database::with_products(9);
    database.execute(
        "CREATE VIEW cheap(nr, title) AS SELECT p.id, upper(name) /* loud */ FROM products p \
         WHERE price < 1e9 AND \"name\" <> 'hidden'",
    );
    for watch in ["\"triggers\"", "\"none\""] {
        let config = Config::new(database.path())
            .collection("cheap")
            .set("collections.cheap.key", "\"nr\"")
            .set("source.watch", watch);
        let server = Server::start(&config);
        let mut client = server.client();
        database.execute("UPDATE products SET name = 'a' WHERE id = 1");
        await_body(&mut client, "/cheap/1", r#"{"nr":1,"title":"A"}"#);
        cached(&mut client, "/cheap/1");
        database.execute("UPDATE products SET name = 'hidden' WHERE id = 1");
        await_status(&mut client, "/cheap/1", 404);
        cached(&mut client, "/cheap/1");
        database.execute("UPDATE products SET name = 'b' WHERE id = 1");
        await_body(&mut client, "/cheap/1", r#"{"nr":1,"title":"B"}"#);
        cached(&mut client, "/cheap/1");
        database.execute(
            "BEGIN; DROP VIEW cheap; \
             CREATE VIEW cheap AS SELECT id AS nr, lower(name) AS title FROM products; COMMIT",
        );
        await_body(&mut client, "/cheap/1", r#"{"nr":1,"title":"b"}"#);
        cached(&mut client, "/cheap/1");
        database.execute(
            "BEGIN; DROP VIEW cheap; CREATE VIEW cheap AS \
             SELECT id AS nr, (SELECT max(name) FROM products) AS title FROM products; COMMIT",
        );
        await_until("the view to be refused", SOON, || client.get("/cheap/1").status >= 500);
        server.await_log("has a subquery at character");
        database.execute(
            "BEGIN; DROP VIEW cheap; CREATE VIEW cheap(nr, title) AS \
             SELECT id, upper(name) FROM products WHERE name <> 'hidden'; COMMIT",
        );
        await_body(&mut client, "/cheap/1", r#"{"nr":1,"title":"B"}"#);
    }
}

#[test]
fn an_alias_of_a_view_is_a_column_of_its_table() {
    let database = Database::with_products(9);
    database.execute(
        "CREATE UNIQUE INDEX named ON products(name); UPDATE products SET name = 'n' || id; \
         CREATE VIEW plain AS SELECT price, name AS title, id FROM products WHERE id < 5",
    );
    let config = Config::new(database.path())
        .collection("plain")
        .set("collections.plain.by.title.columns", "[\"title\"]");
    let server = Server::start(&config);
    let mut client = server.client();
    let first = cached(&mut client, "/plain/1").text();
    assert_eq!(cached(&mut client, "/plain/by/title/n1").text(), first);
    assert_eq!(client.get("/plain/by/title/n7").status, 404, "hidden by WHERE");
    database.execute("UPDATE products SET name = 'other' WHERE id = 1");
    await_status(&mut client, "/plain/by/title/n1", 404);
    await_status(&mut client, "/plain/by/title/other", 200);
}

#[test]
fn a_record_that_cannot_be_read_fails_alone() {
    let database = Database::with_products(99);
    database.execute(
        "UPDATE products SET price = -9223372036854775808 WHERE id = 5; \
         CREATE VIEW distances AS SELECT id, abs(price) AS distance FROM products",
    );
    let config = Config::new(database.path())
        .collection("distances")
        .set("cache.error_ttl", "\"0s\"")
        .set("limits.breaker.failures", "2");
    let server = Server::start(&config);
    let mut client = server.client();
    for _ in 0..3 {
        // One failed read fails its batch, and no other: the rest was read, and is in the cache.
        let answer = client.get("/distances?ids=6,5,7,8");
        assert_eq!(answer.problem(500).0, "Record not readable");
        assert_eq!(client.get("/distances/5").problem(500).0, "Record not readable");
    }
    for id in 6..9 {
        let answer = client.get(&format!("/distances/{id}"));
        assert_eq!((answer.status, answer.header("hotrow-cache")), (200, Some("hit")), "{id}");
    }
    // The breaker has counted nothing.
    assert_eq!(client.get("/distances/9").status, 200);
    assert_eq!(server.admin_client().get("/readyz").status, 200);
}
