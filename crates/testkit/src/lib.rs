//! Servers, proxies and stand-ins for tests. Nothing of it is shipped.
//!
//! Each server is private to its test: its own data folder, its own port on 127.0.0.1, stopped when
//! it is dropped. A program that is not installed fails the test with a message that names it.
#![allow(
    missing_docs,
    unreachable_pub,
    missing_debug_implementations,
    clippy::new_without_default,
    clippy::panic,
    clippy::unwrap_used,
    reason = "for tests only: a helper fails by panicking"
)]

pub mod browser;
pub mod doc_sync;
pub mod harness;
pub mod mongo;
pub mod mutate;
pub mod mysql;
pub mod nats;
pub mod postgres;
pub mod process;
pub mod proxy;
pub mod standin;
pub mod tokens;
