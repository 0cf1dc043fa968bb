//! The program `hotrow serve` and the checker `hotrow verify`, as real processes over real servers.
//!
//! One binary, so that it is linked once and all suites share the machine.
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking, in helpers too")]

/// Makes tests of generic functions, for one engine; attributes precede a function.
macro_rules! tests {
    ($engine:ty: $($(#[$attribute:meta])* $module:ident::$name:ident),+ $(,)?) => {
        $(
            $(#[$attribute])*
            #[test]
            fn $name() {
                $module::$name::<$engine>();
            }
        )+
    };
}

/// Makes a test of each check, a call that fails if what its name says does not hold.
macro_rules! checks {
    ($($(#[$attribute:meta])* $name:ident: $check:expr;)+) => {
        $(
            $(#[$attribute])*
            #[test]
            fn $name() {
                $check;
            }
        )+
    };
}

mod alias;
mod backend;
mod collector;
mod contract;

/// End-to-end tests: the real binary, real sockets, a real SQLite file with other writers.
///
/// Reading order: [`harness`]; one request ([`record`], [`conditional`], [`keys`], [`batch`],
/// [`position`], [`column_grants`]), over the Redis protocol ([`redis`]); freshness ([`fresh`],
/// [`expiry`], [`behind`]); the database's
/// load ([`merging`]); HTTP ([`conduct`], [`head`], [`curl`], [`carriers`],
/// [`limits`]); operation ([`admin`], [`admin_access`], [`admin_carriers`],
/// [`documented`], [`page`], [`foreign_page`], [`start`], [`permissions`],
/// [`readiness`], [`drain`], [`handover`], [`handover_tls`], [`reload`], [`systemd`],
/// [`warm_start`], [`access_log`], `slow_queries`, [`sources`], [`traces`], [`history`], [`top`],
/// [`miss_ratio_curve`], [`dead_log`], [`health`], `threads`, [`demo`]).
mod e2e {
    mod access_log;
    mod admin;
    mod admin_access;
    mod admin_carriers;
    mod batch;
    mod behind;
    pub(crate) mod carriers;
    mod column_grants;
    mod conditional;
    mod conduct;
    mod curl;
    mod dead_log;
    mod demo;
    mod documented;
    mod drain;
    mod expiry;
    mod field_selection;
    mod foreign_page;
    mod fresh;
    mod handover;
    mod handover_tls;
    mod head;
    mod health;
    mod history;
    mod keys;
    mod limits;
    mod merging;
    mod miss_ratio_curve;
    mod page;
    mod permissions;
    mod position;
    mod readiness;
    mod record;
    pub(crate) mod redis;
    mod reload;
    #[cfg(feature = "failpoints")]
    mod slow_queries;
    mod sources;
    mod start;
    mod systemd;
    #[cfg(feature = "failpoints")]
    mod threads;
    mod top;
    mod traces;
    mod unfollowed;
    mod views;
    mod warm_start;
}

mod embed;
mod follow;
mod help;
mod histories;
mod init;
mod messages;

/// Tests of the real binary over MongoDB: over a stand-in in this process, or over the deployment
/// that `HOTROW_TEST_MONGODB_URL` names. Types, keys and refusals are in the engine's own tests.
///
/// Reading order: [`shop`] (test database and helpers), then by theme: [`changes`], [`start`],
/// [`reads`], [`failures`], [`passwords`]. [`common`] holds the tests that run over several
/// engines.
mod mongodb {
    mod changes;
    mod failures;
    mod passwords;
    mod reads;
    mod shop;
    mod start;

    use hotrow_testkit::mongo;
    use hotrow_testkit::standin;

    /// Tests that run over several engines.
    mod common {
        use crate::mongodb::shop::Shop;
        use crate::shop::shop_tests;

        shop_tests!(Shop);
    }
}

/// The real binary over MariaDB on a private server, or over MySQL, as HOTROW_TEST_SERVER says.
///
/// Reading order: [`shop`] (a server with tables), then by theme: [`failures`], [`restore`],
/// [`views`], `hub`. [`common`] holds the tests that run over several engines.
mod mysql {
    mod failures;
    #[cfg(feature = "hub")]
    mod hub;
    mod restore;
    mod shop;
    mod views;

    use hotrow_testkit::mysql as server;

    /// Tests that run over several engines.
    mod common {
        use crate::backend::maria::Maria;
        #[cfg(feature = "failpoints")]
        use crate::shop::threads;
        use crate::shop::{failures, reads, traces};

        tests! {
            Maria:
            reads::a_writer_reads_its_own_write_by_its_position,
            traces::a_query_names_its_database,
            failures::a_server_that_never_answers_is_named_in_the_log,
            #[cfg(feature = "failpoints")]
            threads::a_feed_that_panics_is_a_loss_and_follows_again,
            #[cfg(feature = "failpoints")]
            threads::the_thread_that_drives_the_connections_comes_back,
        }
    }
}

/// Overload and hostile clients against the real binary, and the guarantees that must hold.
mod overload {
    mod breaker;
    mod concurrency;
    mod crowd;
    mod differential;
    mod flood;
    mod forwarding;
    pub(crate) mod fronts;
    mod memory;
    mod penetration;
    mod rate;
    pub(crate) mod routing;
    #[cfg(feature = "failpoints")]
    mod saturation;
    mod scan;
    mod shed;
    mod slow;
    mod smuggling;
    mod wire;
}

/// Tests of the real binary over a private PostgreSQL server.
///
/// Reading order: [`shop`] (a server, a proxy, tables), then by theme: [`shapes`], [`views`],
/// [`start`], [`grants`], [`reads`], [`failures`], [`history`],
/// [`unfollowed`], [`sources`], [`standbys`], `hub`, `hub_slot`, `hub_fail_over`;
/// [`common`] holds the tests that run over several engines.
mod postgres {
    mod compose;
    mod failures;
    mod grants;
    mod history;
    #[cfg(feature = "hub")]
    mod hub;
    #[cfg(feature = "hub")]
    mod hub_fail_over;
    mod hub_permissions;
    #[cfg(feature = "hub")]
    mod hub_slot;
    mod reads;
    mod shapes;
    mod shop;
    mod sources;
    mod standbys;
    mod start;
    mod unfollowed;
    mod views;

    use hotrow_testkit::postgres as server;
    use hotrow_testkit::proxy;

    /// Tests that run over several engines.
    mod common {
        use crate::postgres::shop::Shop;
        use crate::shop::shop_tests;

        shop_tests!(Shop);
    }
}

mod purge;
mod shop;
mod snapshot;
mod strict;
mod verify;
