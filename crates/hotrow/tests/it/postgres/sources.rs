//! PostgreSQL and SQLite in one process.

use crate::postgres::proxy::CLASSES;
use crate::postgres::server::Stop;
use crate::postgres::shop::Shop;
use crate::shop::{await_body, cached, row};
use hotrow_testkit::harness::{Config, Database, SOON, Server, await_until};

/// Returns the configuration of `products` in PostgreSQL, through the proxy, and of `flags` in a
/// file.
fn config(shop: &Shop, flags: &Database) -> Config {
    shop.config_of(&["products"])
        .set("cache.max_staleness", "\"300ms\"")
        .set("source.read_timeout", "\"500ms\"")
        .set("limits.breaker.failures", "2")
        .set("collections.products.source", "\"default\"")
        .set("sources.flags.url", &format!("\"sqlite:{}\"", flags.path().display()))
        .set("sources.flags.watch", "\"triggers\"")
        .set("collections.flags.source", "\"flags\"")
        .set("collections.flags.table", "\"products\"")
        .set("collections.flags.allow_min_position", "true")
}

#[test]
fn a_server_that_dies_takes_only_its_own_collections_along() {
    let mut shop = Shop::with_products();
    let flags = Database::with_products(20);
    let server = Server::start(&config(&shop, &flags));
    let mut client = server.client();
    shop.server.batch("UPDATE products SET price = 3 WHERE id = 1");
    flags.execute("UPDATE products SET price = 4 WHERE id = 1");
    await_body(&mut client, "/products/1", &row(1, 3));
    await_body(&mut client, "/flags/1", &row(1, 4));
    let of_flags = client.get("/flags/1").position().to_string();
    assert_eq!(client.get_with("/products/1", &[("Hotrow-Min-Position", &of_flags)]).status, 400);
    let of_shop = shop.position();
    assert_eq!(client.get_with("/flags/1", &[("Hotrow-Min-Position", &of_shop)]).status, 400);

    shop.server.stop(Stop::Fast);
    shop.proxy.cut(&CLASSES);
    await_until("the breaker of PostgreSQL to open", SOON, || {
        client.get("/products/2");
        let labels = [("source", "default"), ("state", "open")];
        server.metrics().sum("hotrow_breaker_state", &labels) == 1.0
    });
    // Hits, misses and writes of the file go on.
    cached(&mut client, "/flags/1");
    cached(&mut client, "/flags/2");
    flags.execute("UPDATE products SET price = 5 WHERE id = 1");
    await_body(&mut client, "/flags/1", &row(1, 5));
    let metrics = server.metrics();
    let closed = [("source", "flags"), ("state", "closed")];
    assert_eq!(metrics.sum("hotrow_breaker_state", &closed), 1.0);
    assert_eq!(metrics.sum("hotrow_feed_gaps_total", &[("source", "flags")]), 0.0);
    assert_eq!(server.admin_client().get("/readyz").status, 200, "one source suffices");

    shop.server.restart();
    await_body(&mut client, "/products/1", &row(1, 3));
    shop.server.batch("UPDATE products SET price = 6 WHERE id = 1");
    await_body(&mut client, "/products/1", &row(1, 6));
}
