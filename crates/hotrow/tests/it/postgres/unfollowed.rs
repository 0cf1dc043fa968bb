//! `source.feed = "none"`: a server without a change feed is served by TTL alone.

use crate::postgres::shop::Shop;
use hotrow_testkit::harness::{Config, SOON, Server, await_until};

/// Starts a server without logical decoding, with a user without REPLICATION.
fn shop() -> Shop {
    let shop = Shop::with_products_and(&[("wal_level", "replica")]);
    shop.server.batch("CREATE ROLE reader LOGIN; GRANT SELECT ON products TO reader");
    shop
}

fn config(shop: &Shop) -> Config {
    let url = shop.proxy.url_for("reader");
    Config::over(&url)
        .set("source.feed", "\"none\"")
        .set("cache.ttl", "\"1h\"")
        .collection("products")
}

#[test]
fn neither_a_publication_nor_a_slot_is_needed() {
    let shop = shop();
    let server = Server::start(&config(&shop));
    let mut client = server.client();
    assert_eq!(client.get("/products/1").cache(), "miss");
    shop.server.batch("UPDATE products SET price = 5 WHERE id = 1");
    for _ in 0..100 {
        let answer = client.get("/products/1");
        assert_eq!((answer.cache(), &answer.json()["price"]), ("hit", &serde_json::json!(100)));
        assert_eq!(answer.header("hotrow-position"), None);
    }
    let left = "SELECT (SELECT count(*) FROM pg_publication) + (SELECT count(*) \
                FROM pg_replication_slots)";
    assert_eq!(shop.server.query(left), "0");
    shop.server.batch("ALTER TABLE products ADD COLUMN colour text DEFAULT 'red'");
    await_until("the new column", SOON, || client.get("/products/1").json()["colour"] == "red");
}

#[test]
fn entries_survive_an_outage_of_the_server() {
    let shop = shop();
    let server = Server::start(&config(&shop));
    let mut client = server.client();
    client.get("/products/1");
    let all = crate::postgres::proxy::CLASSES;
    shop.proxy.refuse(&all, true);
    shop.proxy.cut(&all);
    await_until("a read to fail", SOON, || client.get("/products/2").status == 503);
    assert_eq!(client.get("/products/1").cache(), "hit");
    shop.proxy.refuse(&all, false);
    await_until("a read to work again", SOON, || client.get("/products/3").status == 200);
    assert_eq!(client.get("/products/1").cache(), "hit", "coming back loses nothing");
}
