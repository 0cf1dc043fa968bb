//! TTLs, and what may stand in for an expired entry.

use std::time::{Duration, Instant};

use crate::harness::{Client, Config, Database, SOON, Server, await_some, await_until};

fn config(database: &Database) -> Config {
    Config::new(database.path()).set("cache.ttl_jitter", "0").collection("products")
}

/// Asks every millisecond until the answer is no hit any more; how long that was, and what came instead.
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
        let asked = Instant::now();
        assert_eq!(client.get(path).cache(), "miss");
        let (_, next) = until_no_hit(&mut client, path);
        let lived = asked.elapsed();
        assert_eq!(next, "miss", "{path}");
        assert!(lived >= Duration::from_millis(ttl), "{path} lived {lived:?}");
        await_until("it to be read again and kept", SOON, || client.get(path).cache() == "hit");
    }
    let replaced = server.metrics().sum("hotrow_cache_evictions_total", &[("cause", "replaced")]);
    assert!(replaced >= 2.0, "each expired entry gave way to a new one: {replaced}");
}

#[test]
fn an_expired_entry_is_served_while_it_is_refreshed() {
    let database = Database::with_products(3);
    let config = config(&database).set("cache.ttl", "\"100ms\"").set("cache.stale_while_revalidate", "\"1h\"");
    let server = Server::start(&config);
    let mut client = server.client();
    assert_eq!(client.get("/products/1").cache(), "miss");
    let (_, next) = until_no_hit(&mut client, "/products/1");
    assert_eq!(next, "stale", "served at once");
    await_until("the refreshed entry", SOON, || client.get("/products/1").cache() == "hit");
    assert!(server.queries() >= 2);
    // Never for what was invalidated.
    database.execute("UPDATE products SET price = 5 WHERE id = 1");
    let end = database.log_end();
    await_until("the feed", SOON, || server.metrics().sum("hotrow_feed_position", &[]) as u64 >= end);
    for _ in 0..50 {
        assert_eq!(client.get("/products/1").json()["price"], 5);
    }
}

#[test]
fn an_expired_entry_stands_in_for_a_failed_read_but_not_for_what_was_deleted() {
    let database = Database::with_products(3);
    database.add_slow_table(Duration::from_millis(300));
    let config = config(&database)
        .set("cache.ttl", "\"100ms\"")
        .set("cache.negative_ttl", "\"100ms\"")
        .set("cache.stale_if_error", "\"1h\"")
        .set("cache.error_ttl", "\"0s\"")
        .set("limits.request_timeout", "\"100ms\"")
        .set("source.reads_in_flight", "1")
        .set("collections.slow.allow_no_cache", "true");
    let server = Server::start(&config);
    let mut client = server.client();
    let fine = await_some("the record", SOON, || Some(client.get("/products/1")).filter(|answer| answer.status == 200));
    client.get("/products/2");
    database.execute("DELETE FROM products WHERE id = 2");
    await_until("the deletion", SOON, || client.get("/products/2").status == 404);
    // The only reader is kept busy for longer than a request may take.
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let mut busy = server.client();
        scope.spawn(move || {
            // Until the other side is gone, be it by a failed assertion.
            while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                let answer = busy.get_with("/slow/1", &[("Cache-Control", "no-cache")]);
                assert!(matches!(answer.status, 200 | 504), "{answer:?}");
            }
        });
        let _stop = stop;
        await_until("an expired entry and a failed read", SOON, || {
            let answer = client.get("/products/1");
            assert_eq!((answer.status, &answer.body), (200, &fine.body));
            answer.cache() == "stale"
        });
        await_until("a read that fails and has nothing to stand in", SOON, || {
            let answer = client.get("/products/2");
            assert_ne!(answer.status, 200, "what was deleted does not come back");
            answer.status == 504 || answer.cache() == "stale"
        });
        let mut id = 1000;
        await_until("504 for what was never read", SOON, || {
            id += 1;
            let answer = client.get(&format!("/products/{id}"));
            assert!(matches!(answer.status, 404 | 504), "{answer:?}");
            answer.status == 504
        });
    });
    await_until("reads to work again", SOON, || client.get("/products/3").status == 200);
}
