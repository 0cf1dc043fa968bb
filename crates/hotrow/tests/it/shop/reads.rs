//! Reads of the service: coalesced, batched for cold keys, and up to a writer's own position.

use std::time::Duration;

use crate::shop::{Shop, cached, path};
use hotrow_testkit::harness::{Answer, Client, SOON, Server, await_until};

/// Makes 51 reads of cold keys, of which 50 wait for the first, and asserts that they are two
/// queries. `before` runs when the service is connected; the test asserts the database's own count.
pub(crate) fn batch_misses<S: Shop>(shop: &S, before: impl FnOnce()) {
    // Otherwise the batch size grows in steps, as long as a larger one might be too slow.
    let config = shop.config_of_products().set("source.reads_in_flight", "1");
    let server = Server::start(&config.set("limits.concurrency.queue", "\"fifo\""));
    cached(&mut server.client(), &path(200));
    before();
    let queries = server.queries();
    // One read occupies the only connection; the others wait and become one batch.
    shop.hold_next_read();
    let answers: Vec<u16> = std::thread::scope(|scope| {
        let server = &server;
        let first = scope.spawn(|| server.get(&path(100)).status);
        await_until("the first to be read", SOON, || shop.holds_a_read());
        let rest: Vec<_> =
            (1..=50).map(|id| scope.spawn(move || server.get(&path(id)).status)).collect();
        await_until("the others to wait", SOON, || {
            server.metrics().sum("hotrow_waiting_keys", &[]) >= 50.0
        });
        shop.clear_faults();
        [first].into_iter().chain(rest).map(|one| one.join().expect("an answer")).collect()
    });
    assert!(answers.iter().all(|status| *status == 200), "{answers:?}");
    assert_eq!(server.queries() - queries, 2, "by the service's own count");
}

pub(crate) fn fifty_readers_of_one_cold_key_are_one_query<S: Shop>() {
    let shop = S::open();
    let server = Server::start(&shop.config_of_products());
    cached(&mut server.client(), &path(200));
    let before = server.queries();
    shop.delay_reads(Duration::from_millis(300));
    std::thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| assert_eq!(server.get(&path(7)).status, 200));
        }
    });
    assert_eq!(server.queries() - before, 1);
}

pub(crate) fn a_writer_reads_its_own_write_by_its_position<S: Shop>() {
    let shop = S::open();
    let server = Server::start(&shop.config_of_products());
    let mut client = server.client();
    for price in 1..=50 {
        let before = cached(&mut client, &path(1));
        shop.set_price(1, price);
        let position = shop.position_after(&before);
        let answer = get_at(&mut client, &position);
        assert_eq!((answer.status, answer.text()), (200, S::body(1, price)), "{answer:?}");
        let (log, at) = split(&position);
        let (own_log, own_at) = split(answer.header("hotrow-position").expect("a position"));
        assert_eq!(own_log, log);
        assert!(own_at >= at || answer.cache() == "hit");
    }
}

pub(crate) fn with_the_feed_held_a_position_is_read_from_the_database<S: Shop>() {
    let shop = S::open();
    let server = Server::start(&shop.config_of_products().set("limits.position_wait", "\"100ms\""));
    let mut client = server.client();
    let before = cached(&mut client, &path(1));
    shop.hold_feed();
    shop.set_price(1, 1);
    let position = shop.position_after(&before);
    let answer = get_at(&mut client, &position);
    assert_eq!((answer.status, answer.text()), (200, S::body(1, 1)), "{answer:?}");
    let (log, at) = split(&position);
    let beyond = format!("{log}-{}", at + (1 << 40));
    assert_eq!(get_at(&mut client, &beyond).status, 504);
    for wrong in
        ["nonsense", &format!("0123456789abcdef-{at}"), &format!("{log}-"), &format!("{log}--1")]
    {
        assert_eq!(get_at(&mut client, wrong).status, 400, "{wrong}");
    }
}

/// Reads the first product at this position.
fn get_at(client: &mut Client, position: &str) -> Answer {
    client.get_with(&path(1), &[("Hotrow-Min-Position", position)])
}

/// Returns a position's log and its point in it.
fn split(position: &str) -> (&str, u64) {
    let (log, at) = position.split_once('-').expect("two parts");
    (log, at.parse().expect("a number"))
}
