//! Views over one table: which are served, and how the table's changes reach their records.

use crate::postgres::shop::Shop;
use crate::shop::{assert_contains, await_body, await_status, cached, losses, refusal};
use hotrow_testkit::harness::{SOON, await_until};

const VIEW: &str = "CREATE VIEW offers AS SELECT upper(name) AS title, id AS nr, price * 2 AS twice \
    FROM products WHERE price > 150 AND name <> 'p3'";

fn shop(sql: &str) -> Shop {
    let shop = Shop::shared_with_products();
    shop.server.batch(sql);
    shop
}

#[test]
fn a_change_of_the_table_is_one_of_the_view() {
    let shop = shop(VIEW);
    let config = shop.config_of(&["offers"]).set("collections.offers.key", "\"nr\"");
    let server = hotrow_testkit::harness::Server::start(&config);
    let mut client = server.client();
    let body = cached(&mut client, "/offers/2").text();
    assert_eq!(body, r#"{"title":"P2","nr":2,"twice":400}"#);
    for hidden in ["/offers/1", "/offers/3"] {
        assert_eq!(cached(&mut client, hidden).status, 404, "{hidden}");
    }
    shop.server.batch("UPDATE products SET price = 300 WHERE id = 2");
    await_body(&mut client, "/offers/2", r#"{"title":"P2","nr":2,"twice":600}"#);
    // Rows enter and leave by their own columns.
    shop.server.batch("UPDATE products SET price = 160 WHERE id = 1");
    await_body(&mut client, "/offers/1", r#"{"title":"P1","nr":1,"twice":320}"#);
    cached(&mut client, "/offers/2");
    shop.server.batch("UPDATE products SET price = 0 WHERE id = 2");
    await_status(&mut client, "/offers/2", 404);
    shop.server.batch("UPDATE products SET name = 'q' WHERE id = 3");
    await_status(&mut client, "/offers/3", 200);
    cached(&mut client, "/offers/4");
    shop.server.batch("UPDATE products SET id = 4000 WHERE id = 4");
    await_status(&mut client, "/offers/4", 404);
    await_status(&mut client, "/offers/4000", 200);
    cached(&mut client, "/offers/5");
    shop.server.batch("TRUNCATE products");
    await_status(&mut client, "/offers/5", 404);
    assert_eq!(losses(&server, None), 0.0);
}

#[test]
fn table_and_view_are_served_side_by_side_and_through_a_partitioned_table() {
    let shop = shop(
        "CREATE TABLE logs(id int PRIMARY KEY, v int) PARTITION BY RANGE (id);
         CREATE TABLE logs_1 PARTITION OF logs FOR VALUES FROM (0) TO (10);
         INSERT INTO logs VALUES (1, 1); CREATE VIEW recent AS SELECT id, v FROM logs WHERE v > 0;
         CREATE VIEW cheap AS SELECT * FROM products WHERE price < 1000",
    );
    let server = shop.serve(&["products", "cheap", "recent"]);
    let mut client = server.client();
    for path in ["/products/1", "/cheap/1", "/recent/1"] {
        assert_eq!(cached(&mut client, path).status, 200, "{path}");
    }
    shop.server
        .batch("UPDATE products SET price = 2000 WHERE id = 1; UPDATE logs SET v = 2 WHERE id = 1");
    await_body(&mut client, "/products/1", r#"{"id":1,"name":"p1","price":2000}"#);
    await_status(&mut client, "/cheap/1", 404);
    await_body(&mut client, "/recent/1", r#"{"id":1,"v":2}"#);
}

#[test]
fn another_query_of_the_view_or_column_of_the_table_is_a_change_of_shape() {
    let shop = shop("CREATE VIEW cheap AS SELECT id, name, price FROM products WHERE price < 1000");
    let server = shop.serve(&["cheap"]);
    let mut client = server.client();
    cached(&mut client, "/cheap/1");
    cached(&mut client, "/cheap/2");
    shop.server.batch(
        "CREATE OR REPLACE VIEW cheap AS SELECT id, name, price + 1 AS price FROM products \
         WHERE price < 150",
    );
    await_body(&mut client, "/cheap/1", r#"{"id":1,"name":"p1","price":101}"#);
    await_status(&mut client, "/cheap/2", 404);
    cached(&mut client, "/cheap/1");
    // The view passes the renamed key through under its old name.
    shop.server.batch("ALTER TABLE products RENAME id TO uid");
    shop.server.batch("UPDATE products SET name = 'n' WHERE uid = 1");
    await_body(&mut client, "/cheap/1", r#"{"id":1,"name":"n","price":101}"#);
    cached(&mut client, "/cheap/1");
    // A query that depends on more than the row is not served, and the old records are not either.
    shop.server.batch(
        "CREATE OR REPLACE VIEW cheap AS SELECT uid AS id, name, price + 1 AS price FROM products \
         WHERE price < (SELECT max(price) FROM products)",
    );
    await_until("the view to be refused", SOON, || client.get("/cheap/1").status >= 500);
    shop.server.batch(
        "CREATE OR REPLACE VIEW cheap AS SELECT uid AS id, name, price FROM products \
         WHERE price < 1000",
    );
    await_body(&mut client, "/cheap/1", r#"{"id":1,"name":"n","price":100}"#);
}

#[test]
fn a_view_whose_row_depends_on_more_than_one_row_is_refused_with_the_reason() {
    let one_table = "does not select from one table alone";
    let cases = [
        ("SELECT DISTINCT id, name FROM products", one_table),
        ("SELECT id, count(*) AS n FROM products GROUP BY id", one_table),
        ("SELECT id FROM products UNION ALL SELECT id FROM products", one_table),
        ("SELECT p.id FROM products p JOIN products q ON p.id = q.id", one_table),
        ("SELECT id FROM products LIMIT 5", one_table),
        ("WITH w AS (SELECT 1) SELECT id FROM products", one_table),
        ("SELECT id, row_number() OVER () AS n FROM products", one_table),
        ("SELECT 1 AS id", one_table),
        ("SELECT id FROM (SELECT id FROM products) AS s", one_table),
        ("SELECT id, generate_series(1, 2) AS n FROM products", one_table),
        ("SELECT id, (SELECT max(price) FROM products) AS m FROM products", "a subquery"),
        ("SELECT id FROM products WHERE EXISTS (SELECT FROM secrets)", one_table),
        ("SELECT id, now() AS at FROM products", "now"),
        ("SELECT id, current_date AS at FROM products", "SQLVALUEFUNCTION"),
        ("SELECT id, random() AS r FROM products", "random"),
        ("SELECT id, price::text AS p FROM products", "COERCEVIAIO"),
        ("SELECT id, mine(price) AS p FROM products", "mine"),
        ("SELECT id, ctid FROM products", "a system column"),
        ("SELECT id, products AS whole FROM products", "a whole row"),
        ("SELECT id + 0 AS id, name FROM products", "computes its key column `id`"),
        ("SELECT price AS id FROM products", "(price) is not unique"),
        ("SELECT id FROM plain", "selects from another view"),
        ("SELECT id FROM secrets", "row-level security"),
        ("SELECT id FROM stored", one_table),
    ];
    let shop = shop(
        "CREATE FUNCTION mine(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT $1';
         CREATE TABLE secrets(id int PRIMARY KEY); ALTER TABLE secrets ENABLE ROW LEVEL SECURITY;
         CREATE VIEW plain AS SELECT id FROM products;
         CREATE MATERIALIZED VIEW stored AS SELECT id FROM products;
         CREATE VIEW guarded WITH (security_barrier) AS SELECT id FROM products;
         CREATE VIEW ruled AS SELECT id FROM products;
         CREATE RULE r AS ON DELETE TO ruled DO INSTEAD NOTHING",
    );
    let mut names = vec!["guarded".to_owned(), "ruled".to_owned()];
    for (i, (query, _)) in cases.iter().enumerate() {
        shop.server.batch(&format!("CREATE VIEW v{i} AS {query}"));
        names.push(format!("v{i}"));
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let text = refusal(&shop.config_of(&names));
    let of = |name: &str| -> String {
        let about = |part: &&str| part.contains(&format!("collection `{name}`"));
        text.split("\n  ").filter(about).collect::<Vec<_>>().join("\n")
    };
    assert_contains(&of("guarded"), &["security barrier"]);
    assert_contains(&of("ruled"), &["a rule"]);
    for (i, (query, reason)) in cases.iter().enumerate() {
        let about = of(&format!("v{i}"));
        assert!(about.contains(reason), "{query}: {reason:?} is not in {about:?}");
    }
}

#[test]
fn expressions_over_the_row_alone_are_served() {
    let shop = shop(
        "CREATE VIEW forms AS SELECT id, name AS \"we}ird {SUBLINK (now)\", coalesce(price, 0) AS p, \
           CASE WHEN price > 5 THEN 'much' ELSE 'little' END AS amount, price IN (100, 300) AS listed, \
           price IS NULL OR NOT (price < 3) AS odd, name || '!' AS loud, \
           price IS DISTINCT FROM 7 AS other, ARRAY[price, 1] AS pair FROM products",
    );
    let server = shop.serve(&["forms"]);
    let mut client = server.client();
    let expected = |price: u32, listed: bool| {
        format!(
            "{{\"id\":1,\"we}}ird {{SUBLINK (now)\":\"p1\",\"p\":{price},\"amount\":\"much\",\
             \"listed\":{listed},\"odd\":true,\"loud\":\"p1!\",\"other\":true,\"pair\":[{price},1]}}"
        )
    };
    assert_eq!(cached(&mut client, "/forms/1").text(), expected(100, true));
    shop.server.batch("UPDATE products SET price = 200 WHERE id = 1");
    await_body(&mut client, "/forms/1", &expected(200, false));
}
