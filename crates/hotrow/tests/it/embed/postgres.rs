//! Embedded rows over PostgreSQL: replica identities, types, and what is refused.

use super::races::flushes;
use super::{LogsOldRows, embedding, product, serve, with_logged_prices, with_prices};
use crate::alias::Users as _;
use crate::backend::postgres::Postgres;
use crate::shop::{assert_contains, await_body, await_status, cached, losses, refusal};
use hotrow_testkit::harness::{Config, SOON, Server, await_until};

#[test]
fn without_old_rows_in_the_log_an_update_is_a_change_of_all_parents() {
    let database: Postgres = with_prices();
    let server = serve(&database);
    server.await_log("REPLICA IDENTITY FULL");
    let mut client = server.client();
    cached(&mut client, "/products/2");
    // An insert has no parent before.
    database.execute("INSERT INTO prices VALUES (22, 2, 'us', 300)");
    await_body(&mut client, "/products/2", &product(2, &[("us", 300), ("eu", 200)]));
    assert_eq!(flushes(&server), 0.0);
    let mut changes = 0.0;
    for (sql, prices) in [
        ("UPDATE prices SET amount = 1 WHERE id = 22", &[("eu", 200), ("us", 1)][..]),
        ("UPDATE prices SET product_id = 3 WHERE id = 22", &[("eu", 200)]),
        ("DELETE FROM prices WHERE id = 21", &[]),
    ] {
        cached(&mut client, "/products/2");
        cached(&mut client, "/products/3");
        database.execute(sql);
        await_body(&mut client, "/products/2", &product(2, prices));
        changes += 1.0;
        assert_eq!(flushes(&server), changes, "{sql}");
    }
    await_body(&mut client, "/products/3", &product(3, &[("us", 1)]));
    assert_eq!(losses(&server, None), 0.0, "{}", server.log());
    // The setting is a change of the children's identity: of all parents, once by the stream and
    // once by the catalogue. From then on the feed is precise.
    database.execute(Postgres::OLD_ROWS_SQL.expect("a setting"));
    let mut amount = 1;
    await_until("a change without a flush", SOON, || {
        let before = flushes(&server);
        amount += 1;
        cached(&mut client, "/products/3");
        database.execute(&format!("UPDATE prices SET amount = {amount} WHERE id = 22"));
        await_body(&mut client, "/products/3", &product(3, &[("us", amount)]));
        flushes(&server) == before
    });
}

#[test]
fn a_parent_in_the_childs_key_is_always_in_the_log() {
    let database = Postgres::shared();
    database.execute(
        "CREATE TABLE products(id integer PRIMARY KEY, name text); \
         INSERT INTO products VALUES (1, 'p1'), (2, 'p2'); \
         CREATE TABLE prices(product_id integer, region text, amount integer, \
         PRIMARY KEY (product_id, region)); INSERT INTO prices VALUES (1, 'eu', 100)",
    );
    let server = serve(&database);
    let mut client = server.client();
    for (sql, first, second) in [
        ("UPDATE prices SET amount = 5", &[("eu", 5)][..], &[][..]),
        ("UPDATE prices SET product_id = 2", &[], &[("eu", 5)]),
        ("UPDATE prices SET region = 'us'", &[], &[("us", 5)]),
        ("DELETE FROM prices", &[], &[]),
    ] {
        cached(&mut client, "/products/1");
        cached(&mut client, "/products/2");
        database.execute(sql);
        await_body(&mut client, "/products/1", &product(1, first));
        await_body(&mut client, "/products/2", &product(2, second));
    }
    assert_eq!(flushes(&server), 0.0);
    assert!(!server.log().contains("REPLICA IDENTITY FULL"), "{}", server.log());
}

#[test]
fn a_truncation_of_the_children_is_a_change_of_all_parents() {
    let database: Postgres = with_logged_prices();
    let server = serve(&database);
    let mut client = server.client();
    cached(&mut client, "/products/1");
    cached(&mut client, "/products/2");
    database.execute("TRUNCATE prices");
    await_body(&mut client, "/products/1", &product(1, &[]));
    await_body(&mut client, "/products/2", &product(2, &[]));
    database.execute("INSERT INTO prices VALUES (1, 2, 'eu', 4)");
    await_body(&mut client, "/products/2", &product(2, &[("eu", 4)]));
    // Another table under the name.
    database.execute(
        "BEGIN; DROP TABLE prices; CREATE TABLE prices(id integer PRIMARY KEY, \
         product_id integer, region text, amount integer); \
         INSERT INTO prices VALUES (1, 2, 'us', 5); COMMIT",
    );
    await_body(&mut client, "/products/2", &product(2, &[("us", 5)]));
    cached(&mut client, "/products/2");
    database.execute("UPDATE prices SET amount = 6");
    await_body(&mut client, "/products/2", &product(2, &[("us", 6)]));
}

