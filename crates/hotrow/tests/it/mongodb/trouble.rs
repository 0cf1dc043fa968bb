//! Failures of the deployment, on the stand-in: it disappears, stops answering, comes back, elects
//! another primary, or is replaced. The service reports the truth in the meantime, and recovers by
//! itself.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::mongodb::place::Place;
use crate::mongodb::shop::{
    Shop, await_body, await_readyz, await_started, body, cached, losses, staleness, starts,
};
use crate::mongodb::standin::{Failure, Kind, Standin, Trouble};
use hotrow_testkit::harness::{Config, SOON, Server, await_until};

const BOUND: Duration = Duration::from_millis(500);

fn config(shop: &Shop, policy: &str) -> Config {
    shop.config(&["products"])
        .set("cache.max_staleness", "\"500ms\"")
        .set("cache.when_stale", &format!("\"{policy}\""))
        .set("source.read_timeout", "\"700ms\"")
        .set("source.connect_timeout", "\"2s\"")
}

/// Waits until the feed is past its bound by the metrics, and checks that all other reports agree.
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
        let shop = Shop::on_standin();
        let server = Server::start(&config(&shop, policy));
        let mut client = server.client();
        assert_eq!(cached(&mut client, "/products/1").text(), body(1, 100));
        // Only the feed stops: nothing is closed or lost, but freshness is unknown.
        shop.place.standin().trouble("getMore", Trouble::Hold);
        shop.set_price(1, 1);
        let changed = Instant::now();
        await_stale(&server);
        // Before that, an answer from before the change is within the bound.
        await_until("the bound to pass", SOON, || changed.elapsed() > BOUND);
        let answer = client.get("/products/1");
        match policy {
            "bypass" => assert_eq!((answer.status, answer.text()), (200, body(1, 1))),
            "stale" => assert_eq!((answer.cache(), answer.text()), ("stale", body(1, 100))),
            _ => assert_eq!((answer.status, answer.header("retry-after").is_some()), (503, true)),
        }
        shop.place.standin().calm("getMore");
        await_readyz(&server, 200);
        await_body(&mut client, "/products/1", &body(1, 1));
        assert_eq!(server.metrics().sum("hotrow_feed_current", &[]), 1.0);
    }
}

#[test]
fn a_late_token_does_not_advance_freshness() {
    let shop = Shop::on_standin();
    let server = Server::start(&config(&shop, "stale"));
    let mut client = server.client();
    cached(&mut client, "/products/1");
    let late = BOUND * 3;
    shop.place.standin().trouble("getMore", Trouble::Delay(late));
    // A delay shows only if the log grows, so the test writes all the time.
    let mut price = 0;
    let mut write = || {
        price += 1;
        shop.set_price(2, price);
    };
    await_until("the bound to be passed", SOON, || {
        write();
        server.metrics().sum("hotrow_feed_current", &[]) == 0.0
    });
    await_stale(&server);
    let began_at = Instant::now();
    while began_at.elapsed() < late * 2 {
        write();
        let now = staleness(&server);
        assert!(now >= BOUND, "{now:?} although everything is late by {late:?}");
    }
    shop.place.standin().calm("getMore");
    await_readyz(&server, 200);
}

/// Guard that sets a flag when it is dropped.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn a_stopped_server_under_load() {
    let mut shop = Shop::on_standin();
    let server = Server::start(&config(&shop, "bypass"));
    let stop = AtomicBool::new(false);
    let answered = AtomicU64::new(0);
    let refused = AtomicU64::new(0);
    // Price that every document has had for longer than the bound.
    let settled = AtomicU64::new(0);
    std::thread::scope(|scope| {
        // A failure here must end the readers, because the scope would wait for them.
        let _ends = SetOnDrop(&stop);
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
        for round in 1..=3_i32 {
            let before = answered.load(Ordering::Relaxed);
            await_until("answers", SOON, || answered.load(Ordering::Relaxed) > before + 1000);
            shop.place.standin_mut().stop(0);
            await_readyz(&server, 503);
            let before = refused.load(Ordering::Relaxed);
            await_until("refusals", SOON, || refused.load(Ordering::Relaxed) > before);
            shop.place.standin_mut().restart(0);
            await_readyz(&server, 200);
            let price = 1_000_000 * round;
            // A driver does not repeat an update of many documents by itself, and its connections
            // died with the server.
            await_until("the prices to be set", SOON, || {
                let set = mongodb::bson::doc! { "$set": { "price": price } };
                let all = mongodb::bson::doc! {};
                let done = shop.place.try_ask(async |database| {
                    crate::mongodb::place::collection_of(database, "products")
                        .update_many(all, set)
                        .await
                });
                done.is_ok()
            });
            let began_at = Instant::now();
            await_body(&mut server.client(), "/products/1", &body(1, price));
            await_until("the bound to pass", SOON, || began_at.elapsed() > BOUND);
            settled.store(price.unsigned_abs().into(), Ordering::Release);
        }
    });
    assert_eq!(server.metrics().sum("hotrow_source_reachable", &[]), 1.0);
}

