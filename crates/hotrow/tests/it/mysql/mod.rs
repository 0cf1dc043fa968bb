//! The real binary over MariaDB on a private server, or over the server of HOTROW_TEST_MYSQL_URL,
//! which may be MySQL.
//!
//! Reading order: [`shop`] (a server with tables), then by theme: [`changes`], [`start`],
//! [`trouble`], [`restore`].

mod changes;
mod restore;
mod shop;
mod start;
#[cfg(feature = "failpoints")]
mod threads;
mod trouble;

use hotrow_testkit::mysql as server;
