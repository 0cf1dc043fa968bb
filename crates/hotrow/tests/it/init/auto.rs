//! `collections = "auto"`: what `hotrow init` would write is served without being written.

use std::path::{Path, PathBuf};

use super::{RUN_WITHIN, assert_has, serve};
use hotrow_testkit::harness::{Database, Ended, SOON, await_until};
use hotrow_testkit::postgres::{ROLE, Server as Postgres};
use rustix::process::Signal;
use tempfile::TempDir;

const SCHEMA: &str = "
    CREATE TABLE products(id INTEGER PRIMARY KEY, name TEXT, password TEXT);
    CREATE TABLE orders(a INTEGER NOT NULL, b INTEGER NOT NULL, PRIMARY KEY(a, b)) STRICT;
    CREATE TABLE bare(a INTEGER);
    INSERT INTO products VALUES (1, 'a', 'x');
    INSERT INTO orders VALUES (3, 4);";

fn file(folder: &Path, url: &str, more: &str) -> PathBuf {
    let path = folder.join("hotrow.toml");
    let text = format!("collections = \"auto\"\n[source]\nurl = \"{url}\"\n{more}");
    std::fs::write(&path, text).expect("written");
    path
}

fn run(command: &str, file: &Path) -> Ended {
    Ended::run(&[command, "--config", file.to_str().expect("UTF-8")], RUN_WITHIN)
}

fn sqlite(more: &str) -> (Database, PathBuf) {
    let database = Database::new();
    database.execute(SCHEMA);
    let url = format!("sqlite:{}", database.path().display());
    let file = file(database.folder(), &url, more);
    (database, file)
}

#[test]
fn what_can_be_served_is_served_and_the_rest_is_named() {
    let (_database, file) = sqlite("");
    let checked = run("check", &file);
    assert_eq!(checked.code(), 0, "{checked:?}");
    assert_has(
        &checked.log,
        &["collections = \"auto\" leaves tables out", "bare (collection `bare`"],
    );
    assert_has(&checked.output, &["2 collections"]);
    let server = serve(&file, "");
    assert_eq!(server.get("/products/1").text(), r#"{"id":1,"name":"a"}"#);
    assert_eq!(server.get("/orders/3,4").status, 200);
    assert_eq!(server.get("/bare/1").status, 404);
}

/// Roles and limits may name collections of the catalogue, and no others.
#[test]
fn settings_that_name_collections_are_checked_against_the_catalogue() {
    let rate = |collection: &str| {
        format!("[limits.rate.some]\nrate = \"10/s\"\ncollections = [\"{collection}\"]\n")
    };
    let (_database, file) = sqlite(&rate("products"));
    assert_eq!(run("check", &file).code(), 0);
    let (_other, file) = sqlite(&rate("bare"));
    let refused = run("check", &file);
    assert_eq!(refused.code(), 2, "{refused:?}");
    // The line of the file, in which the setting has kept its place.
    assert_has(&refused.log, &["hotrow.toml:6: limits.rate.some.collections"]);
}

#[test]
fn a_reload_keeps_the_collections_of_the_start() {
    let (database, file) = sqlite("");
    let server = serve(&file, "");
    let hash = || server.status()["configuration"]["sha256"].clone();
    let before = hash();
    database.execute("CREATE TABLE later(id INTEGER PRIMARY KEY); INSERT INTO later VALUES (1)");
    let text = std::fs::read_to_string(&file).expect("read");
    std::fs::write(&file, format!("{text}[cache]\ncapacity = \"2MiB\"\n")).expect("written");
    server.signal(Signal::HUP);
    await_until("the reload", SOON, || hash() != before);
    assert_eq!(server.get("/later/1").status, 404);
    assert_eq!(server.get("/products/1").status, 200);
    assert_eq!(serve(&file, "").get("/later/1").status, 200, "a new start serves it");
}

#[test]
fn without_a_table_or_a_database_the_reason_is_given() {
    let folder = TempDir::new().expect("a temporary folder");
    let empty = Database::new();
    empty.execute("CREATE TABLE bare(a INTEGER)");
    let url = format!("sqlite:{}", empty.path().display());
    let none = run("serve", &file(folder.path(), &url, ""));
    assert_eq!(none.code(), 1, "{none:?}");
    assert_has(&none.log, &["no table can be served", "bare (collection `bare`"]);
    let gone = run("check", &file(folder.path(), "sqlite:/nonexistent/a.db", ""));
    assert_eq!(gone.code(), 3, "{gone:?}");
    assert_has(&gone.log, &["the database was not reached", "/nonexistent/a.db"]);
    let wrong = run("check", &file(folder.path(), "oracle:a", ""));
    assert_eq!(wrong.code(), 2, "{wrong:?}");
    assert_has(&wrong.log, &["hotrow.toml:3: source.url"]);
    // It asks the service, and must not need the database.
    let health = run("health", &file(folder.path(), "sqlite:/nonexistent/a.db", ""));
    assert!(!health.log.contains("collections"), "{health:?}");
}

#[test]
fn the_role_of_postgresql_decides() {
    let database = Postgres::start(&[]);
    database.make_owner_role();
    database.batch(
        "CREATE TABLE products(id integer PRIMARY KEY, name text NOT NULL, token text); \
         INSERT INTO products VALUES (1, 'a', 't'); \
         CREATE TABLE hidden(id integer PRIMARY KEY)",
    );
    database
        .batch(&format!("REVOKE ALL ON hidden FROM {ROLE}; ALTER TABLE hidden OWNER TO postgres"));
    let folder = TempDir::new().expect("a temporary folder");
    let server = serve(&file(folder.path(), &database.url_for(ROLE, "postgres"), ""), "");
    assert_eq!(server.get("/products/1").text(), r#"{"id":1,"name":"a"}"#);
    assert_eq!(server.get("/hidden/1").status, 404);
    database.batch("UPDATE products SET name = 'b' WHERE id = 1");
    await_until("the change", SOON, || {
        server.get("/products/1").text() == r#"{"id":1,"name":"b"}"#
    });
}
