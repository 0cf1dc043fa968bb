//! Reads as the server sees them: batched for cold keys, bounded in connections and in time.

use std::time::Duration;

use crate::postgres::proxy::{Class, Direction};
use crate::postgres::shop::Shop;
use crate::shop::cached;
use crate::shop::reads::batch_misses;
use hotrow_testkit::harness::{SOON, Server, await_until};

#[test]
fn batched_misses_are_one_query_at_the_server() {
    let shop = Shop::with_products_and(&[("shared_preload_libraries", "pg_stat_statements")]);
    shop.server.batch("CREATE EXTENSION pg_stat_statements");
    batch_misses(&shop, || shop.server.batch("SELECT pg_stat_statements_reset()"));
    // The database's own counts: how often the query ran, and how many rows it returned.
    let counted = shop.server.query(
        "SELECT sum(calls), sum(rows) FROM pg_stat_statements WHERE query LIKE '%products%' \
         AND query LIKE '%pg_current_snapshot%'",
    );
    assert_eq!(counted, "2|51");
}

#[test]
fn readers_connections_are_bounded() {
    let shop = Shop::with_products();
    let config = shop
        .config_of(&["products"])
        .set("source.reads_in_flight", "3")
        .set("source.merge", "false");
    // Thirty reads of 50 ms, three at once, are an overload; here all must be answered.
    let server = Server::start(&config.set("limits.concurrency.queue", "\"fifo\""));
    shop.proxy.delay(&[Class::Readers], &[Direction::ToService], Duration::from_millis(50));
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
    let server =
        Server::start(&shop.config_of(&["products"]).set("source.read_timeout", "\"300ms\""));
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
