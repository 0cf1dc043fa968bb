//! The real binary over MariaDB on a private server, or over the server of HOTROW_TEST_MYSQL_URL,
//! which may be MySQL.
//!
//! Reading order: [`shop`] (a server with tables), then by theme: [`changes`], [`start`],
//! [`trouble`], [`restore`]. [`common`] holds the tests that run over several engines.

mod changes;
mod restore;
mod shop;
mod start;
mod trouble;

use hotrow_testkit::mysql as server;

/// Tests that run over several engines.
mod common {
    use crate::backend::maria::Maria;
    use crate::shop::reads;
    #[cfg(feature = "failpoints")]
    use crate::shop::threads;

    tests! {
        Maria:
        reads::a_writer_reads_its_own_write_by_its_position,
        #[cfg(feature = "failpoints")]
        threads::a_feed_that_panics_is_a_loss_and_follows_again,
        #[cfg(feature = "failpoints")]
        threads::the_thread_that_drives_the_connections_comes_back,
    }
}
