//! `hotrow serve URL`: a database is served without a file, and nothing is written to it.

use std::time::Instant;

use super::{RUN_WITHIN, assert_has};
use hotrow_testkit::harness::{Database, Ended, SOON, Server, await_until};
use hotrow_testkit::mysql::Server as Mysql;
use hotrow_testkit::postgres::Server as Postgres;

fn shop() -> (Database, String) {
    let database = Database::new();
    database.execute(
        "CREATE TABLE products(id INTEGER PRIMARY KEY, name TEXT);
         CREATE TABLE stock(place TEXT, item INTEGER, n INTEGER, PRIMARY KEY(place, item)) STRICT;
         CREATE TABLE log(text TEXT);
         INSERT INTO products VALUES (1, 'a'); INSERT INTO stock VALUES ('BER', 1, 4);",
    );
    let url = format!("sqlite:{}", database.path().display());
    (database, url)
}

#[test]
fn the_tables_of_a_file_are_served_and_the_file_stays_as_it_is() {
    let (database, url) = shop();
    let before = std::fs::read(database.path()).unwrap();
    let server = Server::start_without_file(&[&url], &[]);
    server.await_ready();
    let output = screen(&server);
    let address = server.data;
    assert_has(
        &output,
        &[
            "Serving 2 collections until Ctrl-C:",
            &format!(
                "  http://{address}/products/{{id}}\n  http://{address}/stock/{{place}},{{item}}\n"
            ),
            "  log (collection `log`",
            "with --triggers only those that changed",
            &format!("hotrow init --from {url} --output hotrow.toml"),
        ],
    );
    assert_eq!(server.get("/products/1").json()["name"], "a");
    assert_eq!(server.get("/stock/BER,1").json()["n"], 4);
    assert_eq!(std::fs::read(database.path()).unwrap(), before, "a byte of it changed");
    database.execute("UPDATE products SET name = 'b'");
    await_until("the change", SOON, || server.get("/products/1").json()["name"] == "b");
}

/// Returns what a server has printed, after its last line.
fn screen(server: &Server) -> String {
    await_until("the screen", SOON, || server.output().contains("--output hotrow.toml\n"));
    server.output()
}

#[test]
fn triggers_and_a_lifetime_are_chosen_on_the_command_line() {
    let (database, url) = shop();
    let server = Server::start_without_file(&["env:SHOP", "--ttl", "10m"], &[("SHOP", &url)]);
    server.await_ready();
    assert_has(&screen(&server), &["hotrow init --from env:SHOP"]);
    assert_eq!(server.get("/products/1").json()["name"], "a");
    database.execute("UPDATE products SET name = 'b'");
    assert_eq!(server.get("/products/1").json()["name"], "a", "within its lifetime");
    drop(server);
    let server = Server::start_without_file(&[&url, "--triggers"], &[]);
    server.await_ready();
    assert!(server.get("/products/1").header("hotrow-position").is_some());
}

/// From the command to a record takes about half a second on an idle machine, most of it
/// PostgreSQL's.
#[test]
fn a_hundred_tables_are_served_at_once() {
    let server = Postgres::any();
    let table = |n| {
        format!(
            "CREATE TABLE t{n} (id int PRIMARY KEY, v text); INSERT INTO t{n} VALUES (1, '{n}');"
        )
    };
    server.batch(&(0..100).map(table).collect::<String>());
    server.batch(
        "CREATE TYPE size AS ENUM ('s', 'm'); ALTER TABLE t0 ADD size size NOT NULL DEFAULT 's';
         CREATE PUBLICATION hotrow FOR ALL TABLES",
    );
    let start = Instant::now();
    let service = Server::start_without_file(&[&server.url()], &[]);
    service.await_ready();
    assert_eq!(service.get("/t99/1").json()["v"], "99");
    println!("100 tables of PostgreSQL: {:?}", start.elapsed());
    assert_has(&screen(&service), &["Serving 100 collections", "  and 80 more\n"]);
    assert_eq!(service.get("/").json()["collections"].as_array().map(Vec::len), Some(100));
    assert_sizes(&service, "t0", &["s", "m"]);
    server.batch("UPDATE t99 SET v = 'new'");
    await_until("the change", SOON, || service.get("/t99/1").json()["v"] == "new");
}

