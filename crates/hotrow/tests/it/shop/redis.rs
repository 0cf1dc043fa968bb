//! Records over the Redis protocol, by redis-cli.

use crate::e2e::redis::{redis_cli, with_redis};
use crate::shop::Shop;
use hotrow_testkit::harness::{SOON, Server, await_until};

pub(crate) fn redis_cli_sees_records_and_their_changes<S: Shop>() {
    let shop = S::open();
    let server = Server::start(&with_redis(shop.config_of_products()));
    let get = |id: u32| redis_cli(&server, &["GET", &format!("products:{id}")]);
    assert_eq!(get(1), S::body(1, 100));
    let queries = server.queries();
    let several: Vec<String> = (2..=51).map(|id| format!("products:{id}")).collect();
    let several: Vec<&str> = several.iter().map(String::as_str).collect();
    let records = redis_cli(&server, &[&["MGET"][..], &several].concat());
    let expected: Vec<String> = (2..=51).map(|id| S::body(id, 100 * id)).collect();
    assert_eq!(records.lines().collect::<Vec<_>>(), expected);
    assert_eq!(server.queries() - queries, 1, "the cold keys are one query");
    for price in 1..=20 {
        shop.set_price(1, price);
        await_until("the change", SOON, || get(1) == S::body(1, price));
    }
    // In memory once for both protocols.
    assert_eq!(server.get("/products/1").cache(), "hit");
}
