//! Reads as the deployment sees them: bounded in connections, and large answers.

use std::time::Duration;

use mongodb::bson::doc;

use crate::mongodb::shop::Shop;
use crate::mongodb::standin::Fault;
use hotrow_testkit::harness::Server;

#[test]
fn readers_connections_are_bounded() {
    let shop = Shop::on_standin();
    let config = shop
        .config_of(&["products"])
        .set("source.reads_in_flight", "3")
        .set("source.merge", "false");
    // Forty reads of 30 ms, three at once, are an overload; here all are to be answered.
    let server = Server::start(&config.set("limits.concurrency.queue", "\"fifo\""));
    let standin = shop.mongo.standin();
    let before = standin.connections();
    standin.inject("find", Fault::Delay(Duration::from_millis(30)));
    std::thread::scope(|scope| {
        for id in 1..=40 {
            let server = &server;
            scope.spawn(move || assert_eq!(server.get(&format!("/products/{id}")).status, 200));
        }
    });
    assert!(
        standin.connections() <= before + 3,
        "{} before, {} now",
        before,
        standin.connections()
    );
}

#[test]
fn many_keys_in_one_answer() {
    let shop = Shop::with_products();
    shop.mongo.insert("large", (1..=60).map(|n| doc! { "_id": n, "text": "x".repeat(500_000) }));
    let server = Server::start(&shop.config_of(&["products", "large"]).with(&[
        ("limits.max_batch", "200"),
        ("limits.request_timeout", "\"60s\""),
        ("source.read_timeout", "\"50s\""),
    ]));
    let ids: Vec<String> = (1..=60).map(|id| id.to_string()).collect();
    // More than one message can hold, so the database answers in parts.
    let answer = server.get(&format!("/large?ids={}", ids.join(",")));
    assert_eq!(answer.status, 200, "{:.300}", answer.text());
    let text = answer.text();
    assert_eq!(text.matches("\"_id\":").count(), 60);
}
