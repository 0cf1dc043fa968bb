//! Every way in which a row can change is seen by a client that has the row's record in the cache.

use crate::server::Server as Database;
use crate::shop::{await_body, await_status, cached, losses, serve, with_products};

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
    // A changed key: the old one is gone, and the new one, known to be missing, is there.
    for path in ["/products/1", "/products/5000"] {
        cached(&mut client, path);
    }
    database.batch("UPDATE products SET id = 5000 WHERE id = 1");
    await_status(&mut client, "/products/1", 404);
    await_body(&mut client, "/products/5000", r#"{"id":5000,"name":"again","price":8}"#);
    assert_eq!(losses(&server), 0.0);
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
    database.batch("SET SESSION binlog_format = STATEMENT; UPDATE products SET price = 1 WHERE id = 5");
    await_body(&mut client, "/products/5", r#"{"id":5,"name":"p5","price":1}"#);
    cached(&mut client, "/notes/5");
    database.batch("TRUNCATE notes");
    await_status(&mut client, "/notes/5", 404);
    assert_eq!(losses(&server), 0.0);
}

#[test]
fn prepared_transactions_show_with_their_commit() {
    let database = with_products(Database::any());
    let server = serve(&database, &["products"]);
    let mut client = server.client();
    cached(&mut client, "/products/1");
    database
        .batch("XA START 'hotrow'; UPDATE products SET price = 7 WHERE id = 1; XA END 'hotrow'; XA PREPARE 'hotrow'");
    // What is committed after it has come: so has it.
    database.batch("UPDATE products SET price = 9 WHERE id = 2");
    await_body(&mut client, "/products/2", r#"{"id":2,"name":"p2","price":9}"#);
    assert_eq!(cached(&mut client, "/products/1").text(), r#"{"id":1,"name":"p1","price":100}"#);
    database.batch("XA COMMIT 'hotrow'");
    await_body(&mut client, "/products/1", r#"{"id":1,"name":"p1","price":7}"#);
}

#[test]
fn changes_of_the_tables_shape() {
    let database = with_products(Database::any());
    let server = serve(&database, &["products"]);
    let mut client = server.client();
    let path = "/products/1";
    let steps = [
        ("ALTER TABLE products ADD COLUMN stock INT DEFAULT 5", r#"{"id":1,"name":"p1","price":100,"stock":5}"#),
        ("ALTER TABLE products CHANGE price cost INT", r#"{"id":1,"name":"p1","cost":100,"stock":5}"#),
        ("ALTER TABLE products DROP COLUMN name", r#"{"id":1,"cost":100,"stock":5}"#),
        ("ALTER TABLE products MODIFY cost VARCHAR(9)", r#"{"id":1,"cost":"100","stock":5}"#),
        ("ALTER TABLE products MODIFY id INT AFTER stock", r#"{"cost":"100","stock":5,"id":1}"#),
    ];
    for (sql, body) in steps {
        cached(&mut client, path);
        database.batch(sql);
        await_body(&mut client, path, body);
    }
    // Gone: it cannot be read, until there is such a table again.
    cached(&mut client, path);
    database.batch("RENAME TABLE products TO away");
    await_status(&mut client, path, 503);
    database.batch("RENAME TABLE away TO products");
    await_body(&mut client, path, r#"{"cost":"100","stock":5,"id":1}"#);
    assert_eq!(losses(&server), 0.0);
}
