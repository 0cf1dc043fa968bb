//! Records that contain rows of another table, over SQLite, PostgreSQL and MariaDB.
//!
//! Reading order: this (tables, and the tests that run over each engine), then [`access`] (grants,
//! tenants, aliases, the Redis protocol, followers), [`races`] (changes during reads), [`postgres`]
//! and [`mariadb`] (what one engine alone logs, types or refuses), [`checked`] (writers and readers
//! at once) and `planted` (faults that must be found).

mod access;
mod checked;
mod mariadb;
#[cfg(feature = "failpoints")]
mod planted;
mod postgres;
mod races;

use crate::alias::Users;
use crate::backend::maria::Maria;
use crate::backend::postgres::Postgres;
use crate::shop::{assert_contains, await_body, await_status, cached, refusal};
use hotrow_testkit::harness::{Config, Database, SOON, Server, await_until};

/// Opens a database with the products 1, 2 and 3, of which 1 has four prices and 2 one.
fn with_prices<U: Users>() -> U {
    with_prices_in(U::shared())
}

/// Creates them in this database.
fn with_prices_in<U: Users>(database: U) -> U {
    let text = U::TEXT;
    database.execute(&format!("CREATE TABLE products(id integer PRIMARY KEY, name {text} UNIQUE)"));
    database.execute(&format!(
        "CREATE TABLE prices(id integer PRIMARY KEY, product_id integer, region {text}, \
         amount integer)"
    ));
    database.execute("INSERT INTO products VALUES (1, 'p1'), (2, 'p2'), (3, 'p3')");
    database.execute(
        "INSERT INTO prices VALUES (11, 1, 'eu', 100), (12, 1, 'us', 300), (13, 1, 'jp', 100), \
         (14, 1, 'uk', 50), (21, 2, 'eu', 200), (31, NULL, 'eu', 1)",
    );
    database
}

/// How the log of an engine has the old rows of children.
trait LogsOldRows {
    /// Names the whole old row in the log, where that is a setting of the table.
    const OLD_ROWS_SQL: Option<&str>;
    /// Begins a session that does not name it, where that is a setting of the session.
    const BLIND_SESSION_SQL: &str = "";
    /// A statement that empties a table, and whether it can be part of a transaction.
    const EMPTY_SQL: (&str, bool) = ("DELETE FROM prices", true);
}

impl LogsOldRows for Database {
    const OLD_ROWS_SQL: Option<&str> = None;
}

impl LogsOldRows for Postgres {
    const OLD_ROWS_SQL: Option<&str> = Some("ALTER TABLE prices REPLICA IDENTITY FULL");
    const EMPTY_SQL: (&str, bool) = ("TRUNCATE prices", true);
}

impl LogsOldRows for Maria {
    const OLD_ROWS_SQL: Option<&str> = None;
    const BLIND_SESSION_SQL: &str = "SET SESSION binlog_row_image = MINIMAL;";
    const EMPTY_SQL: (&str, bool) = ("TRUNCATE prices", false);
}

/// Opens the same, with the old rows of children in the log.
fn with_logged_prices<U: Users + LogsOldRows>() -> U {
    logging_old_rows(with_prices())
}

/// Names the whole old row in the log of this database.
fn logging_old_rows<U: Users + LogsOldRows>(database: U) -> U {
    if let Some(sql) = U::OLD_ROWS_SQL {
        database.execute(sql);
    }
    database
}

