//! The real binary over MariaDB (a private server), or MySQL where HOTROW_TEST_MYSQL_URL names one.
//!
//! Reading order: [`shop`] (a server, tables), then by theme: [`changes`], [`start`], [`trouble`].
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking, in helpers too")]

mod changes;
mod shop;
mod start;
mod trouble;

#[allow(unused_imports, reason = "shared with the end-to-end tests")]
#[path = "../e2e/harness/mod.rs"]
mod harness;
#[path = "../common_mysql/server.rs"]
mod server;