/// Asserts that the description has these values of `size`, and one of them as its example.
#[track_caller]
fn assert_sizes(service: &Server, collection: &str, sizes: &[&str]) {
    let description = service.admin_client().get("/openapi.json").json();
    let record = &description["components"]["schemas"][collection];
    assert_eq!(record["properties"]["size"]["enum"], serde_json::json!(sizes));
    assert_eq!(record["examples"][0]["size"], sizes[0]);
}

#[test]
fn the_tables_of_mariadb_or_mysql_are_served() {
    let server = Mysql::any();
    server.batch(
        "CREATE TABLE products (id int PRIMARY KEY, name text, size enum ('it''s', 'm') NOT NULL);
         INSERT INTO products VALUES (1, 'a', 'm');
         CREATE TABLE stock (place varchar(9) COLLATE utf8mb4_bin, item int, n int,
         PRIMARY KEY (place, item)); INSERT INTO stock VALUES ('BER', 1, 4);
         CREATE TABLE log (t text)",
    );
    let service = Server::start_without_file(&["env:SHOP"], &[("SHOP", &server.url())]);
    service.await_ready();
    assert_has(&screen(&service), &["Serving 2 collections", "/stock/{place},{item}", "  log ("]);
    assert_sizes(&service, "products", &["it's", "m", ""]);
    assert_eq!(service.get("/stock/BER,1").json()["n"], 4);
    assert_eq!(service.get("/products/1").json()["name"], "a");
    server.batch("UPDATE products SET name = 'b'");
    await_until("the change", SOON, || service.get("/products/1").json()["name"] == "b");
}

/// The account may do everything, and is not used for it.
#[test]
fn a_missing_publication_is_shown_and_not_created() {
    let server = Postgres::any();
    server.batch("CREATE TABLE products (id int PRIMARY KEY)");
    let ended = Ended::run(&["serve", &server.url(), "--data", "0", "--admin", "0"], RUN_WITHIN);
    assert_eq!(ended.code(), 1, "{ended:?}");
    let create = "CREATE PUBLICATION \"hotrow\" FOR TABLE \"public\".\"products\"";
    assert_has(&ended.log, &[create, "--ttl 5s"]);
    assert_eq!(server.query("SELECT count(*) FROM pg_publication"), "0");
    server.batch("CREATE UNLOGGED TABLE sums (id int PRIMARY KEY); CREATE PUBLICATION hotrow");
    let service = Server::start_without_file(&[&server.url(), "--ttl", "1s"], &[]);
    service.await_ready();
    assert_eq!((service.get("/products/1").status, service.get("/sums/1").status), (404, 404));
    server.batch("INSERT INTO sums VALUES (1)");
    await_until("the end of a lifetime", SOON, || service.get("/sums/1").status == 200);
}

#[test]
fn what_cannot_be_served_is_said_in_one_line() {
    let (_database, url) = shop();
    for (arguments, code, part) in [
        (&["shop.db"][..], 2, "must begin with a scheme"),
        (&["env:HOTROW_TEST_UNSET"], 2, "HOTROW_TEST_UNSET is not set"),
        (&["sqlite:/missing.db"], 1, "does not exist"),
        (&["postgres://u:secret-pw@127.0.0.1:1/x"], 1, "Connection refused"),
        (&["postgres://u@127.0.0.1:1/x", "--triggers"], 2, "--triggers is for SQLite"),
        (&[&url, "--data", "shop:1"], 2, "localhost:8080, 8080 (this machine only)"),
    ] {
        let ended = Ended::run(&[&["serve"], arguments].concat(), RUN_WITHIN);
        assert_eq!(ended.code(), code, "{ended:?}");
        assert_has(&ended.log, &[part]);
        assert!(!ended.log.contains("secret-pw"), "{ended:?}");
    }
}
