//! Faults of a database are reported at the start, in one message with the remedies, and the
//! remedies work.

use crate::postgres::server::Server as Postgres;
use crate::postgres::shop::Shop;
use crate::shop::{assert_contains, await_body, cached, refusal};
use hotrow_testkit::harness::{Config, Server};

#[test]
fn all_faults_are_reported_at_once_and_the_remedies_work() {
    let mut shop = Shop::with(
        &[("wal_level", "replica")],
        "CREATE TABLE bare(id integer, n integer);
         CREATE TABLE mute(id integer PRIMARY KEY, n integer); \
         ALTER TABLE mute REPLICA IDENTITY NOTHING;
         CREATE UNLOGGED TABLE fleeting(id integer PRIMARY KEY);
         CREATE TABLE base(id integer PRIMARY KEY); CREATE VIEW seen AS SELECT DISTINCT id FROM base;
         CREATE TABLE prices(id float8 PRIMARY KEY);
         CREATE TABLE fine(id integer PRIMARY KEY);
         INSERT INTO bare VALUES (1, 1); INSERT INTO mute VALUES (1, 1)",
    );
    let all = shop.config_of(&["bare", "mute", "fleeting", "seen", "prices", "nowhere", "fine"]);
    let text = refusal(&all);
    assert_contains(
        &text,
        &[
            "`wal_level`",
            "bare",
            "ADD PRIMARY KEY",
            "mute",
            "REPLICA IDENTITY",
            "fleeting",
            "SET LOGGED",
        ],
    );
    assert_contains(&text, &["seen", "view", "prices", "nowhere"]);
    assert!(!text.contains("collection `fine`"), "nothing is wrong with that one:\n{text}");
    // The reported remedies.
    shop.server.batch(
        "ALTER SYSTEM SET wal_level = logical; ALTER TABLE bare ADD PRIMARY KEY (id);
         ALTER TABLE mute REPLICA IDENTITY DEFAULT; ALTER TABLE fleeting SET LOGGED",
    );
    shop.server.restart();
    let server = shop.serve(&["bare", "mute", "fleeting", "fine"]);
    assert_eq!(server.get("/bare/1").status, 200);
    // In a publication a table without an identity would make its owner's updates fail.
    shop.server.batch("UPDATE mute SET n = 2");
}

#[test]
fn a_role_without_privileges_gets_the_grants() {
    let shop = Shop::with_products();
    shop.server.batch("CREATE ROLE reader LOGIN");
    let url = shop.server.url_for("reader", "postgres");
    let config = Config::over(&url).collection("products");
    let text = refusal(&config);
    assert_contains(&text, &["REPLICATION", "GRANT SELECT", "products", "CREATE PUBLICATION"]);
    shop.server.batch(
        "ALTER ROLE reader REPLICATION; GRANT SELECT ON products TO reader; \
         CREATE PUBLICATION hotrow FOR TABLE products",
    );
    let server = Server::start(&config);
    let mut client = server.client();
    cached(&mut client, "/products/1");
    shop.server.batch("UPDATE products SET price = 1 WHERE id = 1");
    await_body(&mut client, "/products/1", r#"{"id":1,"name":"p1","price":1}"#);
}

#[test]
fn incomplete_publications_are_refused() {
    let shop = Shop::with_products();
    let config = shop.config_of(&["products"]).set("source.publication", "\"p\"");
    let publications = [
        ("CREATE PUBLICATION p FOR TABLE products WITH (publish = 'insert, update')", "publish"),
        ("CREATE PUBLICATION p FOR TABLE products WHERE (id > 5)", "products"),
        ("CREATE PUBLICATION p FOR TABLE products (id, name)", "products"),
    ];
    for (sql, part) in publications {
        shop.server.batch(sql);
        assert_contains(&refusal(&config), &["`p`", part]);
        shop.server.batch("DROP PUBLICATION p");
    }
    // A publication that lacks the table is completed, because this role may; other tables in it
    // are harmless.
    shop.server
        .batch("CREATE TABLE other(id integer PRIMARY KEY); CREATE PUBLICATION p FOR TABLE other");
    let server = Server::start(&config);
    assert_eq!(server.get("/products/1").status, 200);
    assert_eq!(
        shop.server.query("SELECT count(*) FROM pg_publication_tables WHERE pubname = 'p'"),
        "2"
    );
}

#[test]
fn replicas_and_wrong_addresses_are_refused_without_the_password() {
    let primary = Postgres::start(&[]);
    primary.batch("CREATE TABLE products(id integer PRIMARY KEY)");
    let standby = primary.standby(&[]);
    let config = Config::over(&standby.url()).collection("products");
    assert_contains(&refusal(&config), &["replica", &standby.port().to_string()]);
    // With both named, the primary is used.
    let both = format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres",
        standby.port(),
        primary.port()
    );
    assert_eq!(
        Server::start(&Config::over(&both).collection("products")).get("/products/1").status,
        404
    );
    let nowhere = Config::over("postgres://u:topsecret@127.0.0.1:1/db").collection("products");
    let text = refusal(&nowhere);
    assert_contains(&text, &["127.0.0.1:1"]);
    assert!(!text.contains("topsecret"), "{text}");
}

#[test]
fn passwords_are_checked_with_scram_and_never_shown() {
    let shop = Shop::with_products();
    shop.server.batch(
        "CREATE ROLE reader LOGIN REPLICATION PASSWORD 'tops%cret'; \
         GRANT SELECT ON products TO reader; \
         CREATE PUBLICATION hotrow FOR TABLE products",
    );
    shop.server.set_hba(
        "host all postgres 127.0.0.1/32 trust\nhost all reader 127.0.0.1/32 scram-sha-256\n",
    );
    let config = |password: &str| {
        Config::over(&format!(
            "postgres://reader:{password}@127.0.0.1:{}/postgres",
            shop.server.port()
        ))
        .collection("products")
    };
    let text = refusal(&config("wr0ng"));
    assert_contains(&text, &["password", "reader"]);
    assert!(!text.contains("wr0ng"), "{text}");
    let server = Server::start(&config("tops%25cret"));
    let mut client = server.client();
    cached(&mut client, "/products/1");
    shop.server.batch("UPDATE products SET price = 1 WHERE id = 1");
    await_body(&mut client, "/products/1", r#"{"id":1,"name":"p1","price":1}"#);
    assert!(!server.log().contains("cret"), "{}", server.log());
}

#[test]
fn too_few_slots_or_senders_are_reported() {
    for setting in ["max_replication_slots", "max_wal_senders"] {
        let shop = Shop::with_products_and(&[(setting, "1")]);
        let first = shop.serve(&["products"]);
        let text = refusal(&shop.config_of(&["products"]));
        assert_contains(&text, &[setting]);
        assert_eq!(first.get("/products/1").status, 200, "the first continues");
    }
}
