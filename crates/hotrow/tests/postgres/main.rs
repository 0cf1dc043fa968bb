//! The real binary over a private PostgreSQL server.
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking, in helpers too")]

mod servers;

#[path = "../common_pg/server.rs"]
mod server;
