//! Reads of the service: merged, bounded, one query for many cold keys, and up to a writer's own
//! position.

use std::time::Duration;

use mongodb::bson::doc;

use crate::mongodb::shop::{Shop, body, cached};
use crate::mongodb::standin::Trouble;
use hotrow_testkit::harness::{SOON, Server, await_until};

#[test]
fn merged_misses_are_one_query_at_the_server() {
    let shop = Shop::on_standin();
    let standin = shop.place.standin();
    // `fifo`, because the other policy tests sizes of queries in steps while a larger one might
    // take too long.
    let config = shop.config(&["products"]).set("source.reads_in_flight", "1");
    let server = Server::start(&config.set("limits.concurrency.queue", "\"fifo\""));
    cached(&mut server.client(), "/products/200");
    let before = server.queries();
    let finds = standin.commands("find");
    // The only query is held; later reads wait and are sent together.
    standin.trouble_times("find", Trouble::Hold, Some(1));
    let ids: Vec<u32> = (1..=50).collect();
    let answers: Vec<u16> = std::thread::scope(|scope| {
        let first = scope.spawn(|| server.get("/products/100").status);
        await_until("the first to be read", SOON, || standin.commands("find") > finds);
        let server = &server;
        let rest: Vec<_> = ids
            .iter()
            .map(|id| scope.spawn(move || server.get(&format!("/products/{id}")).status))
            .collect();
        await_until("the others to wait", SOON, || {
            server.metrics().sum("hotrow_waiting_keys", &[]) >= 50.0
        });
        standin.calm("find");
        [first].into_iter().chain(rest).map(|one| one.join().expect("an answer")).collect()
    });
    assert!(answers.iter().all(|status| *status == 200), "{answers:?}");
    assert_eq!(server.queries() - before, 2, "by the service's own count");
    assert_eq!(standin.commands("find") - finds, 2, "by the database's own count");
}

#[test]
fn fifty_readers_of_one_cold_key_are_one_query() {
    let shop = Shop::on_standin();
    let server = shop.serve(&["products"]);
    cached(&mut server.client(), "/products/200");
    let before = server.queries();
    shop.place.standin().trouble("find", Trouble::Delay(Duration::from_millis(300)));
    std::thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| assert_eq!(server.get("/products/7").status, 200));
        }
    });
    assert_eq!(server.queries() - before, 1);
}

#[test]
fn readers_connections_are_bounded() {
    let shop = Shop::on_standin();
    let config =
        shop.config(&["products"]).set("source.reads_in_flight", "3").set("source.merge", "false");
    // Forty reads of 30 ms, three at once, are an overload; here all are to be answered.
    let server = Server::start(&config.set("limits.concurrency.queue", "\"fifo\""));
    let standin = shop.place.standin();
    let before = standin.connections();
    standin.trouble("find", Trouble::Delay(Duration::from_millis(30)));
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
fn a_query_over_its_time_limit_is_abandoned() {
    let shop = Shop::on_standin();
    let server = Server::start(&shop.config(&["products"]).set("source.read_timeout", "\"300ms\""));
    cached(&mut server.client(), "/products/1");
    shop.place.standin().trouble("find", Trouble::Hold);
    assert_eq!(server.get("/products/2").status, 504);
    assert_eq!(server.get("/products/1").cache(), "hit");
    shop.place.standin().calm("find");
    await_until("reads to work again", SOON, || server.get("/products/2").status == 200);
}

#[test]
fn many_keys_in_one_answer() {
    let shop = Shop::with_products();
    shop.place.insert("large", (1..=60).map(|n| doc! { "_id": n, "text": "x".repeat(500_000) }));
    let server = Server::start(&shop.config(&["products", "large"]).set("limits.max_batch", "200"));
    let ids: Vec<String> = (1..=60).map(|id| id.to_string()).collect();
    // More than one message can hold, so the database answers in parts.
    let answer = server.get(&format!("/large?ids={}", ids.join(",")));
    assert_eq!(answer.status, 200, "{:.300}", answer.text());
    let text = answer.text();
    assert_eq!(text.matches("\"_id\":").count(), 60);
}

#[test]
fn a_writer_reads_its_own_write_by_its_position() {
    let shop = Shop::with_products();
    let server = shop.serve(&["products"]);
    let mut client = server.client();
    for price in 1..=50 {
        let before = cached(&mut client, "/products/1");
        shop.set_price(1, price);
        let position = shop.position(&before);
        let answer = client.get_with("/products/1", &[("Hotrow-Min-Position", &position)]);
        assert_eq!((answer.status, answer.text()), (200, body(1, price)), "{answer:?}");
        let (log, at) = position.split_once('-').expect("two parts");
        let (own_log, own_at) = answer
            .header("hotrow-position")
            .and_then(|own| own.split_once('-'))
            .expect("a position with two parts");
        assert_eq!(own_log, log);
        assert!(
            own_at.parse::<u64>().unwrap() >= at.parse::<u64>().unwrap() || answer.cache() == "hit"
        );
    }
}

#[test]
fn with_the_feed_held_a_position_is_read_from_the_database() {
    let shop = Shop::on_standin();
    let server =
        Server::start(&shop.config(&["products"]).set("limits.position_wait", "\"100ms\""));
    let mut client = server.client();
    let before = cached(&mut client, "/products/1");
    shop.place.standin().trouble("getMore", Trouble::Hold);
    shop.set_price(1, 1);
    let position = shop.position(&before);
    let answer = client.get_with("/products/1", &[("Hotrow-Min-Position", &position)]);
    assert_eq!((answer.status, answer.text()), (200, body(1, 1)), "{answer:?}");
    let (log, at) = position.split_once('-').expect("two parts");
    let beyond = format!("{log}-{}", at.parse::<u64>().unwrap() + (1 << 40));
    assert_eq!(client.get_with("/products/1", &[("Hotrow-Min-Position", &beyond)]).status, 504);
    for wrong in
        ["nonsense", &format!("0123456789abcdef-{at}"), &format!("{log}-"), &format!("{log}--1")]
    {
        assert_eq!(
            client.get_with("/products/1", &[("Hotrow-Min-Position", wrong)]).status,
            400,
            "{wrong}"
        );
    }
}
