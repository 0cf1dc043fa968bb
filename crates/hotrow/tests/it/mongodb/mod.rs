//! Tests of the real binary over MongoDB: over a stand-in in this process, or over the deployment
//! that `HOTROW_TEST_MONGODB_URL` names. Tests that need a fault always use the stand-in.
//!
//! Reading order: [`shop`] (test database and helpers), then by theme: [`types`], [`changes`],
//! [`start`], [`reads`], [`trouble`], [`sharded`]. [`common`] holds the tests that run over several
//! engines; [`standins`] tests the stand-in itself; [`foreign`] reads from an independent server.
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking, in helpers too")]

mod changes;
mod foreign;
mod reads;
mod sharded;
mod shop;
mod standins;
mod start;
mod trouble;
mod types;

use hotrow_testkit::place;
use hotrow_testkit::standin;

/// Tests that run over several engines.
mod common {
    use crate::mongodb::shop::Shop;
    use crate::shop::shop_tests;

    shop_tests!(Shop);
}
