//! Failures of the server: killed, stopped, restarted, or replaced by another one. Answers stay
//! within the contract, and the service recovers without intervention.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::postgres::proxy::{BOTH, CLASSES, Class, FEED, Way};
use crate::postgres::server::Stop;
use crate::postgres::shop::{
    Shop, await_body, await_readyz, await_started, cached, losses, staleness, starts,
};
use hotrow_testkit::harness::{Config, SOON, Server, await_until};

const OLD: &str = r#"{"id":1,"name":"p1","price":100}"#;
const NEW: &str = r#"{"id":1,"name":"p1","price":1}"#;
const CHANGE: &str = "UPDATE products SET price = 1 WHERE id = 1";
const BOUND: Duration = Duration::from_millis(500);

fn config(shop: &Shop, policy: &str) -> Config {
    shop.config(&["products"])
        .set("cache.max_staleness", "\"500ms\"")
        .set("cache.when_stale", &format!("\"{policy}\""))
        .set("source.read_timeout", "\"700ms\"")
}

/// Waits until the metrics show the feed past its bound, and checks that everything else agrees.
#[track_caller]
fn await_stale(server: &Server) {
    await_readyz(server, 503);
    let metrics = server.metrics();
    assert_eq!(metrics.sum("hotrow_feed_current", &[]), 0.0);
    assert!(staleness(server) >= BOUND);
}

#[test]
fn past_the_bound_the_policy_acts() {
    for policy in ["bypass", "stale", "refuse"] {
        let shop = Shop::with_products();
        let server = Server::start(&config(&shop, policy));
        let mut client = server.client();
        assert_eq!(cached(&mut client, "/products/1").text(), OLD);
        // Only the feed is held: nothing is closed and nothing is lost, but freshness is unknown.
        shop.proxy.hold(&[Class::Replication], &BOTH);
        shop.server.batch(CHANGE);
        let changed = Instant::now();
        await_stale(&server);
        // Until then an answer from before the change is within the bound.
        await_until("the bound to pass", SOON, || changed.elapsed() > BOUND);
        let answer = client.get("/products/1");
        match policy {
            "bypass" => assert_eq!((answer.status, answer.text().as_str()), (200, NEW)),
            "stale" => assert_eq!((answer.cache(), answer.text().as_str()), ("stale", OLD)),
            _ => assert_eq!((answer.status, answer.header("retry-after").is_some()), (503, true)),
        }
        shop.proxy.calm();
        await_readyz(&server, 200);
        await_body(&mut client, "/products/1", NEW);
        assert_eq!(server.metrics().sum("hotrow_feed_current", &[]), 1.0);
    }
}

#[test]
fn a_late_keep_alive_proves_nothing() {
    let shop = Shop::with_products();
    let server = Server::start(&config(&shop, "stale"));
    let mut client = server.client();
    cached(&mut client, "/products/1");
    let late = BOUND * 3;
    shop.proxy.delay(&[Class::Replication], &[Way::ToService], late);
    // In a log without new records nothing can be late, so the test writes continuously.
    let mut price = 0;
    let mut write = || {
        price += 1;
        shop.server.batch(&format!("UPDATE products SET price = {price} WHERE id = 2"));
    };
    await_until("the bound to be passed", SOON, || {
        write();
        server.metrics().sum("hotrow_feed_current", &[]) == 0.0
    });
    await_stale(&server);
    // Keep-alives arrive with this delay: staleness is never less, at any time.
    let begun = Instant::now();
    while begun.elapsed() < late * 2 {
        write();
        let now = staleness(&server);
        assert!(now >= BOUND, "{now:?} although everything is late by {late:?}");
    }
    await_until("something to arrive", SOON, || staleness(&server) < late * 2);
    shop.proxy.calm();
    await_readyz(&server, 200);
}

/// A flag that is set on drop.
struct Raised<'a>(&'a AtomicBool);

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn a_killed_server_under_load() {
    let mut shop = Shop::with_products();
    let server = Server::start(&config(&shop, "bypass"));
    let stop = AtomicBool::new(false);
    let answered = AtomicU64::new(0);
    let refused = AtomicU64::new(0);
    // The price that every row has had for longer than the bound.
    let settled = AtomicU64::new(0);
    std::thread::scope(|scope| {
        // A failure here must end the readers, because the scope waits for them.
        let _ends = Raised(&stop);
        for reader in 0..6_u32 {
            let server = &server;
            let stop = &stop;
            let answered = &answered;
            let refused = &refused;
            let settled = &settled;
            scope.spawn(move || {
                let mut client = server.client();
                for turn in reader.. {
                    if stop.load(Ordering::Acquire) {
                        return;
                    }
                    let floor = settled.load(Ordering::Acquire);
                    let headers: &[(&str, &str)] =
                        if turn % 9 == 0 { &[("Cache-Control", "no-cache")] } else { &[] };
                    let answer = client.get_with(&format!("/products/{}", 1 + turn % 50), headers);
                    match answer.status {
                        200 => {
                            assert!(
                                answer.json()["price"].as_u64() >= Some(floor),
                                "below {floor}: {answer:?}"
                            );
                            _ = answered.fetch_add(1, Ordering::Relaxed);
                        }
                        503 | 504 => _ = refused.fetch_add(1, Ordering::Relaxed),
                        _ => panic!("{answer:?}"),
                    }
                }
            });
        }
        for round in 1..=3_u64 {
            let before = answered.load(Ordering::Relaxed);
            await_until("answers", SOON, || answered.load(Ordering::Relaxed) > before + 1000);
            let started = starts(&server);
            shop.server.kill9();
            await_readyz(&server, 503);
            await_until("the loss to be counted", SOON, || {
                losses(&server, Some("unavailable")) >= round as f64
            });
            let before = refused.load(Ordering::Relaxed);
            await_until("refusals", SOON, || refused.load(Ordering::Relaxed) > before);
            shop.server.restart();
            await_started(&server, started);
            let price = 1_000_000 * round;
            shop.server.batch(&format!("UPDATE products SET price = {price}"));
            let begun = Instant::now();
            let body = format!("{{\"id\":1,\"name\":\"p1\",\"price\":{price}}}");
            await_body(&mut server.client(), "/products/1", &body);
            await_until("the bound to pass", SOON, || begun.elapsed() > BOUND);
            settled.store(price, Ordering::Release);
        }
    });
    assert_eq!(server.metrics().sum("hotrow_source_reachable", &[]), 1.0);
}

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
    shop.proxy.calm();
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
    shop.proxy.lead_to(other.port());
    shop.proxy.cut(&CLASSES);
    await_body(&mut client, "/products/1", r#"{"id":1,"other":"x"}"#);
    await_readyz(&server, 200);
    assert!(losses(&server, None) >= 1.0);
    assert_eq!(client.get_with("/products/1", &[("Hotrow-Min-Position", &old)]).status, 400);
}
