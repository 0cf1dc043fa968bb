//! Threads that exist only over MongoDB, or that do other work there: they can panic and are
//! restarted.

use crate::mongodb::shop::{Shop, await_body, await_started, body, cached, starts};
use hotrow_testkit::harness::panics::Panicking;
use hotrow_testkit::harness::{SOON, await_until};

#[test]
fn a_feed_that_panics_is_a_loss_and_follows_again() {
    let shop = Shop::on_standin();
    let panicking = Panicking::once(&shop.config(&["products"]), "feed");
    let mut client = panicking.server.client();
    cached(&mut client, "/products/1");
    panicking.panic_once(|_| ());
    let lost =
        panicking.server.metrics().sum("hotrow_feed_losses_total", &[("cause", "feed_failed")]);
    assert_eq!(lost, 1.0);
    await_until("the feed to start again", SOON, || starts(&panicking.server) == 2.0);
    await_started(&panicking.server, 1.0);
    assert_eq!(client.get("/products/1").cache(), "miss", "what was cached before is not served");
    shop.set_price(1, 5);
    await_body(&mut client, "/products/1", &body(1, 5));
    panicking.ends_well();
}

#[test]
fn the_connection_thread_runs_again_after_a_panic() {
    let shop = Shop::on_standin();
    let panicking = Panicking::once(&shop.config(&["products"]), "mongodb");
    let mut client = panicking.server.client();
    cached(&mut client, "/products/1");
    panicking.panic_once(|_| ());
    for id in 2..50 {
        await_body(&mut client, &format!("/products/{id}"), &body(id, 100 * id));
    }
    panicking.ends_well();
}
