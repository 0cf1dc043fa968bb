//! Warm start: what was hot before a stop is in memory soon after the next start.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use hotrow_testkit::harness::{Config, Database, SOON, Server, await_until};
use rustix::process::Signal;

fn config(database: &Database, file: &Path) -> Config {
    Config::new(database.path())
        .collection("products")
        .set("collections.products.ttl", "\"1h\"")
        .set("source.watch", "\"triggers\"")
        .set("warm.file", &format!("\"{}\"", file.display()))
}

/// Waits until the warm start has ended, and returns its state.
fn ended(server: &Server) -> serde_json::Value {
    await_until("the warm start to end", SOON, || {
        server.metrics().sum("hotrow_warm_start_active", &[]) == 0.0
    });
    server.status()["warm_start"].clone()
}

/// Stops a server that has read `ids`, each as often as it occurs.
fn run_with(config: &Config, ids: &[u32]) {
    let server = Server::start(config);
    ended(&server);
    let mut client = server.client();
    for id in ids {
        client.get(&format!("/products/{id}"));
    }
    server.signal(Signal::TERM);
    assert_eq!(server.ended(SOON).code(), 0);
}

/// Returns the keys of the file, in its order.
fn keys(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap();
    let lines: Vec<_> = text.lines().map(str::to_owned).collect();
    lines[1..lines.len() - 1].to_vec()
}

#[test]
fn hot_records_are_in_memory_after_a_restart() {
    let database = Database::with_products(500);
    let file = database.folder().join("hot-keys");
    let config = config(&database, &file);
    let mut ids: Vec<u32> = (1..=250).collect();
    ids.extend([250, 250, 7]);
    // One that does not exist: absence is not hot.
    ids.push(900);
    run_with(&config, &ids);
    let written = keys(&file);
    assert_eq!(written.len(), 250);
    assert_eq!(written[0], "0 250", "the most used first");
    assert_eq!(written[1], "0 7");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

    database
        .execute("UPDATE products SET price = 1 WHERE id = 7; DELETE FROM products WHERE id = 8");
    let server = Server::start(&config.set("warm.before_ready", "true"));
    // `start` waited for readiness, and so for the reads.
    let state = server.status()["warm_start"].clone();
    assert_eq!(state["stage"], "complete", "{state}");
    assert_eq!((&state["file_keys"], &state["read_keys"]), (&250.into(), &250.into()), "{state}");
    let queries = server.queries();
    assert!(queries <= 6, "{queries} queries for 250 keys");
    let mut client = server.client();
    for id in (1..=250).filter(|id| *id != 8) {
        let answer = client.get(&format!("/products/{id}"));
        assert_eq!((answer.status, answer.cache()), (200, "hit"), "{id}");
    }
    assert_eq!(client.get("/products/7").json()["price"], 1, "read after the start");
    let gone = client.get("/products/8");
    assert_eq!((gone.status, gone.cache()), (404, "miss"), "its absence was not remembered");
    assert_eq!(client.get("/products/251").cache(), "miss");
}

#[test]
fn reads_end_when_memory_is_full() {
    let database = Database::new();
    database.execute(
        "CREATE TABLE products(id INTEGER PRIMARY KEY, text TEXT);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300)
         INSERT INTO products SELECT i, hex(randomblob(4000)) FROM n",
    );
    let file = database.folder().join("hot-keys");
    let large = config(&database, &file);
    run_with(&large, &(1..=300).collect::<Vec<_>>());
    assert_eq!(keys(&file).len(), 300);
    let small = large.set("cache.capacity", "\"1MiB\"");
    let server = Server::start(&small);
    let state = ended(&server);
    assert_eq!(state["stage"], "full", "{state}");
    let read = state["read_keys"].as_u64().unwrap();
    assert!((100..300).contains(&read), "{state}");
}

#[test]
fn unusable_files_and_folders_are_reported_and_nothing_else_is_lost() {
    let database = Database::with_products(10);
    let file = database.folder().join("hot-keys");
    let config = config(&database, &file);
    run_with(&config, &[1, 2]);
    let good = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, good.replace("0 1\n", "0 3\n")).unwrap();
    let server = Server::start(&config);
    assert_eq!(ended(&server)["stage"], "file_refused");
    server.await_log("its last line does not fit");
    assert_eq!(server.get("/products/1").cache(), "miss");
    drop(server);

    // A table that is served under another name, and keys of another type.
    std::fs::write(&file, &good).unwrap();
    let renamed = Config::new(database.path())
        .collection("goods")
        .set("collections.goods.table", "\"products\"")
        .set("warm.file", &format!("\"{}\"", file.display()));
    let server = Server::start(&renamed);
    let state = ended(&server);
    assert_eq!((&state["stage"], &state["unusable_keys"]), (&"complete".into(), &2.into()));
    drop(server);

    let away = database.folder().join("no-such-folder/hot-keys");
    let server = Server::start(&config.set("warm.file", &format!("\"{}\"", away.display())));
    assert_eq!(ended(&server)["stage"], "no_file");
    server.signal(Signal::TERM);
    let ended = server.ended(SOON);
    assert_eq!(ended.code(), 0);
    assert!(ended.log.contains("the file of hot keys was not written"), "{}", ended.log);
}

#[test]
fn files_are_written_at_the_interval() {
    let database = Database::with_products(10);
    let file = database.folder().join("hot-keys");
    let server = Server::start(&config(&database, &file).set("warm.interval", "\"1s\""));
    server.get("/products/1");
    await_until("the key to be in a file", SOON, || {
        std::fs::read_to_string(&file).is_ok_and(|text| text.contains("\n0 1\n"))
    });
    let files = |result| {
        let labels = [("result", result)];
        server.metrics().sum("hotrow_hot_keys_files_total", &labels)
    };
    await_until("the file to be counted", SOON, || files("written") >= 1.0);
    assert_eq!(files("failed"), 0.0);
    // Killed: the last file counts.
    server.signal(Signal::KILL);
    _ = server.ended(SOON);
    assert_eq!(keys(&file), ["0 1"]);
}
