//! `source.feed = "none"`: a server that gives no change feed is served by TTL alone.

use crate::harness::{Config, SOON, Server, await_until};
use crate::shop::Shop;

/// Without logical decoding, and with a user who may not replicate.
fn shop() -> Shop {
    let shop = Shop::with_products_and(&[("wal_level", "replica")]);
    shop.server.batch("CREATE ROLE reader LOGIN; GRANT SELECT ON products TO reader");
    shop
}

fn config(shop: &Shop) -> Config {
    let url = shop.proxy.url().replacen("postgres@", "reader@", 1);
    Config::over(&url).set("source.feed", "\"none\"").set("cache.ttl", "\"1h\"").collection("products")
}

#[test]
fn neither_a_publication_nor_a_slot_is_wanted() {
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
    let left = "SELECT (SELECT count(*) FROM pg_publication) + (SELECT count(*) FROM pg_replication_slots)";
    assert_eq!(shop.server.query(left), "0");
    shop.server.batch("ALTER TABLE products ADD COLUMN colour text DEFAULT 'red'");
    await_until("the new column", SOON, || client.get("/products/1").json()["colour"] == "red");
}

#[test]
fn entries_live_on_while_the_server_is_away() {
    let shop = shop();
    let server = Server::start(&config(&shop));
    let mut client = server.client();
    client.get("/products/1");
    let all = crate::proxy::CLASSES;
    shop.proxy.refuse(&all, true);
    shop.proxy.cut(&all);
    await_until("a read to fail", SOON, || client.get("/products/2").status == 503);
    assert_eq!(client.get("/products/1").cache(), "hit");
    shop.proxy.refuse(&all, false);
    await_until("a read to work again", SOON, || client.get("/products/3").status == 200);
    assert_eq!(client.get("/products/1").cache(), "hit", "coming back loses nothing");
}
