//! The real binary over a private PostgreSQL server.
//!
//! Reading order: [`shop`] (a server, a proxy, tables), then by theme: [`types`], [`changes`], [`start`], [`reads`],
//! [`trouble`], [`unfollowed`]; [`servers`] and [`proxies`] test what the others build on.
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking, in helpers too")]

mod changes;
mod proxies;
mod reads;
mod servers;
mod shop;
mod start;
mod trouble;
mod types;
mod unfollowed;

#[allow(unused_imports, reason = "shared with the end-to-end tests")]
#[path = "../e2e/harness/mod.rs"]
mod harness;
#[path = "../common_pg/proxy.rs"]
mod proxy;
#[path = "../common_pg/server.rs"]
mod server;