#[test]
fn a_resumable_interruption_is_no_loss() {
    let shop = Shop::on_standin();
    let server = Server::start(&config(&shop, "bypass"));
    let mut client = server.client();
    let standin = shop.place.standin();
    let resumable = Failure::new(189, "PrimarySteppedDown", "stepped down")
        .labelled("ResumableChangeStreamError");
    for (price, trouble) in [
        (1, Trouble::Cut),
        (2, Trouble::Fail(resumable)),
        (3, Trouble::Fail(Failure::new(43, "CursorNotFound", "gone"))),
    ] {
        cached(&mut client, "/products/1");
        standin.trouble_times("getMore", trouble, Some(1));
        shop.set_price(1, price);
        await_body(&mut client, "/products/1", &body(1, price));
        standin.calm("getMore");
    }
    // All connections at once, and changes while there is none.
    standin.refuse_connections(true);
    cached(&mut client, "/products/1");
    let watched = standin.commands("watch");
    standin.cut(None);
    standin.refuse_connections(false);
    shop.set_price(1, 4);
    await_body(&mut client, "/products/1", &body(1, 4));
    await_until("the stream to be opened again", SOON, || standin.commands("watch") > watched);
    await_readyz(&server, 200);
    assert_eq!(
        losses(&server, None),
        0.0,
        "every one of them was resumed by its token: {}",
        server.log()
    );
    await_until("earlier cursors to be closed", SOON, || standin.streams() <= 3);
}

#[test]
fn a_lost_history_is_reported_as_a_loss() {
    let shop = Shop::on_standin();
    let server = Server::start(&config(&shop, "bypass"));
    let mut client = server.client();
    let standin = shop.place.standin();
    cached(&mut client, "/products/1");
    let started = starts(&server);
    let watched = standin.commands("watch");
    // The stream is interrupted, changes pass by, and the oplog is pruned.
    standin.trouble("getMore", Trouble::Cut);
    standin.trouble(
        "watch",
        Trouble::Fail(
            Failure::new(91, "ShutdownInProgress", "not now")
                .labelled("ResumableChangeStreamError"),
        ),
    );
    await_until("the feed to be without a stream", SOON, || standin.commands("watch") > watched);
    shop.set_price(1, 5);
    standin.prune_oplog();
    standin.calm("getMore");
    standin.calm("watch");
    await_started(&server, started);
    assert!(losses(&server, Some("log_pruned")) >= 1.0, "{}", server.log());
    await_body(&mut client, "/products/1", &body(1, 5));
    cached(&mut client, "/products/1");
    shop.set_price(1, 6);
    await_body(&mut client, "/products/1", &body(1, 6));
}

#[test]
fn fail_over_within_the_set_loses_nothing() {
    let mut shop = Shop::filled(Place::on_kind(Kind::ReplicaSet, 2));
    let server = Server::start(&config(&shop, "bypass").set("limits.position_wait", "\"3s\""));
    let mut client = server.client();
    let before = cached(&mut client, "/products/1");
    shop.set_price(1, 1);
    let position = shop.position(&before);
    shop.place.standin().elect(1);
    shop.place.standin_mut().stop(0);
    shop.set_price(2, 2);
    await_body(&mut client, "/products/2", &body(2, 2));
    await_body(&mut client, "/products/1", &body(1, 1));
    // An earlier position is of the same log.
    await_readyz(&server, 200);
    let answer = client.get_with("/products/1", &[("Hotrow-Min-Position", &position)]);
    assert_eq!((answer.status, answer.text()), (200, body(1, 1)));
    assert_eq!(losses(&server, None), 0.0, "{}", server.log());
    // Back to the first member.
    shop.place.standin_mut().restart(0);
    shop.place.standin().elect(0);
    cached(&mut client, "/products/3");
    shop.set_price(3, 3);
    await_body(&mut client, "/products/3", &body(3, 3));
    assert_eq!(losses(&server, None), 0.0, "{}", server.log());
}

#[test]
fn another_set_behind_the_same_address_is_noticed() {
    let shop = Shop::on_standin();
    let server = Server::start(&config(&shop, "bypass"));
    let mut client = server.client();
    let before = cached(&mut client, "/products/1");
    let position = shop.position(&before);
    let port = shop.place.standin().port(0);
    drop(shop);
    let other = Shop { place: Place::on(Standin::at(port)) };
    other.place.insert("products", [mongodb::bson::doc! { "_id": 1, "other": "x" }]);
    await_body(&mut client, "/products/1", r#"{"_id":1,"other":"x"}"#);
    await_readyz(&server, 200);
    assert!(losses(&server, None) >= 1.0);
    assert_eq!(client.get_with("/products/1", &[("Hotrow-Min-Position", &position)]).status, 400);
    cached(&mut client, "/products/1");
    other.place.replace("products", 1, mongodb::bson::doc! { "other": "y" });
    await_body(&mut client, "/products/1", r#"{"_id":1,"other":"y"}"#);
}

#[test]
fn reconnecting_backs_off() {
    let shop = Shop::on_standin();
    let server = Server::start(&config(&shop, "bypass"));
    let standin = shop.place.standin();
    standin.trouble(
        "watch",
        Trouble::Fail(
            Failure::new(91, "ShutdownInProgress", "not now")
                .labelled("ResumableChangeStreamError"),
        ),
    );
    standin.trouble("getMore", Trouble::Cut);
    await_readyz(&server, 503);
    let began_at = Instant::now();
    let log = server.log().len();
    let watched = standin.commands("watch");
    await_until("some seconds to pass", SOON, || began_at.elapsed() > Duration::from_secs(4));
    // Without a back-off, thousands of attempts would fit.
    let log_lines = server.log()[log..].lines().count();
    assert!(log_lines < 200, "{log_lines} lines in 4 s");
    assert!(
        standin.commands("watch") - watched < 200,
        "{} attempts in 4 s",
        standin.commands("watch") - watched
    );
    standin.calm("watch");
    standin.calm("getMore");
    await_readyz(&server, 200);
}
