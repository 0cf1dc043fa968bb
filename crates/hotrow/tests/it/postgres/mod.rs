//! Tests of the real binary over a private PostgreSQL server.
//!
//! Reading order: [`shop`] (a server, a proxy, tables), then by theme: [`types`], [`changes`],
//! [`shapes`], [`start`], [`grants`], [`reads`], [`trouble`], [`history`], [`unfollowed`];
//! [`common`] holds the tests that run over several engines; [`servers`] and [`proxies`] test the
//! helpers of the others.

mod changes;
mod grants;
mod history;
mod proxies;
mod reads;
mod servers;
mod shapes;
mod shop;
mod start;
mod trouble;
mod types;
mod unfollowed;

use hotrow_testkit::postgres as server;
use hotrow_testkit::proxy;

/// Tests that run over several engines.
mod common {
    use crate::postgres::shop::Shop;
    use crate::shop::shop_tests;

    shop_tests!(Shop);
}
