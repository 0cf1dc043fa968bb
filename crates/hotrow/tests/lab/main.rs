//! Whole set-ups: real proxies, real services.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking, in helpers too")]

mod experiment;
mod nginx;
mod own_service;
#[cfg(feature = "reference")]
mod reference;

#[allow(unused_imports, reason = "shared with the end-to-end tests")]
#[path = "../e2e/harness/mod.rs"]
mod harness;
#[path = "../common_pg/server.rs"]
mod server;
