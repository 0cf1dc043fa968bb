//! Failures of MongoDB beside those of [`crate::shop::failures`], on the stand-in: interrupted
//! streams, a lost history, elections, and a set replaced by another one.

use std::time::{Duration, Instant};

use crate::backend::mongo::shutdown;
use crate::mongodb::mongo::MongoDatabase;
use crate::mongodb::shop::{Shop, body};
use crate::mongodb::standin::{Failure, Fault, Kind, Standin};
use crate::shop::failures::config;
use crate::shop::{await_body, await_readyz, await_started, cached, losses, starts};
use hotrow_testkit::harness::{SOON, Server, await_until};

#[test]
fn a_resumable_interruption_is_no_loss() {
    let shop = Shop::on_standin();
    let server = Server::start(&config(&shop, "bypass"));
    let mut client = server.client();
    let standin = shop.mongo.standin();
    let resumable = Failure::new(189, "PrimarySteppedDown", "stepped down")
        .labelled("ResumableChangeStreamError");
    for (price, fault) in [
        (1, Fault::Cut),
        (2, Fault::Fail(resumable)),
        (3, Fault::Fail(Failure::new(43, "CursorNotFound", "gone"))),
    ] {
        cached(&mut client, "/products/1");
        standin.inject_times("getMore", fault, Some(1));
        shop.set_price(1, price);
        await_body(&mut client, "/products/1", &body(1, price));
        standin.clear_faults("getMore");
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
    let standin = shop.mongo.standin();
    cached(&mut client, "/products/1");
    let started = starts(&server);
    let watched = standin.commands("watch");
    // The stream is interrupted, changes pass by, and the oplog is pruned.
    standin.inject("getMore", Fault::Cut);
    standin.inject("watch", Fault::Fail(shutdown()));
    await_until("the feed to be without a stream", SOON, || standin.commands("watch") > watched);
    shop.set_price(1, 5);
    standin.prune_oplog();
    standin.clear_faults("getMore");
    standin.clear_faults("watch");
    await_started(&server, started);
    assert!(losses(&server, Some("log_pruned")) >= 1.0, "{}", server.log());
    await_body(&mut client, "/products/1", &body(1, 5));
    cached(&mut client, "/products/1");
    shop.set_price(1, 6);
    await_body(&mut client, "/products/1", &body(1, 6));
}

#[test]
fn fail_over_within_the_set_loses_nothing() {
    let mut shop = Shop::over(MongoDatabase::on_kind(Kind::ReplicaSet, 2), 2).filled();
    let server = Server::start(&config(&shop, "bypass").set("limits.position_wait", "\"3s\""));
    let mut client = server.client();
    let before = cached(&mut client, "/products/1");
    shop.set_price(1, 1);
    let position = shop.position(&before);
    shop.mongo.standin().elect(1);
    shop.mongo.standin_mut().stop(0);
    shop.set_price(2, 2);
    await_body(&mut client, "/products/2", &body(2, 2));
    await_body(&mut client, "/products/1", &body(1, 1));
    // An earlier position is of the same log.
    await_readyz(&server, 200);
    let answer = client.get_with("/products/1", &[("Hotrow-Min-Position", &position)]);
    assert_eq!((answer.status, answer.text()), (200, body(1, 1)));
    assert_eq!(losses(&server, None), 0.0, "{}", server.log());
    // Back to the first member.
    shop.mongo.standin_mut().restart(0);
    shop.mongo.standin().elect(0);
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
    let port = shop.mongo.standin().port(0);
    drop(shop);
    let other = Shop::over(MongoDatabase::on(Standin::at(port)), 1);
    other.mongo.insert("products", [mongodb::bson::doc! { "_id": 1, "other": "x" }]);
    await_body(&mut client, "/products/1", r#"{"_id":1,"other":"x"}"#);
    await_readyz(&server, 200);
    assert!(losses(&server, None) >= 1.0);
    assert_eq!(client.get_with("/products/1", &[("Hotrow-Min-Position", &position)]).status, 400);
    cached(&mut client, "/products/1");
    other.mongo.replace("products", 1, mongodb::bson::doc! { "other": "y" });
    await_body(&mut client, "/products/1", r#"{"_id":1,"other":"y"}"#);
}

#[test]
fn reconnecting_backs_off() {
    let shop = Shop::on_standin();
    let server = Server::start(&config(&shop, "bypass"));
    let standin = shop.mongo.standin();
    standin.inject("watch", Fault::Fail(shutdown()));
    standin.inject("getMore", Fault::Cut);
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
    standin.clear_faults("watch");
    standin.clear_faults("getMore");
    await_readyz(&server, 200);
}
