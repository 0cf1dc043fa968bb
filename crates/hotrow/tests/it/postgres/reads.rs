//! Reads of the service: coalesced, bounded, batched for cold keys, and up to a writer's own
//! position.

use std::time::Duration;

use crate::postgres::proxy::{Class, Way};
use crate::postgres::shop::{Shop, cached};
use hotrow_testkit::harness::{SOON, Server, await_until};

#[test]
fn batched_misses_are_one_query_at_the_server() {
    let shop = Shop::with_products_and(&[("shared_preload_libraries", "pg_stat_statements")]);
    shop.server.batch("CREATE EXTENSION pg_stat_statements");
    // Otherwise the batch size grows in steps, as long as a larger one might be too slow.
    let config = shop.config(&["products"]).set("source.reads_in_flight", "1");
    let server = Server::start(&config.set("limits.concurrency.queue", "\"fifo\""));
    // One read occupies the only connection; the others wait and become one batch.
    cached(&mut server.client(), "/products/200");
    shop.server.batch("SELECT pg_stat_statements_reset()");
    let before = server.queries();
    shop.proxy.hold(&[Class::Readers], &[Way::ToService]);
    let ids: Vec<u32> = (1..=50).collect();
    let answers: Vec<u16> = std::thread::scope(|scope| {
        let first = scope.spawn(|| server.get("/products/100").status);
        await_until("the first to be read", SOON, || {
            shop.proxy.waiting(Class::Readers, Way::ToService) > 0
        });
        let server = &server;
        let rest: Vec<_> = ids
            .iter()
            .map(|id| scope.spawn(move || server.get(&format!("/products/{id}")).status))
            .collect();
        await_until("the others to wait", SOON, || {
            server.metrics().sum("hotrow_waiting_keys", &[]) >= 50.0
        });
        shop.proxy.release(&[Class::Readers], &[Way::ToService]);
        [first].into_iter().chain(rest).map(|one| one.join().expect("an answer")).collect()
    });
    assert!(answers.iter().all(|status| *status == 200), "{answers:?}");
    assert_eq!(server.queries() - before, 2, "by the service's own count");
    // The database's own counts: how often the query ran, and how many rows it returned.
    let counted = shop.server.query(
        "SELECT sum(calls), sum(rows) FROM pg_stat_statements WHERE query LIKE '%products%' \
         AND query LIKE '%pg_current_snapshot%'",
    );
    assert_eq!(counted, "2|51");
}

#[test]
fn fifty_readers_of_one_cold_key_are_one_query() {
    let shop = Shop::with_products();
    let server = shop.serve(&["products"]);
    cached(&mut server.client(), "/products/200");
    let before = server.queries();
    shop.proxy.delay(&[Class::Readers], &[Way::ToService], Duration::from_millis(300));
    std::thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| assert_eq!(server.get("/products/7").status, 200));
        }
    });
    assert_eq!(server.queries() - before, 1);
}

#[test]
fn readers_connections_are_bounded() {
    let shop = Shop::with_products();
    let config =
        shop.config(&["products"]).set("source.reads_in_flight", "3").set("source.merge", "false");
    // Thirty reads of 50 ms, three at once, are an overload; here all must be answered.
    let server = Server::start(&config.set("limits.concurrency.queue", "\"fifo\""));
    shop.proxy.delay(&[Class::Readers], &[Way::ToService], Duration::from_millis(50));
    std::thread::scope(|scope| {
        for id in 1..=30 {
            let server = &server;
            scope.spawn(move || assert_eq!(server.get(&format!("/products/{id}")).status, 200));
        }
        await_until("readers' connections", SOON, || shop.proxy.open(Class::Readers) >= 2);
    });
    let sessions = shop.server.query(
        "SELECT application_name, state, query FROM pg_stat_activity \
         WHERE backend_type = 'client backend'",
    );
    assert!(
        shop.proxy.open(Class::Readers) <= 3,
        "{}:\n{sessions}",
        shop.proxy.open(Class::Readers)
    );
}

#[test]
fn a_query_that_takes_too_long_is_ended_at_the_server() {
    let shop = Shop::with_products();
    let server = Server::start(&shop.config(&["products"]).set("source.read_timeout", "\"300ms\""));
    cached(&mut server.client(), "/products/1");
    let count = |condition: &str| {
        shop.server.query(&format!(
            "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity USING (pid) WHERE {condition}"
        ))
    };
    std::thread::scope(|scope| {
        let locked = scope.spawn(|| {
            let sql =
                "BEGIN; LOCK TABLE products IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(60); COMMIT";
            _ = shop.server.try_query(sql);
        });
        await_until("the lock", SOON, || {
            count("mode = 'AccessExclusiveLock' AND granted AND relation = 'products'::regclass")
                != "0"
        });
        assert_eq!(server.get("/products/2").status, 504);
        let waiting = "NOT granted AND query LIKE '%pg_current_snapshot%'";
        await_until("the server to cancel it", SOON, || count(waiting) == "0");
        assert!(!locked.is_finished(), "that was the lock's end and not the query's");
        shop.server.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'",
        );
        locked.join().expect("the lock ends");
    });
    await_until("reads to work again", SOON, || server.get("/products/2").status == 200);
}

#[test]
fn a_writer_reads_its_own_write_by_its_position() {
    let shop = Shop::with_products();
    let server = shop.serve(&["products"]);
    let mut client = server.client();
    for price in 1..=50 {
        cached(&mut client, "/products/1");
        shop.server.batch(&format!("UPDATE products SET price = {price} WHERE id = 1"));
        let position = shop.position();
        let answer = client.get_with("/products/1", &[("Hotrow-Min-Position", &position)]);
        assert_eq!(
            (answer.status, answer.json()["price"].as_u64()),
            (200, Some(price)),
            "{answer:?}"
        );
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
    let shop = Shop::with_products();
    let server =
        Server::start(&shop.config(&["products"]).set("limits.position_wait", "\"100ms\""));
    let mut client = server.client();
    cached(&mut client, "/products/1");
    shop.proxy.hold(&[Class::Replication], &[Way::ToService]);
    shop.server.batch("UPDATE products SET price = 1 WHERE id = 1");
    let position = shop.position();
    let answer = client.get_with("/products/1", &[("Hotrow-Min-Position", &position)]);
    assert_eq!((answer.status, answer.json()["price"].as_u64()), (200, Some(1)), "{answer:?}");
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
