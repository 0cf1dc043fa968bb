//! Databases that go back in time: tokens of the lost history are never answered.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::postgres::server::{Backup, Server as Postgres};
use crate::postgres::shop::Shop;
use crate::shop::{await_body, await_readyz, cached, starts};
use hotrow_testkit::harness::{SOON, Server, await_until};

const PATH: &str = "/products/1";
const POINT: &str = "before";

/// Writes a change that will be lost, and returns the token of an answer that contains it.
#[track_caller]
fn token_of_lost_change(shop: &Shop, server: &Server) -> String {
    shop.server.batch("UPDATE products SET price = 7 WHERE id = 1");
    let mut client = server.client();
    await_body(&mut client, PATH, r#"{"id":1,"name":"p1","price":7}"#);
    let answer = client.get_with(PATH, &[("Cache-Control", "no-cache")]);
    answer.header("hotrow-position").unwrap_or_else(|| panic!("{answer:?}")).to_owned()
}

/// Commits until the log is longer than the lost one was, so that the token's number alone would be
/// valid.
#[track_caller]
fn pass(shop: &Shop, token: &str) {
    await_until("the log to pass the token", SOON, || {
        shop.server.batch("UPDATE products SET price = price + 1 WHERE id > 100");
        point(&shop.position()) > point(token)
    });
}

/// Returns the position's offset in its log.
fn point(position: &str) -> u64 {
    position.split_once('-').and_then(|(_, at)| at.parse().ok()).expect("a position")
}

/// Asserts that a database that lost the change behind a token refuses the token: in the instance
/// that issued it, from the first answer on, and in one that starts later.
#[track_caller]
fn tokens_end(go_back: impl FnOnce(&mut Postgres, &Backup)) {
    let mut shop = Shop::with_products();
    let backup = shop.server.back_up();
    let server = shop.serve(&["products"]);
    cached(&mut server.client(), PATH);
    shop.server.query(&format!("SELECT pg_create_restore_point('{POINT}')"));
    let token = token_of_lost_change(&shop, &server);
    let ask =
        |server: &Server| server.client().get_with(PATH, &[("Hotrow-Min-Position", &token)]).status;
    assert_eq!(ask(&server), 200);
    let started = starts(&server);
    let is_back = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let requests = scope.spawn(|| {
            while !is_back.load(Ordering::Acquire) {
                let answer = server.client().get_with(PATH, &[("Hotrow-Min-Position", &token)]);
                // An answer from before the loss contains the change.
                let shows_it = answer.status == 200 && answer.json()["price"] == 7;
                assert!(shows_it || [400, 503, 504].contains(&answer.status), "{answer:?}");
            }
        });
        go_back(&mut shop.server, &backup);
        pass(&shop, &token);
        is_back.store(true, Ordering::Release);
        requests.join().expect("no panic in the requests");
    });
    await_until("the feed to start again", SOON, || starts(&server) > started);
    assert_eq!(
        shop.server.query("SELECT price FROM products WHERE id = 1"),
        "100",
        "the change is lost"
    );
    await_body(&mut server.client(), PATH, r#"{"id":1,"name":"p1","price":100}"#);
    // The circuit breaker may have opened; reads close it.
    await_readyz(&server, 200);
    assert_eq!(ask(&server), 400, "the instance that issued it");
    let later = shop.serve(&["products"]);
    assert_eq!(ask(&later), 400, "an instance that knows nothing of the history that is gone");
    // Tokens of the new history are accepted.
    let position = shop.position();
    for server in [&server, &later] {
        assert_eq!(
            server.client().get_with(PATH, &[("Hotrow-Min-Position", &position)]).status,
            200
        );
    }
}

#[test]
fn a_restored_copy_refuses_the_tokens_of_lost_changes() {
    tokens_end(Postgres::restore);
}

#[test]
fn a_recovery_to_a_point_in_time_refuses_the_tokens_of_lost_changes() {
    tokens_end(|server, backup| server.recover_to(backup, POINT));
}