#[test]
fn partitions_of_children_are_followed_with_their_own_identities() {
    let database = Postgres::shared();
    database.execute(
        "CREATE TABLE products(id integer PRIMARY KEY, name text); \
         INSERT INTO products VALUES (1, 'p1'), (2, 'p2'); \
         CREATE TABLE prices(id integer, product_id integer, region text, amount integer, \
         PRIMARY KEY (id, region)) PARTITION BY LIST (region); \
         CREATE TABLE prices_eu PARTITION OF prices FOR VALUES IN ('eu'); \
         CREATE TABLE prices_us PARTITION OF prices FOR VALUES IN ('us'); \
         INSERT INTO prices VALUES (1, 1, 'eu', 100), (2, 1, 'us', 50)",
    );
    let server = serve(&database);
    let mut client = server.client();
    for (sql, first, second) in [
        ("UPDATE prices SET region = 'eu' WHERE id = 2", &[("eu", 100), ("eu", 50)][..], &[][..]),
        ("UPDATE prices SET product_id = 2 WHERE id = 1", &[("eu", 50)], &[("eu", 100)]),
        ("TRUNCATE prices_eu", &[], &[]),
        ("INSERT INTO prices VALUES (3, 2, 'us', 9)", &[], &[("us", 9)]),
        ("ALTER TABLE prices DETACH PARTITION prices_us", &[], &[]),
    ] {
        cached(&mut client, "/products/1");
        cached(&mut client, "/products/2");
        database.execute(sql);
        await_body(&mut client, "/products/1", &product(1, first));
        await_body(&mut client, "/products/2", &product(2, second));
    }
}

