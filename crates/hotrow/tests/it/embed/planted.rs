//! Faults planted over MariaDB: with a rule of embedded rows disabled, what the tests of this
//! folder demand does not hold.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::races::hidden_change_behind;
use super::{embedding, product, with_prices, with_prices_in};
use crate::alias::Users as _;
use crate::backend::maria::Maria;
use crate::shop::{await_body, cached};
use hotrow_testkit::harness::{SOON, Server, await_until};

/// Starts a server without a rule. A busy machine must not make it read past what it has.
fn without(rule: &str, database: &Maria) -> Server {
    let config = embedding(database.service()).set("cache.max_staleness", "\"10s\"");
    Server::start(&config.failpoint(format!("embed:{rule}")))
}

/// A later change is delivered, and what the product 2 had before is still served.
#[test]
fn an_omitted_change_of_a_parent_is_found() {
    let database = with_prices_in(Maria::open());
    database.execute(
        "CREATE TABLE regions(name varchar(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin \
         PRIMARY KEY); INSERT INTO regions SELECT DISTINCT region FROM prices; \
         ALTER TABLE prices ADD INDEX (region)",
    );
    let reference = "ALTER TABLE prices ADD FOREIGN KEY (region) REFERENCES regions(name) \
                     ON DELETE CASCADE";
    let minimal = "SET SESSION binlog_row_image = MINIMAL; \
                   UPDATE prices SET product_id = 1 WHERE id = 21";
    for (rule, prepare, change) in [
        ("OldParent", "", "UPDATE prices SET product_id = 1 WHERE id = 21"),
        ("MissingParent", "", minimal),
        ("Statement", "", "TRUNCATE prices"),
        ("Cascade", reference, "DELETE FROM regions WHERE name = 'eu'"),
    ] {
        database.execute(&format!(
            "REPLACE INTO prices VALUES (21, 2, 'eu', 200); DELETE FROM prices WHERE id = 32; \
             {prepare}"
        ));
        let server = without(rule, &database);
        let mut client = server.client();
        cached(&mut client, "/products/2");
        cached(&mut client, "/products/3");
        database.execute(change);
        database.execute("INSERT INTO prices VALUES (32, 3, 'us', 5)");
        await_body(&mut client, "/products/3", &product(3, &[("us", 5)]));
        let stale = product(2, &[("eu", 200)]);
        assert_eq!(client.get("/products/2").text(), stale, "{rule} had no effect");
    }
}

/// The entry and the lease of the parent end, but reads that do not see the change are kept.
#[test]
fn a_change_of_a_child_without_its_mark_is_found() {
    let database = with_prices_in(Maria::open());
    let server = without("Mark", &database);
    let check = || hidden_change_behind(&server, &database, "SET @unused = 1");
    assert!(catch_unwind(AssertUnwindSafe(check)).is_err(), "the fault was not found");
}

/// Each commit gives a product and its only price the same number.
#[test]
fn children_of_a_second_statement_are_found() {
    let database: Maria = with_prices();
    let server = without("OneStatement", &database);
    let mut client = server.client();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in (0..2_000_u32).take_while(|_| !is_over.load(Ordering::Relaxed)) {
                database.execute(&format!(
                    "BEGIN; UPDATE products SET name = 'n{n}' WHERE id = 2; \
                     UPDATE prices SET amount = {n} WHERE id = 21; COMMIT"
                ));
            }
        });
        await_until("a record of two states", SOON, || {
            let fresh = client.get_with("/products/2", &[("Cache-Control", "no-cache")]).json();
            let amount = &fresh["prices"][0]["amount"];
            let is_torn = fresh["name"] != "p2" && fresh["name"] != format!("n{amount}");
            is_over.fetch_or(is_torn, Ordering::Relaxed);
            is_torn
        });
    });
}
