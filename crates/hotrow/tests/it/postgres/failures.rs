//! Failures of PostgreSQL beside those of [`crate::shop::failures`]: refused connections and a
//! fail-over.

use std::time::{Duration, Instant};

use crate::postgres::proxy::CLASSES;
use crate::postgres::shop::Shop;
use crate::shop::failures::config;
use crate::shop::{await_body, await_readyz, await_started, cached, losses, starts};
use hotrow_testkit::harness::{Config, SOON, Server, await_until};

const NEW: &str = r#"{"id":1,"name":"p1","price":1}"#;
const CHANGE: &str = "UPDATE products SET price = 1 WHERE id = 1";

#[test]
fn reconnecting_backs_off() {
    let shop = Shop::with_products();
    let server = Server::start(&config(&shop, "bypass"));
    let started = starts(&server);
    shop.proxy.refuse(&CLASSES, true);
    shop.proxy.cut(&CLASSES);
    await_readyz(&server, 503);
    let begun = Instant::now();
    let log = server.log().len();
    await_until("some seconds to pass", SOON, || begun.elapsed() > Duration::from_secs(4));
    // Without a back-off, thousands of attempts would fit.
    let lines = server.log()[log..].lines().count();
    assert!(lines < 200, "{lines} lines in 4 s");
    shop.proxy.clear_faults();
    await_started(&server, started);
}

#[test]
fn fail_over_to_another_address() {
    let primary = Shop::with_products();
    let standby = primary.server.standby(&[]);
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", primary.server.port(), standby.port());
    let config =
        Config::over(&format!("postgres://{}@{hosts}/postgres", crate::postgres::server::ROLE))
            .collection("products")
            .set("collections.products.allow_min_position", "true")
            .set("cache.max_staleness", "\"500ms\"");
    let server = Server::start(&config);
    let mut client = server.client();
    cached(&mut client, "/products/1");
    let old = primary.position();
    await_until("the standby to have caught up", SOON, || {
        let received = "SELECT pg_last_wal_replay_lsn() >= (SELECT max(pg_lsn) \
                        FROM (SELECT pg_last_wal_receive_lsn() AS pg_lsn) r)";
        standby.query(received) == "t" && standby.query("SELECT count(*) FROM products") == "200"
    });
    let Shop { proxy, server: mut old_primary } = primary;
    old_primary.kill9();
    standby.promote();
    standby.batch(CHANGE);
    await_readyz(&server, 200);
    await_body(&mut client, "/products/1", NEW);
    assert!(losses(&server, None) >= 1.0);
    let answer = client.get_with("/products/1", &[("Hotrow-Min-Position", &old)]);
    assert_eq!(answer.status, 400, "a position of the timeline before: {answer:?}");
    // The cache works with the new server.
    cached(&mut client, "/products/2");
    standby.batch("UPDATE products SET price = 9 WHERE id = 2");
    await_body(&mut client, "/products/2", r#"{"id":2,"name":"p2","price":9}"#);
    // The old server returns as a primary of the old timeline: it is first in the list and must not
    // be used.
    old_primary.restart();
    standby.batch("UPDATE products SET price = 10 WHERE id = 2");
    await_body(&mut client, "/products/2", r#"{"id":2,"name":"p2","price":10}"#);
    drop(proxy);
}
