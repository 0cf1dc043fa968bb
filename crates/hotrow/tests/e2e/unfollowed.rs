//! `source.feed = "none"`: nothing but the TTL.

use std::time::Duration;

use crate::harness::{Config, Database, SOON, Server, await_until};

fn config(database: &Database) -> Config {
    Config::over(&format!("sqlite:{}", database.path().display()))
        .set("source.feed", "\"none\"")
        .set("cache.ttl", "\"1h\"")
        .set("collections.products.allow_no_cache", "true")
        .collection("products")
}

#[test]
fn an_entry_lives_until_its_ttl_whatever_changes() {
    let database = Database::with_products(3);
    let server = Server::start(&config(&database));
    let mut client = server.client();
    assert_eq!(client.get("/products/1").cache(), "miss");
    database.execute("UPDATE products SET price = 5 WHERE id = 1");
    // Other reads see the change, so that it is there to be seen.
    assert_eq!(client.get_with("/products/1", &[("Cache-Control", "no-cache")]).json()["price"], 5);
    database.execute("UPDATE products SET price = 6 WHERE id = 1");
    let begun = std::time::Instant::now();
    let mut answers = 0;
    while begun.elapsed() < Duration::from_secs(2) {
        let answer = client.get("/products/1");
        assert_eq!((answer.cache(), &answer.json()["price"]), ("hit", &serde_json::json!(5)));
        assert_eq!(answer.header("hotrow-position"), None, "there are no positions");
        answers += 1;
    }
    assert!(answers > 10);
    let age: u64 = client.get("/products/1").header("age").and_then(|age| age.parse().ok()).expect("an age");
    assert!(age >= 2, "it is as old as its read: {age}");
    let purged = server.admin_client().post("/purge/products/1", "").status;
    assert_eq!((purged, &client.get("/products/1").json()["price"]), (200, &serde_json::json!(6)));
}

#[test]
fn that_there_is_no_feed_is_said_loudly() {
    let database = Database::with_products(3);
    let server = Server::start(&config(&database));
    await_until("it to be told", SOON, || server.log().contains("changes in the database are not followed"));
    let status = server.status();
    assert_eq!((&status["feed"]["followed"], &status["feed"]["watch"]), (&false.into(), &"none".into()));
    assert!(status["feed"]["staleness_ms"].is_null() && status["feed"]["current"].is_null());
    let ready = server.admin_client().get("/readyz");
    assert_eq!((ready.status, &ready.json()["feed"]), (200, &"none".into()));
    let metrics = server.metrics();
    assert_eq!(metrics.sum("hotrow_feed_followed", &[]), 0.0);
    let page = server.admin_client().get("/metrics").text();
    assert!(!page.contains("hotrow_feed_staleness_seconds") && !page.contains("hotrow_feed_current"));
}

#[test]
fn another_shape_of_the_table_is_seen_all_the_same() {
    let database = Database::with_products(3);
    let server = Server::start(&config(&database));
    let mut client = server.client();
    client.get("/products/1");
    database.execute("ALTER TABLE products ADD COLUMN colour TEXT DEFAULT 'red'");
    await_until("the new column", SOON, || client.get("/products/1").json()["colour"] == "red");
}