#[test]
fn columns_of_children_have_the_forms_of_columns() {
    let database = Postgres::shared();
    database.execute(
        "CREATE TYPE size AS ENUM ('small', 'large'); CREATE TYPE pair AS (a integer, b text); \
         CREATE DOMAIN positive AS integer CHECK (VALUE > 0); \
         CREATE TABLE all_forms(id bytea PRIMARY KEY, t text, n numeric, ts timestamptz, j jsonb, \
         u uuid, s size, d positive, p pair, a text[], r int4range, f float8, x xml, m money, \
         b boolean)",
    );
    let values = "'one \"\\', 1.50, '2026-11-20 22:35:09Z', '{\"a\": [1, null]}', \
         '00000000-0000-0000-0000-00000000000a', 'large', 7, (1, 'x'), '{a,NULL}', '[1,5)', 'NaN', \
         '<x/>', 1, true";
    database.execute(&format!("INSERT INTO all_forms VALUES ('\\x0a', {values})"));
    database.execute("INSERT INTO all_forms(id) VALUES ('\\x0b')");
    database.execute(
        "CREATE TABLE children AS SELECT id AS parent, all_forms.* FROM all_forms; \
         ALTER TABLE children ADD PRIMARY KEY (id)",
    );
    let columns = r#"["t","n","ts","j","u","s","d","p","a","r","f","x","m","b","id"]"#;
    let config = database.service().with(&[
        ("collections.all_forms.columns", columns),
        ("collections.all_forms.embed.own.table", "\"children\""),
        ("collections.all_forms.embed.own.on", "\"id\""),
        ("collections.all_forms.embed.own.columns", columns),
    ]);
    let server = Server::start(&config);
    for id in ["0a", "0b"] {
        let text = server.get(&format!("/all_forms/{id}")).text();
        let (own, child) = text.split_once(r#","own":["#).expect("a member");
        assert_eq!(format!("{own}}}]}}"), child, "the same values, from both tables");
        assert!(text.contains(&format!(r#""id":"{id}""#)), "{text}");
    }
}

#[test]
fn texts_and_uuids_refer_to_parents_and_a_view_is_one() {
    let database = Postgres::shared();
    database.execute(
        "CREATE TABLE users(name text PRIMARY KEY, id uuid UNIQUE); \
         INSERT INTO users VALUES ('Ann', '00000000-0000-0000-0000-00000000000a'), \
         ('Zoë, \"Z\"', '00000000-0000-0000-0000-00000000000b'); \
         CREATE TABLE notes(id int PRIMARY KEY, author varchar(40) COLLATE \"C\", of_id uuid, \
         n int); ALTER TABLE notes REPLICA IDENTITY FULL; \
         CREATE INDEX ON notes(author); ALTER TABLE users REPLICA IDENTITY FULL; \
         INSERT INTO notes VALUES (1, 'Ann', '00000000-0000-0000-0000-00000000000b', 5); \
         CREATE VIEW people AS SELECT id, lower(name) AS shown FROM users",
    );
    let config = database.service().with(&[
        ("collections.users.key", "\"name\""),
        ("collections.users.columns", r#"["name"]"#),
        ("collections.users.embed.notes.on", "\"author\""),
        ("collections.users.embed.notes.columns", r#"["n"]"#),
        ("collections.people.embed.notes.on", "\"of_id\""),
        ("collections.people.embed.notes.columns", r#"["n"]"#),
    ]);
    let server = Server::start(&config);
    let mut client = server.client();
    let (ann, zoe) = ("/users/Ann", "/users/Zo%C3%AB%2C%20%22Z%22");
    let person = "/people/00000000-0000-0000-0000-00000000000b";
    assert_eq!(cached(&mut client, ann).text(), r#"{"name":"Ann","notes":[{"n":5}]}"#);
    assert_eq!(cached(&mut client, zoe).text(), r#"{"name":"Zoë, \"Z\"","notes":[]}"#);
    let id = r#""id":"00000000-0000-0000-0000-00000000000b","shown":"zoë, \"z\"""#;
    assert_eq!(cached(&mut client, person).text(), format!(r#"{{{id},"notes":[{{"n":5}}]}}"#));
    database.execute("UPDATE notes SET author = 'Zoë, \"Z\"', n = 6");
    await_body(&mut client, ann, r#"{"name":"Ann","notes":[]}"#);
    await_body(&mut client, zoe, r#"{"name":"Zoë, \"Z\"","notes":[{"n":6}]}"#);
    await_body(&mut client, person, &format!(r#"{{{id},"notes":[{{"n":6}}]}}"#));
    // A varchar has no spelling of the key with another case.
    database.execute("UPDATE notes SET author = 'ann'");
    await_body(&mut client, zoe, r#"{"name":"Zoë, \"Z\"","notes":[]}"#);
    assert_eq!(cached(&mut client, ann).text(), r#"{"name":"Ann","notes":[]}"#);
    assert_eq!(flushes(&server), 0.0);
}

#[test]
fn unfit_references_and_tables_are_refused_with_the_remedy() {
    let database: Postgres = with_prices();
    database.execute(
        "CREATE TABLE mute(id int PRIMARY KEY, product_id int); \
         ALTER TABLE mute REPLICA IDENTITY NOTHING; \
         CREATE VIEW seen AS SELECT * FROM prices; \
         CREATE UNLOGGED TABLE fleeting(id int PRIMARY KEY, product_id int); \
         CREATE TABLE decimals(id int PRIMARY KEY, product_id numeric); \
         CREATE TABLE made(id int PRIMARY KEY, n int, \
         product_id int GENERATED ALWAYS AS (n + 1) STORED); \
         CREATE TABLE codes(code char(3) PRIMARY KEY); \
         CREATE TABLE of_codes(id int PRIMARY KEY, code char(3))",
    );
    let mut config = database.service();
    for table in ["mute", "seen", "fleeting", "decimals", "made"] {
        config = config.set(&format!("collections.products.embed.{table}.on"), "\"product_id\"");
    }
    config = config.set("collections.codes.key", "\"code\"");
    config = config.set("collections.codes.embed.of_codes.on", "\"code\"");
    let unfollowed = config.clone().set("source.feed", "\"none\"").set("cache.ttl", "\"5s\"");
    assert_contains(
        &refusal(&unfollowed),
        &["`fleeting` is unlogged", "`product_id` is generated"],
    );
    assert_contains(
        &refusal(&config),
        &[
            "collection `products.embed.mute`: `mute` has no replica identity",
            "ALTER TABLE \"public\".\"mute\" REPLICA IDENTITY FULL;",
            "`seen` is a view, and only tables can be embedded",
            "`fleeting` is unlogged",
            "collection `products.embed.decimals`: `on` = `product_id` is of type",
            "column `product_id` is generated",
            "collection `codes.embed.of_codes`: `on` = `code` is of type",
        ],
    );
}

#[test]
fn grants_and_publication_of_the_children_are_checked() {
    let database: Postgres = with_logged_prices();
    database.execute(
        "CREATE ROLE reader LOGIN REPLICATION; GRANT SELECT ON products TO reader; \
         GRANT SELECT (region, amount) ON prices TO reader; \
         CREATE PUBLICATION hotrow FOR TABLE products",
    );
    let server = &database.server;
    let config = embedding(Config::over(&server.url_through(server.port(), "reader")));
    let grant = "GRANT SELECT ON \"public\".\"prices\" TO \"reader\";";
    let text = refusal(&config);
    assert_contains(&text, &["may not read `id`, `product_id` of `prices`", grant]);
    database.execute(grant);
    let add = "ALTER PUBLICATION \"hotrow\" ADD TABLE \"public\".\"prices\";";
    assert_contains(&refusal(&config), &["lacks `public.prices`", add]);
    database.execute("ALTER PUBLICATION hotrow ADD TABLE prices (id, region, amount, product_id)");
    assert_contains(&refusal(&config), &["has a column list for `public.prices`"]);
    database.execute("ALTER PUBLICATION hotrow DROP TABLE prices");
    database.execute(add);
    let server = Server::start(&config);
    let mut client = server.client();
    cached(&mut client, "/products/2");
    database.execute("UPDATE prices SET amount = 3 WHERE id = 21");
    await_body(&mut client, "/products/2", &product(2, &[("eu", 3)]));
    // What is missed while the table is not published is not served as if it were fresh.
    database.execute("ALTER PUBLICATION hotrow DROP TABLE prices");
    await_status(&mut client, "/products/2", 503);
    database.execute(add);
    await_body(&mut client, "/products/2", &product(2, &[("eu", 3)]));
}
