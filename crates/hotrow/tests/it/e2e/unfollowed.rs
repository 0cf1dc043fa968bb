//! `source.feed = "none"`: freshness by the TTL alone.

use std::time::Duration;

use hotrow_testkit::harness::{Config, Database, SOON, Server, await_until};

fn config(database: &Database) -> Config {
    Config::over(&format!("sqlite:{}", database.path().display()))
        .set("source.feed", "\"none\"")
        .set("cache.ttl", "\"1h\"")
        .set("collections.products.allow_no_cache", "true")
        .collection("products")
}

#[test]
fn an_entry_lives_until_its_ttl_regardless_of_changes() {
    let database = Database::with_products(3);
    let server = Server::start(&config(&database));
    let mut client = server.client();
    assert_eq!(client.get("/products/1").cache(), "miss");
    database.execute("UPDATE products SET price = 5 WHERE id = 1");
    // Other reads see the change, so it is visible in the database.
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
    let age: u64 =
        client.get("/products/1").header("age").and_then(|age| age.parse().ok()).expect("an age");
    assert!(age >= 2, "as old as its read: {age}");
    let purged = server.admin_client().change("/purge/products/1", "").status;
    assert_eq!((purged, &client.get("/products/1").json()["price"]), (200, &serde_json::json!(6)));
}

#[test]
fn a_missing_feed_is_logged_as_a_warning() {
    let database = Database::with_products(3);
    let server = Server::start(&config(&database));
    server.await_log("changes in the database are not followed");
    let status = server.status();
    assert_eq!(
        (
            &status["sources"]["default"]["feed"]["followed"],
            &status["sources"]["default"]["feed"]["watch"]
        ),
        (&false.into(), &"none".into())
    );
    assert!(
        status["sources"]["default"]["feed"]["staleness_ms"].is_null()
            && status["sources"]["default"]["feed"]["current"].is_null()
    );
    let ready = server.admin_client().get("/readyz");
    assert_eq!((ready.status, &ready.json()["feed"]), (200, &"none".into()));
    let metrics = server.metrics();
    assert_eq!(metrics.sum("hotrow_feed_followed", &[]), 0.0);
    let page = server.admin_client().get("/metrics").text();
    assert!(
        !page.contains("hotrow_feed_staleness_seconds") && !page.contains("hotrow_feed_current")
    );
}

#[test]
fn a_changed_table_is_noticed_without_a_feed() {
    let database = Database::with_products(3);
    let server = Server::start(&config(&database));
    let mut client = server.client();
    client.get("/products/1");
    database.execute("ALTER TABLE products ADD COLUMN colour TEXT DEFAULT 'red'");
    await_until("the new column", SOON, || client.get("/products/1").json()["colour"] == "red");
}
