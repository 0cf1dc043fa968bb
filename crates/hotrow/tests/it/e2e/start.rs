//! Failed starts: each message names the cause and the remedy.

use std::net::TcpListener;

use hotrow_testkit::harness::{Config, Database, Ended, SOON, Server};

/// Asserts that `serve` ends with this status, with all of these words on standard error and
/// nothing on standard output.
fn refuses(config: &Config, code: i32, words: &[&str]) {
    let ended = Ended::run_config(config, SOON);
    assert_eq!(ended.code(), code, "{ended:?}");
    for word in words {
        assert!(ended.log.contains(word), "{word:?} is missing in: {}", ended.log);
    }
    assert!(!ended.log.contains("panicked"), "{}", ended.log);
    assert_eq!(ended.output, "", "nothing was served");
}

#[test]
fn databases_that_are_unusable() {
    let database = Database::with_products(3);
    let at = |name: &str| database.folder().join(name);
    let config = |path: &std::path::Path| Config::new(path).collection("products");
    std::fs::write(at("text"), "this is no database, however long it may be".repeat(100)).unwrap();
    std::fs::write(at("empty"), "").unwrap();
    std::fs::create_dir(at("folder")).unwrap();
    refuses(
        &config(&at("missing.db")),
        1,
        &["missing.db", "does not exist", "create it first or correct `url`"],
    );
    refuses(&config(&at("text")), 1, &["text is not an SQLite database"]);
    refuses(&config(&at("empty")), 1, &["empty is not an SQLite database"]);
    refuses(&config(&at("folder")), 1, &["folder", "not a regular file"]);
    assert!(!at("missing.db").exists(), "it is never created");
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)");
    let sound = std::fs::read(database.path()).unwrap();
    std::fs::write(at("cut.db"), &sound[..sound.len() - 5000]).unwrap();
    refuses(&config(&at("cut.db")), 1, &["cut.db"]);
    let rollback = Database::with_products(1);
    rollback.execute("PRAGMA journal_mode = DELETE");
    refuses(&config(rollback.path()), 1, &["journal mode `delete`", "PRAGMA journal_mode=WAL"]);
}