/// Configuration with up to three prices in each product, the highest first, and every client
/// option enabled.
fn embedding(config: Config) -> Config {
    config.with(&[
        ("collections.products.allow_no_cache", "true"),
        ("collections.products.allow_min_position", "true"),
        ("collections.products.allow_fields", "true"),
        ("collections.products.embed.prices.on", "\"product_id\""),
        ("collections.products.embed.prices.order_by", "\"amount desc\""),
        ("collections.products.embed.prices.columns", r#"["region", "amount"]"#),
        ("collections.products.embed.prices.limit", "3"),
    ])
}

fn serve<U: Users>(database: &U) -> Server {
    Server::start(&embedding(database.service()))
}

/// Returns the JSON of a product with these prices.
fn product(id: u32, prices: &[(&str, u32)]) -> String {
    let prices: Vec<String> = prices
        .iter()
        .map(|(region, amount)| format!(r#"{{"region":"{region}","amount":{amount}}}"#))
        .collect();
    format!(r#"{{"id":{id},"name":"p{id}","prices":[{}]}}"#, prices.join(","))
}

const FIRST: [(&str, u32); 3] = [("us", 300), ("eu", 100), ("jp", 100)];

fn a_record_contains_its_children_in_order<U: Users>() {
    let database = with_prices::<U>();
    let server = serve(&database);
    let mut client = server.client();
    // Of equal amounts the smaller id is the first.
    let first = cached(&mut client, "/products/1");
    assert_eq!(first.text(), product(1, &FIRST));
    assert_eq!(cached(&mut client, "/products/2").text(), product(2, &[("eu", 200)]));
    assert_eq!(cached(&mut client, "/products/3").text(), product(3, &[]));
    assert_eq!(cached(&mut client, "/products/4").status, 404);
    let tag = first.header("etag").expect("a tag");
    assert_eq!(client.get_with("/products/1", &[("If-None-Match", tag)]).status, 304);
    let fresh = client.get_with("/products/1", &[("Cache-Control", "no-cache")]);
    assert_eq!(fresh.text(), product(1, &FIRST));
    let fields = client.get("/products/3?fields=prices,id");
    assert_eq!(fields.text(), r#"{"id":3,"prices":[]}"#);
    assert_eq!(client.get("/products/1?fields=name").text(), r#"{"name":"p1"}"#);
}

fn a_batch_reads_records_with_their_children_in_one_query<U: Users>() {
    let database = with_prices::<U>();
    let server = serve(&database);
    let mut client = server.client();
    let before = server.queries();
    for from in ["the database", "memory"] {
        let answer = client.get("/products?ids=3,9,1,2");
        let expected = format!(
            r#"{{"items":{{"3":{},"1":{},"2":{}}},"missing":["9"]}}"#,
            product(3, &[]),
            product(1, &FIRST),
            product(2, &[("eu", 200)]),
        );
        assert_eq!((answer.status, answer.text()), (200, expected), "from {from}");
    }
    assert_eq!(server.queries() - before, 1);
}

fn a_change_of_a_child_is_one_of_its_parents<U: Users + LogsOldRows>() {
    let database = with_logged_prices::<U>();
    let server = serve(&database);
    let mut client = server.client();
    let mut change = |sql: &str, first: &[(&str, u32)], second: &[(&str, u32)]| {
        cached(&mut client, "/products/1");
        cached(&mut client, "/products/2");
        database.execute(sql);
        await_body(&mut client, "/products/1", &product(1, first));
        await_body(&mut client, "/products/2", &product(2, second));
    };
    let eu = [("eu", 200)];
    let mut first = FIRST;
    first[0].1 = 250;
    change("UPDATE prices SET amount = 250 WHERE id = 12", &first, &eu);
    change(
        "UPDATE prices SET product_id = 2 WHERE id = 12",
        &[("eu", 100), ("jp", 100), ("uk", 50)],
        &[("us", 250), ("eu", 200)],
    );
    change(
        "DELETE FROM prices WHERE id = 21",
        &[("eu", 100), ("jp", 100), ("uk", 50)],
        &[("us", 250)],
    );
    change(
        "UPDATE prices SET product_id = NULL WHERE id = 12",
        &[("eu", 100), ("jp", 100), ("uk", 50)],
        &[],
    );
    change(
        "UPDATE prices SET product_id = 2 WHERE id = 31",
        &[("eu", 100), ("jp", 100), ("uk", 50)],
        &[("eu", 1)],
    );
    // The child's own key, by which it is ordered last.
    change(
        "UPDATE prices SET id = 9 WHERE id = 13",
        &[("jp", 100), ("eu", 100), ("uk", 50)],
        &[("eu", 1)],
    );
    change(
        "INSERT INTO prices VALUES (22, 2, 'ch', 7), (15, 1, 'ch', 8)",
        &[("jp", 100), ("eu", 100), ("uk", 50)],
        &[("ch", 7), ("eu", 1)],
    );
    change("DELETE FROM prices WHERE product_id = 1", &[], &[("ch", 7), ("eu", 1)]);
    let flushes = server.metrics().sum_or_zero("hotrow_feed_flushes_total", &[]);
    assert_eq!(flushes, 0.0, "each change named its parents");
}

fn a_child_beyond_the_limit_takes_a_free_place<U: Users + LogsOldRows>() {
    let database = with_logged_prices::<U>();
    let server = serve(&database);
    let mut client = server.client();
    assert_eq!(cached(&mut client, "/products/1").text(), product(1, &FIRST));
    // 14 is beyond the limit: it moves to the front.
    database.execute("UPDATE prices SET amount = 400 WHERE id = 14");
    let moved = [("uk", 400), ("us", 300), ("eu", 100)];
    await_body(&mut client, "/products/1", &product(1, &moved));
    cached(&mut client, "/products/1");
    database.execute("DELETE FROM prices WHERE id = 12");
    let last = [("uk", 400), ("eu", 100), ("jp", 100)];
    await_body(&mut client, "/products/1", &product(1, &last));
}

fn the_parent_alone_decides_whether_there_is_a_record<U: Users + LogsOldRows>() {
    let database = with_logged_prices::<U>();
    let server = serve(&database);
    let mut client = server.client();
    assert_eq!(cached(&mut client, "/products/4").status, 404);
    database.execute("INSERT INTO prices VALUES (41, 4, 'eu', 5)");
    database.execute("UPDATE products SET name = 'q' WHERE id = 3");
    await_until("the change", SOON, || client.get("/products/3").text().contains("\"q\""));
    assert_eq!(client.get("/products/4").status, 404, "it has a child, and is none");
    cached(&mut client, "/products/4");
    database.execute("INSERT INTO products VALUES (4, 'p4')");
    await_body(&mut client, "/products/4", &product(4, &[("eu", 5)]));
    cached(&mut client, "/products/4");
    database.execute("DELETE FROM products WHERE id = 4");
    await_status(&mut client, "/products/4", 404);
}

/// The feed is not waited for: the position demands the change that it has not delivered.
fn a_writer_reads_its_own_children<U: Users + LogsOldRows>() {
    let database = with_logged_prices::<U>();
    let server = serve(&database);
    let mut client = server.client();
    cached(&mut client, "/products/2");
    database.execute("UPDATE prices SET amount = 7 WHERE id = 21");
    let other = client.get_with("/products/1", &[("Cache-Control", "no-cache")]);
    let position = other.header("hotrow-position").expect("a position").to_owned();
    let answer = client.get_with("/products/2", &[("Hotrow-Min-Position", &position)]);
    assert_eq!(answer.text(), product(2, &[("eu", 7)]));
}

fn another_shape_of_the_children_is_a_change_of_all_parents<U: Users + LogsOldRows>() {
    let database = with_logged_prices::<U>();
    let config = embedding(database.service());
    let config = config.set("collections.products.embed.prices.columns", r#"["amount", "note"]"#);
    assert_contains(&refusal(&config), &["products.embed.prices", "`note`", "`columns`"]);
    database.execute("ALTER TABLE prices ADD COLUMN note integer DEFAULT 5");
    let server = Server::start(&config);
    let mut client = server.client();
    let five = cached(&mut client, "/products/2").text();
    assert_eq!(five, r#"{"id":2,"name":"p2","prices":[{"amount":200,"note":5}]}"#);
    database.execute("ALTER TABLE prices RENAME COLUMN note TO remark");
    await_status(&mut client, "/products/2", 503);
    database.execute("ALTER TABLE prices RENAME COLUMN remark TO note");
    await_body(&mut client, "/products/2", &five);
}

/// All columns of a child are served without a list of them.
fn a_new_column_of_the_children_appears<U: Users + LogsOldRows>() {
    let database = with_logged_prices::<U>();
    let config = database.service().set("collections.products.embed.all.on", "\"product_id\"");
    let config = config.set("collections.products.embed.all.table", "\"prices\"");
    let server = Server::start(&config);
    let mut client = server.client();
    let text = cached(&mut client, "/products/2").text();
    let child = r#"{"id":21,"product_id":2,"region":"eu","amount":200}"#;
    assert_eq!(text, format!(r#"{{"id":2,"name":"p2","all":[{child}]}}"#));
    database.execute("ALTER TABLE prices ADD COLUMN note integer DEFAULT 5");
    let child = child.replace('}', r#","note":5}"#);
    await_body(&mut client, "/products/2", &format!(r#"{{"id":2,"name":"p2","all":[{child}]}}"#));
}

fn tables_that_cannot_be_embedded_are_refused<U: Users>() {
    let database = with_prices::<U>();
    database.execute("CREATE TABLE bare(product_id integer, n integer)");
    database
        .execute(&format!("CREATE TABLE texts(id integer PRIMARY KEY, product_id {})", U::TEXT));
    let refused = |member: &str, settings: &[(&str, &str)], parts: &[&str]| {
        let path = format!("collections.products.embed.{member}");
        let config = settings.iter().fold(database.service(), |config, (key, value)| {
            config.set(&format!("{path}.{key}"), value)
        });
        assert_contains(&refusal(&config), parts);
    };
    let on = ("on", "\"product_id\"");
    refused("nowhere", &[on], &["products.embed.nowhere", "no table `nowhere`"]);
    refused("prices", &[("on", "\"product\"")], &["no column `product`"]);
    refused("prices", &[on, ("order_by", "\"price\"")], &["no column `price`", "order_by"]);
    refused("bare", &[on], &["products.embed.bare", "no primary key"]);
    refused("texts", &[on], &["products.embed.texts", "product_id"]);
    refused("name", &[on, ("table", "\"prices\"")], &["`embed.name`", "name of a column"]);
}

/// A key has a setting for its type, and a column that refers to one has none.
#[test]
fn a_reference_of_another_type_is_refused_with_the_type_that_it_needs() {
    let database: Database = with_prices();
    database.execute("CREATE TABLE texts(id integer PRIMARY KEY, product_id text)");
    let config = database.service().set("collections.products.embed.texts.on", "\"product_id\"");
    let text = refusal(&config);
    let rule = "`on` names `product_id`, which is declared `TEXT`; the keys of the collection \
                (`id`) are integers";
    assert_contains(&text, &["collection `products.embed.texts`", rule, "declare both alike"]);
    assert!(!text.contains("key_type"), "{text}");
}

/// Makes the tests of these functions for one engine.
macro_rules! embed_tests {
    ($engine:ident, $database:ty) => {
        mod $engine {
            use crate::embed::{self, *};

            tests! {
                $database:
                embed::a_record_contains_its_children_in_order,
                embed::a_batch_reads_records_with_their_children_in_one_query,
                embed::a_change_of_a_child_is_one_of_its_parents,
                embed::a_child_beyond_the_limit_takes_a_free_place,
                embed::the_parent_alone_decides_whether_there_is_a_record,
                embed::a_writer_reads_its_own_children,
                embed::another_shape_of_the_children_is_a_change_of_all_parents,
                embed::a_new_column_of_the_children_appears,
                embed::tables_that_cannot_be_embedded_are_refused,
            }
        }
    };
}

embed_tests!(over_sqlite, Database);
embed_tests!(over_postgresql, Postgres);
embed_tests!(over_mariadb, Maria);
