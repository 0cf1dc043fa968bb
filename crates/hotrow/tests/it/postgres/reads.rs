//! Reads as the server counts them.

use crate::postgres::shop::Shop;
use crate::shop::reads::batch_misses;

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
