//! Tests of the server over real sockets, in one program, so that it is linked once. Tests that
//! look at their own process (its allocations, memory or descriptors) are in `own_process`.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking, in helpers too")]

#[path = "../common/mod.rs"]
mod common;

mod carriers;
mod ending;
mod limits;
mod reload;
mod requests;
mod successor;
mod timeouts;
mod unread;

mod h2spec;
mod http2;
mod http2_clients;
mod http2_records;
mod tls;
mod tls_checks;

mod access;
mod access_grants;
mod columns;
mod cors;
mod jwks_url;
mod tenants;

mod access_log;
mod changes;
mod changes_access;
mod changes_http2;
mod server_timing;

mod redis;
mod redis_access;
mod redis_access_log;
mod redis_ending;
mod tracking;
mod tracking_access;
mod tracking_modes;
mod tracking_planted;
