//! `hotrow lab`: real processes, real proxies, real services, the real binary.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking, in helpers too")]

#[cfg(feature = "reference")]
mod experiment;
mod limits;
mod models;
mod nginx;
mod own_service;
mod proxy;
#[cfg(feature = "reference")]
mod reference;
mod report;
mod stage;

#[allow(unused_imports, reason = "shared with the end-to-end tests")]
#[path = "../e2e/harness/mod.rs"]
mod harness;
#[path = "../common_pg/server.rs"]
mod server;
