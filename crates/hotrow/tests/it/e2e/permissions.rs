//! Matrix of file permissions: exactly those in docs/sqlite.md are sufficient, each missing one is
//! refused with a remedy, and an added one takes effect without a restart.

use std::path::Path;

use hotrow_testkit::harness::account::set_mode;
use hotrow_testkit::harness::{Account, Config, Database, SOON, Server, await_until};

fn config(database: &Database, watch: &str) -> Config {
    let watch = format!("\"{watch}\"");
    Config::new(database.path()).set("source.watch", &watch).collection("products")
}

fn database(journal_mode: &str) -> Database {
    let database = Database::with_products(3);
    database.execute(&format!("PRAGMA journal_mode = {journal_mode}"));
    database
}

/// Writes as another account does, and waits until the server shows the change.
#[track_caller]
fn assert_follows(server: &Server, database: &Database, price: u32) {
    let mut client = server.client();
    assert_eq!(client.get("/products/1").status, 200);
    database.execute(&format!("UPDATE products SET price = {price} WHERE id = 1"));
    await_until("the change", SOON, || client.get("/products/1").json()["price"] == price);
    assert_eq!(server.metrics().sum("hotrow_feed_gaps_total", &[]), 0.0);
}

/// Asserts that a server does not start, and logs all of these words.
#[track_caller]
fn assert_refused(account: &Account, config: &Config, words: &[&str]) {
    let ended = account.refused(config, SOON);
    assert_eq!(ended.code(), 1, "{ended:?}");
    for word in words {
        assert!(ended.log.contains(word), "{word:?} is missing in: {}", ended.log);
    }
    assert!(!ended.log.contains("panicked"), "{}", ended.log);
}

#[test]
fn with_triggers_reading_and_writing_of_file_and_folder_is_sufficient() {
    let Some(account) = Account::unprivileged() else { return };
    let database = database("WAL");
    account.own(database.folder(), 0o700, 0o600);
    let server = account.start(&config(&database, "triggers"));
    for price in 1..=3 {
        assert_follows(&server, &database, price);
    }
}

#[test]
fn without_triggers_reading_is_sufficient() {
    let Some(account) = Account::unprivileged() else { return };
    // WAL mode works because the writer here has the database open.
    for journal_mode in ["DELETE", "WAL"] {
        let database = database(journal_mode);
        account.own(database.folder(), 0o500, 0o400);
        let server = account.start(&config(&database, "none"));
        for price in 1..=3 {
            assert_follows(&server, &database, price);
        }
    }
}

#[test]
fn each_missing_permission_is_refused_with_the_remedy() {
    let Some(account) = Account::unprivileged() else { return };
    let database = database("WAL");
    let triggers = config(&database, "triggers");
    let none = config(&database, "none");
    let unreadable = ["no permission to read", "give this user read access"];
    let read_only = ["cannot be written to", "give write access or use `watch = \"none\"`"];
    for (folder, files, config, words) in [
        (0o700, 0o200, &triggers, unreadable),
        (0o700, 0o200, &none, unreadable),
        (0o600, 0o600, &triggers, unreadable),
        (0o600, 0o600, &none, unreadable),
        (0o700, 0o400, &triggers, read_only),
        (0o500, 0o600, &triggers, read_only),
    ] {
        account.own(database.folder(), folder, files);
        assert_refused(&account, config, &words);
    }
    let objects = "SELECT count(*) FROM sqlite_schema WHERE name LIKE '\\_hotrow%' ESCAPE '\\'";
    let added: i64 = database.connection.query_row(objects, [], |row| row.get(0)).unwrap();
    assert_eq!(added, 0, "a refused start leaves nothing in the database");
}

#[test]
fn a_write_ahead_log_that_cannot_be_shared_is_named() {
    let Some(account) = Account::unprivileged() else { return };
    let words = ["`-wal` and `-shm`", "give this user write access to", "keep a process connected"];
    // No process has it open, so the files do not exist and would have to be created.
    let database = database("WAL");
    let path = database.path().to_owned();
    let copy = path.with_file_name("copy.db");
    database.execute(&format!("VACUUM INTO '{}'", copy.display()));
    let writer = rusqlite::Connection::open(&copy).unwrap();
    writer.execute_batch("PRAGMA journal_mode = WAL").unwrap();
    drop(writer);
    account.own(database.folder(), 0o500, 0o400);
    let config = Config::new(&copy).set("source.watch", "\"none\"").collection("products");
    assert_refused(&account, &config, &words);
    // The files exist and belong to another account.
    for ending in ["-wal", "-shm"] {
        set_mode(Path::new(&format!("{}{ending}", path.display())), 0o000);
    }
    let config = Config::new(&path).set("source.watch", "\"none\"").collection("products");
    assert_refused(&account, &config, &words);
}

#[test]
fn write_access_that_is_added_while_it_runs_changes_nothing() {
    let Some(account) = Account::unprivileged() else { return };
    let database = database("WAL");
    account.own(database.folder(), 0o500, 0o400);
    let server = account.start(&config(&database, "none"));
    assert_follows(&server, &database, 1);
    account.own(database.folder(), 0o700, 0o600);
    assert_follows(&server, &database, 2);
}

#[test]
fn read_access_that_is_added_while_it_runs_ends_the_refusals() {
    let Some(account) = Account::unprivileged() else { return };
    let database = database("DELETE");
    account.own(database.folder(), 0o700, 0o600);
    let server = account.start(&config(&database, "none"));
    assert_follows(&server, &database, 1);
    // Another database replaces it, as a restore by root leaves it.
    let restored = database.folder().join("restored.db");
    database.execute(&format!("VACUUM INTO '{}'", restored.display()));
    set_mode(&restored, 0o600);
    std::fs::rename(&restored, database.path()).unwrap();
    let mut client = server.client();
    await_until("refusals", SOON, || client.get("/products/1").status == 503);
    server.await_log("give this user read access");
    account.own(database.folder(), 0o700, 0o600);
    await_until("answers", SOON, || client.get("/products/1").status == 200);
    server.await_ready();
}
