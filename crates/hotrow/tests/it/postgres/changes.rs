//! Every way in which a row can change becomes visible to a client whose record is in the cache.

use std::time::Duration;

use crate::postgres::shop::Shop;
use crate::shop::{await_body, await_status, cached, losses, staleness};
use hotrow_testkit::harness::{SOON, await_mostly, await_until};

#[test]
fn updates_deletes_inserts_and_changed_keys() {
    let shop = Shop::with_products();
    let server = shop.serve(&["products"]);
    let mut client = server.client();
    cached(&mut client, "/products/1");
    shop.server.batch("UPDATE products SET price = 7 WHERE id = 1");
    await_body(&mut client, "/products/1", r#"{"id":1,"name":"p1","price":7}"#);
    cached(&mut client, "/products/1");
    shop.server.batch("DELETE FROM products WHERE id = 1");
    await_status(&mut client, "/products/1", 404);
    cached(&mut client, "/products/1");
    shop.server.batch("INSERT INTO products VALUES (1, 'again', 8)");
    await_body(&mut client, "/products/1", r#"{"id":1,"name":"again","price":8}"#);
    // A changed key: the old one is gone, and the new one, cached as missing, exists.
    for path in ["/products/1", "/products/5000"] {
        cached(&mut client, path);
    }
    shop.server.batch("UPDATE products SET id = 5000 WHERE id = 1");
    await_status(&mut client, "/products/1", 404);
    await_body(&mut client, "/products/5000", r#"{"id":5000,"name":"again","price":8}"#);
    assert_eq!(losses(&server, None), 0.0);
}

#[test]
fn truncate_with_cascade_and_foreign_keys_that_cascade() {
    let shop = Shop::with_products();
    shop.server.batch(
        "CREATE TABLE notes(id integer PRIMARY KEY, product integer REFERENCES products \
         ON DELETE CASCADE ON UPDATE CASCADE);
         INSERT INTO notes SELECT id, id FROM products",
    );
    let server = shop.serve(&["products", "notes"]);
    let mut client = server.client();
    cached(&mut client, "/notes/3");
    shop.server.batch("UPDATE products SET id = 3000 WHERE id = 3");
    await_body(&mut client, "/notes/3", r#"{"id":3,"product":3000}"#);
    cached(&mut client, "/notes/4");
    shop.server.batch("DELETE FROM products WHERE id = 4");
    await_status(&mut client, "/notes/4", 404);
    for path in ["/products/5", "/notes/5"] {
        cached(&mut client, path);
    }
    shop.server.batch("TRUNCATE products CASCADE");
    for path in ["/products/5", "/notes/5"] {
        await_status(&mut client, path, 404);
    }
    assert!(server.metrics().sum("hotrow_feed_flushes_total", &[("cause", "bulk")]) >= 2.0);
}

#[test]
fn partitioned_tables_rows_that_change_their_partition_and_old_images() {
    let shop = Shop::new(
        "CREATE TABLE orders(id integer, day date, n integer, PRIMARY KEY (id, day)) PARTITION BY \
         RANGE (day);
         CREATE TABLE orders_1 PARTITION OF orders FOR VALUES FROM ('2024-01-01') TO ('2025-01-01');
         CREATE TABLE orders_2 PARTITION OF orders FOR VALUES FROM ('2025-01-01') TO ('2026-01-01');
         INSERT INTO orders VALUES (1, '2024-05-05', 1);
         CREATE TABLE parts(id integer PRIMARY KEY, n integer) PARTITION BY LIST (id);
         CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1);
         CREATE TABLE parts_2 PARTITION OF parts FOR VALUES IN (2);
         INSERT INTO parts VALUES (1, 1);
         CREATE TABLE wholes(id integer NOT NULL UNIQUE, n integer); \
         ALTER TABLE wholes REPLICA IDENTITY FULL;
         INSERT INTO wholes VALUES (1, 1), (2, NULL)",
    );
    let server = shop.serve(&["parts", "wholes"]);
    let mut client = server.client();
    cached(&mut client, "/parts/1");
    shop.server.batch("UPDATE parts SET n = 2 WHERE id = 1");
    await_body(&mut client, "/parts/1", r#"{"id":1,"n":2}"#);
    for path in ["/parts/1", "/parts/2"] {
        cached(&mut client, path);
    }
    shop.server.batch("UPDATE parts SET id = 2 WHERE id = 1");
    await_status(&mut client, "/parts/1", 404);
    await_body(&mut client, "/parts/2", r#"{"id":2,"n":2}"#);
    for path in ["/wholes/1", "/wholes/2", "/wholes/3"] {
        cached(&mut client, path);
    }
    shop.server
        .batch("UPDATE wholes SET id = 3, n = 5 WHERE id = 1; DELETE FROM wholes WHERE id = 2");
    await_body(&mut client, "/wholes/3", r#"{"id":3,"n":5}"#);
    for path in ["/wholes/1", "/wholes/2"] {
        await_status(&mut client, path, 404);
    }
}

#[test]
fn a_transaction_of_a_hundred_thousand_rows() {
    let shop = Shop::new(
        "CREATE TABLE many(id integer PRIMARY KEY, n integer); \
         INSERT INTO many SELECT n, 0 FROM generate_series(1, 100000) n",
    );
    let server = shop.serve(&["many"]);
    let mut client = server.client();
    for id in [1, 50_000, 100_000] {
        cached(&mut client, &format!("/many/{id}"));
    }
    shop.server.batch("UPDATE many SET n = 1");
    for id in [1, 50_000, 100_000] {
        await_body(&mut client, &format!("/many/{id}"), &format!("{{\"id\":{id},\"n\":1}}"));
    }
    assert_eq!(losses(&server, None), 0.0);
    shop.await_delivery(&server);
    // A rollback of any size is not reported.
    let changes = server.metrics().sum("hotrow_feed_changes_total", &[]);
    cached(&mut client, "/many/7");
    shop.server.batch("BEGIN; UPDATE many SET n = 2; ROLLBACK; UPDATE many SET n = 3 WHERE id = 8");
    await_body(&mut client, "/many/8", r#"{"id":8,"n":3}"#);
    shop.await_delivery(&server);
    assert_eq!(client.get("/many/7").cache(), "hit");
    assert!(server.metrics().sum("hotrow_feed_changes_total", &[]) - changes < 100.0);
}

#[test]
fn an_idle_database_stays_fresh_and_so_does_a_busy_one() {
    const BOUND: Duration = Duration::from_millis(400);
    // Once the probe had no answer for 10 s. A loss counts unless the proxy, which takes no part,
    // stood still as well.
    const STALL_MAX: Duration = Duration::from_secs(1);
    let shop = Shop::with_products();
    shop.server.batch("CREATE TABLE unserved(id integer PRIMARY KEY, n integer)");
    // WAL that is written but not flushed, and WAL of unserved tables, must not appear as
    // staleness.
    let noises = [
        "SELECT 1",
        "SET synchronous_commit = off; INSERT INTO unserved SELECT coalesce(max(id), 0) + 1, 0 \
         FROM unserved",
        "TRUNCATE unserved; INSERT INTO unserved SELECT g, 0 FROM generate_series(100, 1100) g",
        "VACUUM unserved",
    ];
    let server = hotrow_testkit::harness::Server::start(
        &shop.config_of(&["products"]).set("cache.max_staleness", "\"400ms\""),
    );
    let mut client = server.client();
    cached(&mut client, "/products/1");
    for noise in noises {
        shop.server.batch(noise);
        await_mostly(noise, BOUND * 3, || staleness(&server) < BOUND);
    }
    await_until("a hit", SOON, || client.get("/products/1").cache() == "hit");
    let stall = shop.proxy.longest_stall();
    assert!(losses(&server, None) == 0.0 || stall > STALL_MAX, "a loss; stall: {stall:?}");
}

#[test]
fn changes_of_the_tables_shape() {
    let shop = Shop::with_products();
    shop.server.batch(
        "CREATE TYPE colour AS ENUM ('red'); \
         CREATE TABLE paints(id integer PRIMARY KEY, c colour); \
         INSERT INTO paints VALUES (1, 'red')",
    );
    let server = hotrow_testkit::harness::Server::start(
        &shop.config_of(&["products", "paints"]).set("source.schema_poll", "\"50ms\""),
    );
    let mut client = server.client();
    let path = "/products/1";
    let steps = [
        (
            "ALTER TABLE products ADD COLUMN stock integer DEFAULT 5",
            r#"{"id":1,"name":"p1","price":100,"stock":5}"#,
        ),
        (
            "ALTER TABLE products RENAME COLUMN price TO cost",
            r#"{"id":1,"name":"p1","cost":100,"stock":5}"#,
        ),
        ("ALTER TABLE products DROP COLUMN name", r#"{"id":1,"cost":100,"stock":5}"#),
        ("ALTER TABLE products ALTER COLUMN cost TYPE text", r#"{"id":1,"cost":"100","stock":5}"#),
    ];
    for (sql, body) in steps {
        cached(&mut client, path);
        shop.server.batch(sql);
        await_body(&mut client, path, body);
    }
    shop.server.batch("ALTER TYPE colour RENAME VALUE 'red' TO 'crimson'");
    await_body(&mut client, "/paints/1", r#"{"id":1,"c":"crimson"}"#);
    // Without the table only that collection cannot be read, until the table exists again.
    cached(&mut client, path);
    shop.server.batch("DROP TABLE products");
    await_status(&mut client, path, 503);
    assert_eq!(client.get("/paints/1").status, 200);
    shop.server.batch(
        "CREATE TABLE products(id integer PRIMARY KEY, n integer); \
         INSERT INTO products VALUES (1, 1)",
    );
    // The publication lost the table with it; its owner completes it.
    await_body(&mut client, path, r#"{"id":1,"n":1}"#);
    cached(&mut client, path);
    shop.server.batch("UPDATE products SET n = 2");
    await_body(&mut client, path, r#"{"id":1,"n":2}"#);
    assert!(server.metrics().sum("hotrow_feed_flushes_total", &[("cause", "schema")]) >= 4.0);
    await_until("all to be well", SOON, || server.admin_client().get("/readyz").status == 200);
}
