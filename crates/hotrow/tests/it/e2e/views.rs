//! A view of a file: changes of its table, and another text while the service runs.

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
