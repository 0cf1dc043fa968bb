//! Faults planted over MariaDB: with one rule of embedded rows disabled, a test of this folder finds
//! a violation.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::checked::check;
use super::races::hidden_change_behind;
use super::{embedding, product, with_prices};
use crate::alias::Users as _;
use crate::backend::maria::Maria;
use crate::histories::SHORT;
use crate::shop::{await_body, cached};
use hotrow_testkit::harness::{Config, Server};

fn without(rule: &str) -> impl FnOnce(Config) -> Config {
    let failpoint = format!("embed:{rule}");
    move |config| config.failpoint(failpoint)
}

#[track_caller]
fn assert_violated(run: impl FnOnce()) {
    assert!(catch_unwind(AssertUnwindSafe(run)).is_err(), "the fault was not found");
}

#[test]
fn an_omitted_old_parent_is_found() {
    assert_violated(|| check::<Maria>(true, &SHORT, without("OldParent")));
}

#[test]
fn an_image_without_the_parent_that_changes_nothing_is_found() {
    assert_violated(|| check::<Maria>(false, &SHORT, without("MissingParent")));
}

#[test]
fn an_omitted_truncate_is_found() {
    assert_violated(|| check::<Maria>(true, &SHORT, without("Statement")));
}

#[test]
fn children_of_a_second_statement_are_found() {
    assert_violated(|| check::<Maria>(true, &SHORT, without("OneStatement")));
}

/// The entry and the lease of the parent end, but reads that do not see the change are kept.
#[test]
fn a_change_of_a_child_without_its_mark_is_found() {
    let database: Maria = with_prices();
    let server = Server::start(&without("Mark")(embedding(database.service())));
    assert_violated(|| hidden_change_behind(&server, &database, "SET @unused = 1"));
}

/// A later change is delivered, and the children that are gone are still served.
#[test]
fn an_omitted_cascade_is_found() {
    let database: Maria = with_prices();
    database.execute(
        "CREATE TABLE regions(name varchar(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin \
         PRIMARY KEY); INSERT INTO regions SELECT DISTINCT region FROM prices; \
         ALTER TABLE prices ADD FOREIGN KEY (region) REFERENCES regions(name) ON DELETE CASCADE",
    );
    for (failpoint, prices) in [(None, &[][..]), (Some("Cascade"), &[("eu", 200)])] {
        database.execute(
            "INSERT IGNORE INTO regions VALUES ('eu'); \
             REPLACE INTO prices VALUES (21, 2, 'eu', 200)",
        );
        let config = embedding(database.service());
        let server = Server::start(&match failpoint {
            None => config,
            Some(rule) => without(rule)(config),
        });
        let mut client = server.client();
        cached(&mut client, "/products/2");
        cached(&mut client, "/products/3");
        database.execute("DELETE FROM regions WHERE name = 'eu'");
        database.execute("INSERT INTO prices VALUES (32, 3, 'us', 5)");
        await_body(&mut client, "/products/3", &product(3, &[("us", 5)]));
        assert_eq!(client.get("/products/2").text(), product(2, prices), "{failpoint:?}");
        database.execute("DELETE FROM prices WHERE id = 32");
    }
}
