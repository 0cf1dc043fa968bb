//! The real binary over a private PostgreSQL server.
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking, in helpers too")]

mod proxies;
mod servers;

#[allow(unused_imports, reason = "shared with the end-to-end tests")]
#[path = "../e2e/harness/mod.rs"]
mod harness;
#[path = "../common_pg/proxy.rs"]
mod proxy;
#[path = "../common_pg/server.rs"]
mod server;
