//! Embedded rows over MariaDB: row images without the parent, cascades, TRUNCATE, types, and what
//! is refused.

use super::races::flushes;
use super::{product, serve, with_prices, with_prices_in};
use crate::alias::Users as _;
use crate::backend::maria::Maria;
use crate::shop::{assert_contains, await_body, await_status, cached, losses, refusal};
use hotrow_testkit::harness::{Client, Server};

type Prices<'a> = &'a [(&'a str, u32)];

/// Caches the products 1 and 2, runs a change, and awaits their new records.
fn change(database: &Maria, client: &mut Client, sql: &str, first: Prices<'_>, second: Prices<'_>) {
    cached(client, "/products/1");
    cached(client, "/products/2");
    database.execute(sql);
    await_body(client, "/products/1", &product(1, first));
    await_body(client, "/products/2", &product(2, second));
}

/// A session may log images without the parent.
#[test]
fn an_image_without_the_parent_is_a_change_of_all_parents() {
    let database = with_prices_in(Maria::open());
    let server = serve(&database);
    let mut client = server.client();
    let minimal = |sql: &str| format!("SET SESSION binlog_row_image = MINIMAL; {sql}");
    let us = [("us", 300), ("eu", 200)];
    let rest = [("eu", 100), ("jp", 100), ("uk", 50)];
    let insert = minimal("INSERT INTO prices VALUES (22, 2, 'us', 300)");
    let all = [("us", 300), ("eu", 100), ("jp", 100)];
    change(&database, &mut client, &insert, &all, &us);
    assert_eq!(flushes(&server), 0.0, "an insert has its parent in every image");
    for (count, sql, first, second) in [
        (
            1.0,
            "UPDATE prices SET amount = 1 WHERE id = 22",
            &all[..],
            &[("eu", 200), ("us", 1)][..],
        ),
        (2.0, "UPDATE prices SET product_id = 2 WHERE id = 12", &rest, &[us[0], us[1], ("us", 1)]),
        (3.0, "DELETE FROM prices WHERE id = 12", &rest, &[("eu", 200), ("us", 1)]),
    ] {
        change(&database, &mut client, &minimal(sql), first, second);
        assert_eq!(flushes(&server), count, "{sql}");
    }
    // Other sessions still name the parents, without a check of the catalogue between.
    let moved = "UPDATE prices SET product_id = 1 WHERE id = 22";
    change(&database, &mut client, moved, &rest, &[("eu", 200)]);
    assert_eq!(flushes(&server), 3.0);
    assert_eq!(losses(&server, None), 0.0, "{}", server.log());
    // The server's setting is allowed, and the start says what it costs.
    database.execute("SET GLOBAL binlog_row_image = MINIMAL");
    let server = serve(&database);
    server.await_log("each such change makes every record of the collection stale");
}

/// InnoDB changes and deletes children without a row in the log.
#[test]
fn rows_that_a_foreign_key_changes_are_a_change_of_all_parents() {
    let database: Maria = with_prices();
    database.execute(
        "DELETE FROM prices WHERE product_id IS NULL; \
         ALTER TABLE prices ADD FOREIGN KEY (product_id) REFERENCES products(id) \
         ON UPDATE CASCADE ON DELETE CASCADE; \
         CREATE TABLE regions(name varchar(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin \
         PRIMARY KEY); INSERT INTO regions VALUES ('eu'), ('us'), ('jp'), ('uk'); \
         ALTER TABLE prices ADD FOREIGN KEY (region) REFERENCES regions(name) \
         ON UPDATE CASCADE ON DELETE CASCADE",
    );
    let server = serve(&database);
    let mut client = server.client();
    let first = [("us", 300), ("EU", 100), ("jp", 100)];
    let rename = "UPDATE regions SET name = 'EU' WHERE name = 'eu'";
    change(&database, &mut client, rename, &first, &[("EU", 200)]);
    let delete = "DELETE FROM regions WHERE name = 'EU'";
    change(&database, &mut client, delete, &[("us", 300), ("jp", 100), ("uk", 50)], &[]);
    // MySQL logs them unless InnoDB applies the keys.
    assert!(flushes(&server) >= database.server.flavor().choose(2.0, 0.0));
    // A parent that gets another key takes its children with it.
    cached(&mut client, "/products/1");
    assert_eq!(cached(&mut client, "/products/9").status, 404);
    database.execute("UPDATE products SET id = 9, name = 'p9' WHERE id = 1");
    await_status(&mut client, "/products/1", 404);
    await_body(&mut client, "/products/9", &product(9, &[("us", 300), ("jp", 100), ("uk", 50)]));
    // And its children go with it.
    database.execute("DELETE FROM products WHERE id = 9; INSERT INTO products VALUES (9, 'p9')");
    await_body(&mut client, "/products/9", &product(9, &[]));
}

#[test]
fn a_truncation_of_the_children_is_a_change_of_all_parents() {
    let database: Maria = with_prices();
    let server = serve(&database);
    let mut client = server.client();
    change(&database, &mut client, "TRUNCATE prices", &[], &[]);
    change(&database, &mut client, "INSERT INTO prices VALUES (1, 2, 'eu', 4)", &[], &[("eu", 4)]);
    // Another table under the name.
    let other = "DROP TABLE prices; CREATE TABLE prices(id integer PRIMARY KEY, \
                 product_id integer, region varchar(9), amount integer); \
                 INSERT INTO prices VALUES (1, 2, 'us', 5)";
    change(&database, &mut client, other, &[], &[("us", 5)]);
    change(&database, &mut client, "UPDATE prices SET amount = 6", &[], &[("us", 6)]);
    let swap = "CREATE TABLE blank LIKE prices; RENAME TABLE prices TO old, blank TO prices";
    change(&database, &mut client, swap, &[], &[]);
}

/// A table may refer to itself: a change is one of its own record and of its parent's.
#[test]
fn a_table_is_embedded_in_itself() {
    let database = Maria::open();
    database.execute(
        "CREATE TABLE nodes(id integer PRIMARY KEY, parent integer, name varchar(9), \
         INDEX (parent)); INSERT INTO nodes VALUES (1, NULL, 'a'), (2, 1, 'b'), (3, 1, 'c')",
    );
    let server = Server::start(&database.service().with(&[
        ("collections.nodes.columns", r#"["name"]"#),
        ("collections.nodes.embed.nodes.on", "\"parent\""),
        ("collections.nodes.embed.nodes.columns", r#"["name"]"#),
    ]));
    let mut client = server.client();
    let node = |name: &str, children: &[&str]| {
        let children: Vec<String> =
            children.iter().map(|name| format!(r#"{{"name":"{name}"}}"#)).collect();
        format!(r#"{{"name":"{name}","nodes":[{}]}}"#, children.join(","))
    };
    assert_eq!(cached(&mut client, "/nodes/1").text(), node("a", &["b", "c"]));
    assert_eq!(cached(&mut client, "/nodes/2").text(), node("b", &[]));
    database.execute("UPDATE nodes SET name = 'd' WHERE id = 2");
    await_body(&mut client, "/nodes/1", &node("a", &["d", "c"]));
    await_body(&mut client, "/nodes/2", &node("d", &[]));
    cached(&mut client, "/nodes/1");
    cached(&mut client, "/nodes/2");
    database.execute("UPDATE nodes SET parent = 2 WHERE id = 3");
    await_body(&mut client, "/nodes/1", &node("a", &["d"]));
    await_body(&mut client, "/nodes/2", &node("d", &["c"]));
    assert_eq!(flushes(&server), 0.0);
}

#[test]
fn texts_that_are_compared_byte_by_byte_refer_to_parents() {
    const NAME: &str = "varchar(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin";
    let database = Maria::open();
    database.execute(&format!(
        "CREATE TABLE users(name {NAME} PRIMARY KEY); INSERT INTO users VALUES ('Ann'), ('Zoë '); \
         CREATE TABLE notes(id integer PRIMARY KEY, author {NAME}, n integer, INDEX (author)); \
         INSERT INTO notes VALUES (1, 'Ann', 5)"
    ));
    let config = database.service().with(&[
        ("collections.users.key", "\"name\""),
        ("collections.users.embed.notes.on", "\"author\""),
        ("collections.users.embed.notes.columns", r#"["n"]"#),
    ]);
    let server = Server::start(&config);
    let mut client = server.client();
    let (ann, zoe) = ("/users/Ann", "/users/Zo%C3%AB%20");
    assert_eq!(cached(&mut client, ann).text(), r#"{"name":"Ann","notes":[{"n":5}]}"#);
    assert_eq!(cached(&mut client, zoe).text(), r#"{"name":"Zoë ","notes":[]}"#);
    database.execute("UPDATE notes SET author = 'Zoë ', n = 6");
    await_body(&mut client, ann, r#"{"name":"Ann","notes":[]}"#);
    await_body(&mut client, zoe, r#"{"name":"Zoë ","notes":[{"n":6}]}"#);
    cached(&mut client, zoe);
    for other in ["ann", "Ann ", "Zoë"] {
        database.execute(&format!("UPDATE notes SET author = '{other}'"));
        await_body(&mut client, zoe, r#"{"name":"Zoë ","notes":[]}"#);
        assert_eq!(cached(&mut client, ann).text(), r#"{"name":"Ann","notes":[]}"#);
    }
    assert_eq!(flushes(&server), 0.0);
    // A collation that pads, or another one than the parent's, finds other children than the feed.
    database.execute("ALTER TABLE notes MODIFY author varchar(40) COLLATE utf8mb4_bin");
    await_status(&mut client, ann, 503);
    let rule = "collation that compares bytes and does not pad";
    assert_contains(&refusal(&config), &["`users.embed.notes`: `on` = `author`", rule]);
}
