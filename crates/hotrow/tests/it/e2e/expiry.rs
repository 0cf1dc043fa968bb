//! TTLs, and the stale answers allowed after expiry.

use std::time::{Duration, Instant};

#[cfg(feature = "failpoints")]
use hotrow_testkit::harness::await_some;
use hotrow_testkit::harness::{Client, Config, Database, SOON, Server, await_until};

fn config(database: &Database) -> Config {
    Config::new(database.path()).set("cache.ttl_jitter", "0").collection("products")
}

/// Requests a path every millisecond until the answer is no hit. Returns the time until then and
/// the outcome of that answer.
fn until_no_hit(client: &mut Client, path: &str) -> (Duration, String) {
    let begun = Instant::now();
    let mut last = String::new();
    await_until("the entry to expire", SOON, || {
        last = client.get(path).cache().to_owned();
        last != "hit"
    });
    (begun.elapsed(), last)
}

#[test]
fn entries_and_negative_entries_live_for_their_ttl() {
    let database = Database::with_products(3);
    let config = config(&database)
        .set("cache.ttl", "\"1h\"")
        .set("collections.products.ttl", "\"600ms\"")
        .set("cache.negative_ttl", "\"200ms\"");
    let server = Server::start(&config);
    let mut client = server.client();
    for (path, ttl) in [("/products/1", 600), ("/products/999", 200)] {
        let started = Instant::now();
        assert_eq!(client.get(path).cache(), "miss");
        let (_, next) = until_no_hit(&mut client, path);
        let lived = started.elapsed();
        assert_eq!(next, "miss", "{path}");
        assert!(lived >= Duration::from_millis(ttl), "{path} lived {lived:?}");
        await_until("a new read to be cached", SOON, || client.get(path).cache() == "hit");
    }
    let replaced = server.metrics().sum("hotrow_cache_evictions_total", &[("cause", "replaced")]);
    assert!(replaced >= 2.0, "each expired entry was replaced: {replaced}");
}

#[test]
fn an_expired_entry_is_served_while_it_is_refreshed() {
    let database = Database::with_products(3);
    let config = config(&database)
        .set("cache.ttl", "\"100ms\"")
        .set("cache.stale_while_revalidate", "\"1h\"");
    let server = Server::start(&config);
    let mut client = server.client();
    assert_eq!(client.get("/products/1").cache(), "miss");
    let (_, next) = until_no_hit(&mut client, "/products/1");
    assert_eq!(next, "stale", "served at once");
    await_until("the refreshed entry", SOON, || client.get("/products/1").cache() == "hit");
    assert!(server.queries() >= 2);
    // Never after an invalidation.
    database.execute("UPDATE products SET price = 5 WHERE id = 1");
    let end = database.log_end();
    await_until("the feed", SOON, || {
        server.metrics().sum("hotrow_feed_position", &[]) as u64 >= end
    });
    for _ in 0..50 {
        assert_eq!(client.get("/products/1").json()["price"], 5);
    }
}

#[cfg(feature = "failpoints")]
#[test]
fn an_expired_entry_replaces_a_failed_read_but_not_after_a_delete() {
    let database = Database::with_products(3);
    let gate = hotrow_testkit::harness::Gate::new("slow/1");
    database.add_table("slow", 1);
    let config = config(&database)
        .set("cache.ttl", "\"100ms\"")
        .set("cache.negative_ttl", "\"100ms\"")
        .set("cache.stale_if_error", "\"1h\"")
        .set("cache.error_ttl", "\"0s\"")
        .set("limits.request_timeout", "\"100ms\"")
        .set("limits.breaker.failures", "10000")
        .set("source.read_timeout", "\"1m\"")
        .set("source.reads_in_flight", "1")
        .collection("slow")
        .gate(&gate);
    let server = Server::start(&config);
    let mut client = server.client();
    let fine = await_some("the record", SOON, || {
        Some(client.get("/products/1")).filter(|answer| answer.status == 200)
    });
    client.get("/products/2");
    database.execute("DELETE FROM products WHERE id = 2");
    await_until("the deletion", SOON, || client.get("/products/2").status == 404);
    // The only reader is busy from now on: no read succeeds.
    client.get("/slow/1").problem(504);
    await_until("an expired entry and a failed read", SOON, || {
        let answer = client.get("/products/1");
        assert_eq!((answer.status, &answer.body), (200, &fine.body));
        answer.cache() == "stale"
    });
    await_until("a read that fails without a stale entry", SOON, || {
        let answer = client.get("/products/2");
        assert_ne!(answer.status, 200, "a deleted record does not return");
        answer.status == 504 || answer.cache() == "stale"
    });
    client.get("/products/1000").problem(504);
    gate.open();
    await_until("reads to work again", SOON, || client.get("/products/3").status == 200);
}
