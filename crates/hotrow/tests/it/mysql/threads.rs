//! Panics of threads that exist only over MySQL and MariaDB, or do other work there.

use crate::mysql::server::Server as Database;
use crate::mysql::shop::{
    await_body, await_started, cached, config, losses, starts, with_products,
};
use hotrow_testkit::harness::panics::Panicking;
use hotrow_testkit::harness::{SOON, await_until};

#[test]
fn a_panic_of_the_feed_is_a_loss_and_it_restarts() {
    let database = with_products(Database::start(&[]));
    let panicking = Panicking::once(&config(&database, &["products"]), "feed");
    let mut client = panicking.server.client();
    cached(&mut client, "/products/1");
    panicking.panic_once(|_| ());
    let lost =
        panicking.server.metrics().sum("hotrow_feed_losses_total", &[("cause", "feed_failed")]);
    assert_eq!(lost, 1.0);
    await_until("the feed to start again", SOON, || starts(&panicking.server) == 2.0);
    await_started(&panicking.server, 1.0);
    assert_eq!(
        client.get("/products/1").cache(),
        "miss",
        "records cached before the loss are not served"
    );
    database.batch("UPDATE products SET price = 5 WHERE id = 1");
    await_body(&mut client, "/products/1", r#"{"id":1,"name":"p1","price":5}"#);
    panicking.ends_well();
}

#[test]
fn a_panicked_connection_thread_is_restarted() {
    let database = with_products(Database::start(&[]));
    let panicking = Panicking::once(&config(&database, &["products"]), "mysql");
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
    assert_eq!(losses(&panicking.server), 0.0, "the feed has separate connections");
    panicking.ends_well();
}