#[test]
fn tables_columns_and_keys_that_do_not_fit() {
    let database = Database::with_products(3);
    database.execute(
        "CREATE VIEW cheap AS SELECT id, max(price) AS p FROM products;
         CREATE TABLE blobs(id BLOB PRIMARY KEY); CREATE TABLE loose(id INTEGER, v TEXT)",
    );
    let at = |settings: &[(&str, &str)]| {
        Config::new(database.path()).collection("products").with(settings)
    };
    for (settings, words) in [
        ([("collections.orders.key", "\"id\"")], vec!["orders", "no table", "products"]),
        (
            [("collections.products.table", "\"cheap\"")],
            vec!["the view `cheap` has a function other than abs", "max(price)"],
        ),
        ([("collections.products.table", "\"sqlite_schema\"")], vec!["sqlite_schema"]),
        ([("collections.products.key", "\"nr\"")], vec!["no column `nr`", "`key`", "price"]),
        (
            [("collections.products.columns", "[\"id\", \"colour\"]")],
            vec!["no column `colour`", "`columns`"],
        ),
        (
            [("collections.products.exclude", "[\"colour\"]")],
            vec!["no column `colour`", "`exclude`"],
        ),
        (
            [("collections.products.exclude", "[\"id\", \"name\", \"price\"]")],
            vec!["leave no column"],
        ),
        (
            [("collections.products.key", "\"price\"")],
            vec!["(price) is not unique", "PRIMARY KEY or a UNIQUE"],
        ),
        ([("collections.products.key", "[\"id\", \"name\"]")], vec!["not unique"]),
        ([("collections.loose.key", "\"id\"")], vec!["loose", "not unique"]),
        ([("collections.blobs.key", "\"id\"")], vec!["blobs", "key_type"]),
        (
            [("collections.products.key_type", "\"uuid\"")],
            vec!["products", "INTEGER PRIMARY KEY holds integers"],
        ),
    ] {
        refuses(&at(&settings), 1, &words);
    }
    let added: i64 = database
        .connection
        .query_row(
            "SELECT count(*) FROM sqlite_schema WHERE name LIKE '\\_hotrow%' ESCAPE '\\'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(added, 0, "a refused start leaves nothing in the database");
}

#[test]
fn addresses_already_used() {
    let database = Database::with_products(3);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for key in ["listen.data", "listen.admin"] {
        let config =
            Config::new(database.path()).collection("products").set(key, &format!("\"{address}\""));
        refuses(&config, 1, &[&address, "in use", "choose another address"]);
    }
    // Hotrow shares its port among its own workers, but not with a second process.
    let running = Server::start(&Config::new(database.path()).collection("products"));
    let config = Config::new(database.path())
        .collection("products")
        .set("listen.data", &format!("\"{}\"", running.data));
    refuses(&config, 1, &["in use"]);
    assert_eq!(running.get("/products/1").status, 200);
}

#[test]
fn wrong_configurations_and_wrong_usage_end_with_2() {
    let database = Database::with_products(3);
    let fine = || Config::new(database.path()).collection("products");
    for (settings, words) in [
        ([("cache.capcity", "\"1GiB\"")], ["cache.capcity", "capacity"]),
        ([("cache.ttl", "\"soon\"")], ["cache.ttl", "soon"]),
        ([("limits.max_batch", "0")], ["limits.max_batch", "between 1 and"]),
        ([("listen.data", "\"shop.example:80\"")], ["listen.data", "shop.example:80"]),
        ([("source.url", "\"oracle://u:pass@h/db\"")], ["source.url", "oracle"]),
        ([("source.url", "\"sqlite:${HOTROW_NOT_SET}\"")], ["source.url", "HOTROW_NOT_SET"]),
        (
            [("collections.products.allow_no_cache", "\"yes\"")],
            ["collections.products.allow_no_cache", "true or false"],
        ),
        ([("admin.token", "\"short\"")], ["admin.token", "16"]),
    ] {
        refuses(&fine().with(&settings), 2, &words);
    }
    refuses(&Config::new(database.path()), 2, &["collections"]);
    let missing = Ended::run(&["serve", "--config", "/nowhere/hotrow.toml"], SOON);
    assert_eq!(missing.code(), 2, "{missing:?}");
    assert!(missing.log.contains("/nowhere/hotrow.toml"), "{missing:?}");
    for usage in [
        &["serve"][..],
        &["serve", "--demo", "--config", "x"],
        &["sing"],
        &["serve", "--demo", "--loud"],
        &[],
    ] {
        let ended = Ended::run(usage, SOON);
        assert_eq!(ended.code(), 2, "{usage:?}");
        assert!(!ended.log.is_empty());
    }
    for help in [&["--help"][..], &["serve", "--help"], &["--version"]] {
        let ended = Ended::run(help, SOON);
        assert_eq!((ended.code(), ended.output.is_empty()), (0, false), "{help:?}");
    }
}

#[test]
fn check_lists_the_collections_and_uninstall_triggers_removes_everything() {
    let database = Database::with_products(3);
    let config = Config::new(database.path()).collection("products");
    let file = database.folder().join("hotrow.toml");
    std::fs::write(&file, config.text()).unwrap();
    let file = file.to_str().unwrap();
    let checked = Ended::run(&["check", "--config", file], SOON);
    assert_eq!(checked.code(), 0, "{checked:?}");
    assert!(checked.output.contains("1 collection (products)"), "{checked:?}");
    let ours = || -> i64 {
        let sql = "SELECT count(*) FROM sqlite_schema WHERE name LIKE '\\_hotrow%' ESCAPE '\\'";
        database.connection.query_row(sql, [], |row| row.get(0)).unwrap()
    };
    assert_eq!(ours(), 0, "check adds nothing");
    let server = Server::start(&config);
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(server.ended(SOON).code(), 0);
    assert!(ours() > 2, "the log and its triggers stay for the next start");
    let removed = Ended::run(&["uninstall-triggers", "--config", file], SOON);
    assert_eq!(removed.code(), 0, "{removed:?}");
    assert_eq!(ours(), 0);
    database.execute("UPDATE products SET price = 1");
    let again =
        Ended::run(&["uninstall-triggers", "--database", database.path().to_str().unwrap()], SOON);
    assert_eq!(again.code(), 0, "{again:?}");
    let nowhere = Ended::run(&["uninstall-triggers", "--database", "/nowhere/shop.db"], SOON);
    assert_eq!(nowhere.code(), 1, "{nowhere:?}");
    assert!(nowhere.log.contains("/nowhere/shop.db"), "{nowhere:?}");
}
