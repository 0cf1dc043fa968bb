//! Failures of PostgreSQL beside those of [`crate::shop::failures`]: ended sessions, restarts,
//! refused connections, and a server replaced by another one.

use std::time::{Duration, Instant};

use crate::postgres::proxy::{CLASSES, FEED};
use crate::postgres::server::Stop;
use crate::postgres::shop::Shop;
use crate::shop::failures::config;
use crate::shop::{await_body, await_readyz, await_started, cached, losses, starts};
use hotrow_testkit::harness::{Config, SOON, Server, await_until};

const NEW: &str = r#"{"id":1,"name":"p1","price":1}"#;
const CHANGE: &str = "UPDATE products SET price = 1 WHERE id = 1";

#[test]
fn restarts_ended_sessions_and_cut_connections() {
    let mut shop = Shop::with_products();
    let server = Server::start(&config(&shop, "bypass"));
    let mut client = server.client();
    let check = |price: u32, client: &mut hotrow_testkit::harness::Client, shop: &Shop| {
        shop.server.batch(&format!("UPDATE products SET price = {price} WHERE id = 1"));
        await_body(
            client,
            "/products/1",
            &format!("{{\"id\":1,\"name\":\"p1\",\"price\":{price}}}"),
        );
    };
    let mut known = (0.0, starts(&server));
    let mut await_loss = |what: &str| {
        await_until(what, SOON, || losses(&server, None) > known.0);
        await_started(&server, known.1);
        known = (losses(&server, None), starts(&server));
    };
    cached(&mut client, "/products/1");
    shop.server.batch("SELECT pg_terminate_backend(pid) FROM pg_stat_replication");
    await_loss("the loss of a terminated session");
    check(1, &mut client, &shop);
    shop.proxy.cut(&FEED);
    await_loss("the loss of cut connections");
    check(2, &mut client, &shop);
    shop.server.stop(Stop::Fast);
    shop.server.restart();
    await_loss("the loss of a restart");
    check(3, &mut client, &shop);
    let all = "pid <> pg_backend_pid() AND backend_type IN ('client backend', 'walsender')";
    shop.server
        .batch(&format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {all}"));
    await_loss("the loss of all sessions");
    check(4, &mut client, &shop);
    // One slot, regardless of how often the feed started.
    await_until("one slot", SOON, || {
        shop.server.query("SELECT count(*) FROM pg_replication_slots") == "1"
    });
}

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

#[test]
fn another_server_behind_the_same_address_is_noticed() {
    let shop = Shop::with_products();
    let server = Server::start(&config(&shop, "bypass"));
    let mut client = server.client();
    cached(&mut client, "/products/1");
    let old = shop.position();
    let other = crate::postgres::server::Server::start_other(&[]);
    other.make_owner_role();
    other.batch(
        "CREATE TABLE products(id integer PRIMARY KEY, other text); \
         INSERT INTO products VALUES (1, 'x')",
    );
    shop.proxy.set_target(other.port());
    shop.proxy.cut(&CLASSES);
    await_body(&mut client, "/products/1", r#"{"id":1,"other":"x"}"#);
    await_readyz(&server, 200);
    assert!(losses(&server, None) >= 1.0);
    assert_eq!(client.get_with("/products/1", &[("Hotrow-Min-Position", &old)]).status, 400);
}
