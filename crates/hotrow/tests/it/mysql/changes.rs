//! Visibility of every kind of row change to a client whose record is cached.

use crate::mysql::server::{SERVICE_USER, Server as Database};
use crate::mysql::shop::{config, serve, with_products};
use crate::shop::{await_body, await_status, cached, losses};
use hotrow_testkit::harness::Server;

#[test]
fn updates_deletes_inserts_and_changed_keys() {
    let database = with_products(Database::any());
    let server = serve(&database, &["products"]);
    let mut client = server.client();
    cached(&mut client, "/products/1");
    database.batch("UPDATE products SET price = 7 WHERE id = 1");
    await_body(&mut client, "/products/1", r#"{"id":1,"name":"p1","price":7}"#);
    cached(&mut client, "/products/1");
    database.batch("DELETE FROM products WHERE id = 1");
    await_status(&mut client, "/products/1", 404);
    cached(&mut client, "/products/1");
    database.batch("INSERT INTO products VALUES (1, 'again', 8)");
    await_body(&mut client, "/products/1", r#"{"id":1,"name":"again","price":8}"#);
    // After a changed key, the old one is missing, and the new one, cached as missing, exists.
    for path in ["/products/1", "/products/5000"] {
        cached(&mut client, path);
    }
    database.batch("UPDATE products SET id = 5000 WHERE id = 1");
    await_status(&mut client, "/products/1", 404);
    await_body(&mut client, "/products/5000", r#"{"id":5000,"name":"again","price":8}"#);
    assert_eq!(losses(&server, None), 0.0);
}

#[test]
fn statements_and_foreign_keys_that_cascade() {
    let database = with_products(Database::any());
    database.batch(
        "CREATE TABLE notes(id INT PRIMARY KEY, product INT,
           FOREIGN KEY (product) REFERENCES products (id) ON DELETE CASCADE ON UPDATE CASCADE);
         INSERT INTO notes SELECT id, id FROM products",
    );
    let server = serve(&database, &["products", "notes"]);
    let mut client = server.client();
    cached(&mut client, "/notes/3");
    database.batch("UPDATE products SET id = 3000 WHERE id = 3");
    await_body(&mut client, "/notes/3", r#"{"id":3,"product":3000}"#);
    cached(&mut client, "/notes/4");
    database.batch("DELETE FROM products WHERE id = 4");
    await_status(&mut client, "/notes/4", 404);
    for path in ["/products/5", "/notes/5"] {
        cached(&mut client, path);
    }
    database
        .batch("SET SESSION binlog_format = STATEMENT; UPDATE products SET price = 1 WHERE id = 5");
    await_body(&mut client, "/products/5", r#"{"id":5,"name":"p5","price":1}"#);
    cached(&mut client, "/notes/5");
    database.batch("TRUNCATE notes");
    await_status(&mut client, "/notes/5", 404);
    assert_eq!(losses(&server, None), 0.0);
}

/// Uses the account of docs/mysql.md, before and after it receives further privileges.
#[test]
fn a_cascade_is_seen_with_further_privileges() {
    let database = with_products(Database::any());
    database.batch(
        "CREATE TABLE notes(id INT PRIMARY KEY, product INT,
           FOREIGN KEY (product) REFERENCES products (id) ON DELETE CASCADE);
         INSERT INTO notes SELECT id, id FROM products",
    );
    let server = serve(&database, &["notes"]);
    let mut client = server.client();
    for (id, privilege) in [(1, ""), (2, "UPDATE"), (3, "INSERT"), (4, "REFERENCES")] {
        if !privilege.is_empty() {
            database.batch(&format!(
                "GRANT {privilege} ON {}.* TO {SERVICE_USER}@'%'",
                database.database()
            ));
        }
        let path = format!("/notes/{id}");
        cached(&mut client, &path);
        database.batch(&format!("DELETE FROM products WHERE id = {id}"));
        await_status(&mut client, &path, 404);
    }
    assert_eq!(losses(&server, None), 0.0);
    database.batch(&format!(
        "REVOKE UPDATE, INSERT, REFERENCES ON {}.* FROM {SERVICE_USER}@'%'",
        database.database()
    ));
}

#[test]
fn keys_beyond_63_bits_and_unique_keys() {
    let database = Database::any();
    database.batch(
        "CREATE TABLE wide(id BIGINT UNSIGNED PRIMARY KEY,
           sku VARCHAR(9) COLLATE utf8mb4_bin NOT NULL UNIQUE);
         INSERT INTO wide VALUES (18446744073709551615, 'a')",
    );
    let config = config(&database, &["wide"]).collection("by_sku");
    let server = Server::start(
        &config
            .set("collections.by_sku.table", "\"wide\"")
            .set("collections.by_sku.key", "\"sku\""),
    );
    let mut client = server.client();
    let paths = ["/wide/18446744073709551615", "/by_sku/a"];
    for path in paths {
        assert_eq!(cached(&mut client, path).text(), r#"{"id":18446744073709551615,"sku":"a"}"#);
    }
    database.batch("DELETE FROM wide");
    paths.iter().for_each(|path| await_status(&mut client, path, 404));
    assert_eq!(client.get("/wide/18446744073709551616").status, 400);
    assert_eq!(losses(&server, None), 0.0);
}

#[test]
fn prepared_transactions_become_visible_at_their_commit() {
    let database = with_products(Database::any());
    let server = serve(&database, &["products"]);
    let mut client = server.client();
    cached(&mut client, "/products/1");
    database.batch(
        "XA START 'hotrow'; UPDATE products SET price = 7 WHERE id = 1; XA END 'hotrow';
         XA PREPARE 'hotrow'",
    );
    // When a later commit is visible, the prepared change would be visible too.
    database.batch("UPDATE products SET price = 9 WHERE id = 2");
    await_body(&mut client, "/products/2", r#"{"id":2,"name":"p2","price":9}"#);
    assert_eq!(cached(&mut client, "/products/1").text(), r#"{"id":1,"name":"p1","price":100}"#);
    database.batch("XA COMMIT 'hotrow'");
    await_body(&mut client, "/products/1", r#"{"id":1,"name":"p1","price":7}"#);
}

#[test]
fn schema_changes() {
    let database = with_products(Database::any());
    let server = serve(&database, &["products"]);
    let mut client = server.client();
    let path = "/products/1";
    let steps = [
        (
            "ALTER TABLE products ADD COLUMN stock INT DEFAULT 5",
            r#"{"id":1,"name":"p1","price":100,"stock":5}"#,
        ),
        (
            "ALTER TABLE products CHANGE price cost INT",
            r#"{"id":1,"name":"p1","cost":100,"stock":5}"#,
        ),
        ("ALTER TABLE products DROP COLUMN name", r#"{"id":1,"cost":100,"stock":5}"#),
        ("ALTER TABLE products MODIFY cost VARCHAR(9)", r#"{"id":1,"cost":"100","stock":5}"#),
        ("ALTER TABLE products MODIFY id INT AFTER stock", r#"{"cost":"100","stock":5,"id":1}"#),
    ];
    for (sql, body) in steps {
        cached(&mut client, path);
        database.batch(sql);
        await_body(&mut client, path, body);
    }
    // A renamed table cannot be read until a table with its name exists again.
    cached(&mut client, path);
    database.batch("RENAME TABLE products TO away");
    await_status(&mut client, path, 503);
    database.batch("RENAME TABLE away TO products");
    await_body(&mut client, path, r#"{"cost":"100","stock":5,"id":1}"#);
    assert_eq!(losses(&server, None), 0.0);
}
