//! The real binary over MongoDB: over a stand-in in this process, or, where `HOTROW_TEST_MONGODB_URL` names a replica set,
//! over that; tests that need a fault always take the stand-in.
//!
//! Reading order: [`shop`] (a deployment, collections, what the tests ask), then by theme: [`types`], [`changes`], [`start`],
//! [`reads`], [`trouble`], [`sharded`]; [`standins`] tests what the others build on, [`foreign`] reads from a server that
//! is not ours.
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking, in helpers too")]

mod changes;
mod foreign;
mod reads;
mod sharded;
mod shop;
mod standins;
mod start;
mod trouble;
mod types;

#[allow(unused_imports, reason = "shared with the end-to-end tests")]
#[path = "../e2e/harness/mod.rs"]
mod harness;
#[path = "../common_mongo/place.rs"]
mod place;
#[path = "../common_mongo/standin.rs"]
mod standin;
