//! `/history` and `/hot-keys` of a real process.

use hotrow_testkit::harness::{Config, Database, SOON, Server, await_some, await_until};
use serde_json::Value;

use super::redis::{redis_cli, with_redis};

fn start(settings: &[(&str, &str)]) -> (Database, Server) {
    let database = Database::with_products(3);
    let config = Config::new(database.path()).collection("products").with(settings);
    let server = Server::start(&config);
    (database, server)
}

fn history(server: &Server, since: u64) -> Value {
    server.admin_client().get(&format!("/history?since={since}")).json()
}

/// Returns the sum of a series over its samples, weighted by their length: the count itself.
fn count(history: &Value, series: &str) -> f64 {
    let rates = history["series"][series].as_array().unwrap().iter();
    let intervals = history["interval_ms"].as_array().unwrap().iter();
    let product = |(rate, interval): (&Value, &Value)| {
        rate.as_f64().unwrap_or(0.0) * interval.as_f64().unwrap() / 1e3
    };
    rates.zip(intervals).map(product).sum()
}

#[test]
fn the_samples_add_up_to_the_requests() {
    let database = Database::with_products(3);
    let config = Config::new(database.path()).collection("products");
    let server = Server::start(&with_redis(config));
    await_until("the first sample", SOON, || history(&server, 0)["next"].as_u64() > Some(0));
    let mut client = server.client();
    for path in ["/products/1", "/products/1", "/products/2", "/products/9", "/nothing/1"] {
        client.get(path);
    }
    // As requests: a hit, a hit of two keys, a miss without a record, and a refusal. Not `PING`.
    for command in
        [&["GET", "products:1"][..], &["MGET", "products:2", "products:9"], &["GET", "products:8"]]
    {
        redis_cli(&server, command);
    }
    redis_cli(&server, &["PING"]);
    redis_cli(&server, &["GET", "nothing:1"]);
    let history = await_some("samples of all requests", SOON, || {
        let found = history(&server, 0);
        (count(&found, "requests.none").round() >= 2.0).then_some(found)
    });
    let counts = ["requests.hit", "requests.miss", "requests.none", "status.2xx", "status.4xx"];
    let counts = counts.map(|series| count(&history, series).round());
    assert_eq!(counts, [3.0, 4.0, 2.0, 5.0, 4.0], "{history}");
    assert_eq!(count(&history, "lookups.memory").round(), 4.0);
    let of_collection = &history["collections"]["products"];
    let samples = history["at_unix_ms"].as_array().unwrap().len();
    assert_eq!(of_collection["memory"].as_array().map(Vec::len), Some(samples));
    assert_eq!(history["heat"]["counts"].as_array().map(Vec::len), Some(samples));
    // Only what is new is sent again.
    let next = history["next"].as_u64().unwrap();
    let rest = self::history(&server, next);
    assert_eq!(rest["first"], next);
    assert!(rest["at_unix_ms"].as_array().unwrap().len() < samples);
    server.admin_client().get("/history?since=-1").problem(400);
    server.admin_client().get("/history?from=1").problem(400);
}

#[test]
fn the_most_requested_key_is_shown_unless_that_is_switched_off() {
    for (setting, is_shown) in [("true", true), ("false", false)] {
        let (_database, server) = start(&[("admin.hot_keys", setting)]);
        let mut client = server.client();
        (0..6).for_each(|_| _ = client.get("/products/2"));
        client.get("/products?ids=1,2");
        let hot_keys = || server.admin_client().get("/hot-keys").json();
        if is_shown {
            let found = await_some("samples of keys", SOON, || {
                let found = hot_keys();
                let keys = found["collections"]["products"]["keys"].as_array()?.len();
                (keys == 2).then_some(found)
            });
            let key = &found["collections"]["products"]["keys"][0];
            assert_eq!(key["id"], "2", "{found}");
            // Seven of eight; less if time passed between them, for the earlier weigh less.
            let share = key["share"].as_f64().unwrap();
            assert!((0.7..0.876).contains(&share), "{found}");
        } else {
            await_until("two samples", SOON, || history(&server, 0)["next"].as_u64() > Some(1));
            let off = serde_json::json!({ "enabled": false, "collections": {} });
            assert_eq!(hot_keys(), off);
        }
    }
}
