//! Threads that exist only for PostgreSQL, or have other tasks there, recover from a panic.

use crate::postgres::shop::{Shop, await_body, await_started, cached, losses, starts};
use hotrow_testkit::harness::panics::Panicking;
use hotrow_testkit::harness::{SOON, await_until};

#[test]
fn a_feed_that_panics_is_a_loss_and_follows_again() {
    let shop = Shop::with_products();
    let panicking = Panicking::once(&shop.config(&["products"]), "feed");
    let mut client = panicking.server.client();
    cached(&mut client, "/products/1");
    panicking.panic_once(|_| ());
    assert_eq!(losses(&panicking.server, Some("feed_failed")), 1.0);
    await_until("the feed to start again", SOON, || starts(&panicking.server) == 2.0);
    await_started(&panicking.server, 1.0);
    assert_eq!(client.get("/products/1").cache(), "miss", "what was cached before is not served");
    shop.server.batch("UPDATE products SET price = 5 WHERE id = 1");
    await_body(&mut client, "/products/1", r#"{"id":1,"name":"p1","price":5}"#);
    panicking.ends_well();
}

#[test]
fn the_thread_that_drives_the_connections_comes_back() {
    let shop = Shop::with_products();
    let panicking = Panicking::once(&shop.config(&["products"]), "postgres");
    let mut client = panicking.server.client();
    cached(&mut client, "/products/1");
    panicking.panic_once(|_| ());
    for id in 2..50 {
        await_body(
            &mut client,
            &format!("/products/{id}"),
            &format!(r#"{{"id":{id},"name":"p{id}","price":{}}}"#, 100 * id),
        );
    }
    assert_eq!(losses(&panicking.server, None), 0.0, "the feed has connections of its own");
    panicking.ends_well();
}
