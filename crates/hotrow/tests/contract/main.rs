//! The consistency contract (docs/consistency.md), checked from outside: the real binary over sockets, the database written
//! by this process, every answer judged by a checker that knows the contract and nothing of the service.
//!
//! Reading order: [`rules`] (the contract as a checker), [`history`] and [`observation`] (what it is fed), [`explain`] (how
//! a violation is told), [`writer`], [`reader`] and [`ask`] (who feeds it), [`engine`] (which databases), [`run`] (how they
//! come together), then the tests: [`mix`], [`race_a`], [`faults`], and over a network
//! ([`mixed`]) [`postgres`], [`mysql`] and [`mongodb`].

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking, in helpers too")]

mod ask;
mod board;
mod engine;
mod explain;
mod faults;
mod held;
mod history;
mod mix;
mod mixed;
mod mongodb;
mod mysql;
mod observation;
mod postgres;
#[cfg(feature = "sabotage")]
mod race_a;
mod reader;
mod rows;
mod rules;
mod run;
mod sqlite;
mod writer;

#[allow(unused_imports, reason = "shared with the end-to-end tests")]
#[path = "../e2e/harness/mod.rs"]
mod harness;
