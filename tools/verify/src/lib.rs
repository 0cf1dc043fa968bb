//! Independent checker of the consistency contract: it writes to a reserved table like any other
//! program, reads it over HTTP through one or more instances, and checks every response against the
//! contract. It shares no code with the service. The integration tests of `hotrow` record runs of
//! their own and check them with the same rules.
//!
//! Reading order: [`rules`] (the contract, pure), [`history`] and [`observation`] (its inputs),
//! [`counterexample`] (the description of a violation), [`plan`] and [`run`] (a run),
//! [`record_schema`] and [`family`] (records with aliases and embedded rows), `setup`, `writer`,
//! `reader`, `copy_reader` with [`near_client`] and [`near_cache`], `follow_reader` with
//! [`follower`], `checker`, `converge` (its parts), [`database`], [`http`], [`event_stream`] and
//! [`redis`] (access), [`report`] (the result).

mod admin;
pub mod capabilities;
pub mod checker;
#[cfg(test)]
mod connection_tests;
pub mod converge;
mod copy_reader;
pub mod counterexample;
pub mod database;
pub mod event_stream;
pub mod family;
mod follow_reader;
pub mod follower;
pub mod history;
pub mod http;
mod ledger;
pub mod near_cache;
pub mod near_client;
pub mod observation;
pub mod plan;
mod random;
mod read_request;
mod reader;
pub mod record_schema;
pub mod redis;
pub mod report;
pub mod row;
pub mod rules;
pub mod run;
pub mod run_error;
mod setup;
mod shared_state;
mod writer;
