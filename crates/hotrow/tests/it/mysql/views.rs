//! Views over one table: which are served, and how the table's changes reach their records.

use crate::mysql::server::{Flavor, SERVICE_USER, Server as Database};
use crate::mysql::shop::{config, serve, with_products};
use crate::shop::{assert_contains, await_body, await_status, cached, losses, refusal};
use hotrow_testkit::harness::{SOON, Server, await_until};

const VIEW: &str = "CREATE VIEW offers AS SELECT upper(name) AS title, id AS nr, \
    price * 2 AS twice FROM products WHERE price > 150 AND name <> 'p3'";

fn shop(sql: &str) -> Database {
    let database = with_products(Database::any());
    database.batch(&format!(
        "GRANT SHOW VIEW ON {}.* TO {SERVICE_USER}@'%'; {sql}",
        database.database()
    ));
    database
}

#[test]
fn a_change_of_the_table_is_one_of_the_view() {
    let database = shop(VIEW);
    let config = config(&database, &["offers", "products"]);
    let server = Server::start(&config.set("collections.offers.key", "\"nr\""));
    let mut client = server.client();
    let body = cached(&mut client, "/offers/2").text();
    assert_eq!(body, r#"{"title":"P2","nr":2,"twice":400}"#);
    for hidden in ["/offers/1", "/offers/3"] {
        assert_eq!(cached(&mut client, hidden).status, 404, "{hidden}");
    }
    let batch = client.get("/offers?ids=2,1,4");
    assert_contains(&batch.text(), &["\"P2\"", "\"P4\"", "\"missing\":[\"1\"]"]);
    cached(&mut client, "/products/2");
    database.batch("UPDATE products SET price = 300 WHERE id = 2");
    await_body(&mut client, "/offers/2", r#"{"title":"P2","nr":2,"twice":600}"#);
    await_body(&mut client, "/products/2", r#"{"id":2,"name":"p2","price":300}"#);
    // Rows enter and leave by their own columns.
    database.batch("UPDATE products SET price = 160 WHERE id = 1");
    await_body(&mut client, "/offers/1", r#"{"title":"P1","nr":1,"twice":320}"#);
    cached(&mut client, "/offers/2");
    database.batch("UPDATE products SET price = 0 WHERE id = 2");
    await_status(&mut client, "/offers/2", 404);
    database.batch("UPDATE products SET name = 'q' WHERE id = 3");
    await_status(&mut client, "/offers/3", 200);
    cached(&mut client, "/offers/4");
    database.batch("UPDATE products SET id = 4000 WHERE id = 4");
    await_status(&mut client, "/offers/4", 404);
    await_status(&mut client, "/offers/4000", 200);
    cached(&mut client, "/offers/5");
    database.batch("TRUNCATE products");
    await_status(&mut client, "/offers/5", 404);
    assert_eq!(losses(&server, None), 0.0);
}

#[test]
fn another_text_of_the_view_or_column_of_the_table_is_a_change_of_shape() {
    let database =
        shop("CREATE VIEW cheap AS SELECT id, name, price FROM products WHERE price < 1000");
    let server = serve(&database, &["cheap"]);
    let mut client = server.client();
    cached(&mut client, "/cheap/1");
    cached(&mut client, "/cheap/2");
    database.batch(
        "CREATE OR REPLACE VIEW cheap AS SELECT id, name, price + 1 AS price FROM products \
         WHERE price < 150",
    );
    await_body(&mut client, "/cheap/1", r#"{"id":1,"name":"p1","price":101}"#);
    await_status(&mut client, "/cheap/2", 404);
    cached(&mut client, "/cheap/1");
    // Without a trace in the log: the catalogue shows it.
    database.batch(
        "SET SESSION sql_log_bin = 0; \
         CREATE OR REPLACE VIEW cheap AS SELECT id, name, price + 2 AS price FROM products",
    );
    await_body(&mut client, "/cheap/1", r#"{"id":1,"name":"p1","price":102}"#);
    cached(&mut client, "/cheap/1");
    database.batch("ALTER TABLE products MODIFY name VARCHAR(20) DEFAULT 'x', ADD z INT FIRST");
    database.batch("UPDATE products SET name = 'n' WHERE id = 1");
    await_body(&mut client, "/cheap/1", r#"{"id":1,"name":"n","price":102}"#);
    cached(&mut client, "/cheap/1");
    // A text that depends on more than the row is not served, and the old records are not either.
    database.batch(
        "CREATE OR REPLACE VIEW cheap AS SELECT id, name, price FROM products \
         WHERE price < (SELECT max(price) FROM products)",
    );
    await_until("the view to be refused", SOON, || client.get("/cheap/1").status >= 500);
    database.batch("ALTER TABLE products RENAME COLUMN id TO uid");
    database.batch("CREATE OR REPLACE VIEW cheap AS SELECT uid AS id, name, price FROM products");
    await_body(&mut client, "/cheap/1", r#"{"id":1,"name":"n","price":100}"#);
    cached(&mut client, "/cheap/1");
    database.batch("UPDATE products SET price = 7 WHERE uid = 1");
    await_body(&mut client, "/cheap/1", r#"{"id":1,"name":"n","price":7}"#);
    // The view is invalid without one of its columns.
    database.batch("ALTER TABLE products RENAME COLUMN price TO cost");
    await_until("the view to be refused", SOON, || client.get("/cheap/1").status >= 500);
    database.batch("ALTER TABLE products RENAME COLUMN cost TO price");
    await_body(&mut client, "/cheap/1", r#"{"id":1,"name":"n","price":7}"#);
}

#[test]
fn a_view_whose_row_depends_on_more_than_one_row_is_refused_with_the_reason() {
    let more = "something besides columns, one table and WHERE";
    let function = "a function other than abs, coalesce";
    let divided = Flavor::of_run().choose("something other than FROM", "has no `)`");
    let cases = [
        ("SELECT DISTINCT id, name FROM products", "no accepted expression"),
        ("SELECT id, count(*) AS n FROM products GROUP BY id", function),
        ("SELECT id FROM products UNION ALL SELECT id FROM products", more),
        ("SELECT p.id FROM products p JOIN products q ON p.id = q.id", "a subquery or a join"),
        ("SELECT id FROM products LIMIT 5", more),
        ("SELECT id FROM products ORDER BY price", more),
        ("WITH w AS (SELECT 1 AS x) SELECT id FROM products, w", "something other than SELECT"),
        ("SELECT id, row_number() OVER () AS n FROM products", function),
        ("SELECT 1 AS id", "something other than FROM"),
        ("SELECT id FROM (SELECT id FROM products) AS s", "a subquery or a join"),
        ("SELECT id, (SELECT max(price) FROM products) AS m FROM products", "a subquery"),
        ("SELECT id FROM products WHERE EXISTS (SELECT 1 FROM secrets)", function),
        ("SELECT id, now() AS at FROM products", function),
        ("SELECT id, current_date AS at FROM products", function),
        ("SELECT id, user() AS u FROM products", function),
        ("SELECT id, rand() AS r FROM products", function),
        ("SELECT id, mine(price) AS p FROM products", function),
        ("SELECT id, price / 3 AS p FROM products", divided),
        ("SELECT id, concat(name, '!') AS p FROM products", function),
        ("SELECT id, cast(price AS char) AS p FROM products", function),
        ("SELECT id FROM products WHERE name = 'it''s'", "a text with a quote, a backslash"),
        ("SELECT id + 0 AS id, name FROM products", "computes its key column `id`"),
        ("SELECT price AS id FROM products", "no unique index of"),
        ("SELECT id FROM plain", "selects from another view"),
        ("SELECT id FROM away.t", "a table of another database"),
        ("SELECT id FROM timed WHERE ti > '10:00'", "uses `ti` of type time in an expression"),
        ("SELECT id FROM isam", "kept by the engine MyISAM"),
    ];
    let database = Database::start(&[]);
    let database = with_products(database);
    database.batch(&format!(
        "GRANT SHOW VIEW ON *.* TO {SERVICE_USER}@'%';
         CREATE FUNCTION mine(a INT) RETURNS INT DETERMINISTIC RETURN a;
         CREATE TABLE secrets(id INT PRIMARY KEY);
         CREATE TABLE timed(id INT PRIMARY KEY, ti TIME);
         CREATE TABLE isam(id INT PRIMARY KEY) ENGINE = MyISAM;
         CREATE DATABASE away; CREATE TABLE away.t(id INT PRIMARY KEY);
         CREATE VIEW plain AS SELECT id FROM products;
         CREATE ALGORITHM = TEMPTABLE VIEW copied AS SELECT id FROM products;
         CREATE VIEW unseen AS SELECT id FROM products"
    ));
    let mut names = vec!["copied".to_owned()];
    for (i, (query, _)) in cases.iter().enumerate() {
        database.batch(&format!("CREATE VIEW v{i} AS {query}"));
        names.push(format!("v{i}"));
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let text = refusal(&config(&database, &names));
    let of = |name: &str| -> String {
        let about = |part: &&str| part.contains(&format!("collection `{name}`"));
        text.split("\n  ").filter(about).collect::<Vec<_>>().join("\n")
    };
    assert_contains(&of("copied"), &["is not updatable"]);
    for (i, (query, reason)) in cases.iter().enumerate() {
        let about = of(&format!("v{i}"));
        assert!(about.contains(reason), "{query}: {reason:?} is not in {about:?}");
    }
    database.batch(&format!("REVOKE SHOW VIEW ON *.* FROM {SERVICE_USER}@'%'"));
    let text = refusal(&config(&database, &["unseen"]));
    assert_contains(
        &text,
        &["may not see the text of the view `unseen`", "GRANT SELECT, SHOW VIEW"],
    );
}

#[test]
fn expressions_over_the_row_alone_are_served() {
    let database = shop(
        "CREATE TABLE shapes(id INT PRIMARY KEY, j JSON, f FLOAT, ti TIME, at DATETIME, \
           `we``ird` INT);
         INSERT INTO shapes VALUES (1, '{\"a\":1}', 0.1, '10:00', '2020-01-02 03:04:05', NULL);
         CREATE VIEW forms AS SELECT id, `we``ird`, coalesce(`we``ird`, 0) AS c, \
           CASE WHEN f > 0 THEN 'much' ELSE 'little' END AS amount, id IN (1, 3) AS listed, \
           id IS NULL OR NOT (id < 3) AS odd, -id AS m, ti, j, f, if(id > 1, 1, NULL) AS i \
           FROM shapes AS s WHERE at >= '2020-01-01' AND (id BETWEEN 1 AND 5 OR f <=> NULL);
         CREATE TABLE names(n VARCHAR(20) PRIMARY KEY, v INT);
         INSERT INTO names VALUES ('Ab', 1), ('c', 2);
         CREATE VIEW named AS SELECT v, n AS nm FROM names WHERE v < 10",
    );
    let config = config(&database, &["forms", "named"]).set("collections.named.key", "\"nm\"");
    let server = Server::start(&config);
    let mut client = server.client();
    let json = database.flavor().choose("{\"a\":1}", "{\"a\": 1}");
    assert_eq!(
        cached(&mut client, "/forms/1").text(),
        format!(
            "{{\"id\":1,\"we`ird\":null,\"c\":0,\"amount\":\"much\",\"listed\":1,\"odd\":0,\
             \"m\":-1,\"ti\":\"10:00:00\",\"j\":{json},\"f\":0.1,\"i\":null}}"
        )
    );
    database.batch("UPDATE shapes SET `we``ird` = 7 WHERE id = 1");
    await_until("the change", SOON, || client.get("/forms/1").text().contains("\"c\":7"));
    cached(&mut client, "/named/Ab");
    // Another spelling of the same key, and several.
    assert_eq!(client.get("/named/AB").text(), r#"{"v":1,"nm":"Ab"}"#);
    assert_contains(
        &client.get("/named?ids=Ab,C,x").text(),
        &["\"nm\":\"c\"", "\"missing\":[\"x\"]"],
    );
    database.batch("UPDATE names SET v = 11 WHERE n = 'ab'");
    await_status(&mut client, "/named/Ab", 404);
}
