//! Independent checker of the consistency contract: it writes to a reserved table like any other
//! program, reads it over HTTP through one or more instances, and checks every response against the
//! contract. It shares no code with the service. The integration tests of `hotrow` record runs of
//! their own and check them with the same rules.
//!
//! Reading order: [`rules`] (the contract, pure), [`history`] and [`observation`] (its inputs),
//! [`counterexample`] (the description of a violation), [`plan`] and [`run`] (a run),
//! [`record_schema`] and [`family`] (records with aliases and embedded rows), `setup`, `writer`,
//! `reader`, `checker`, `converge` (its parts), [`database`] and [`http`] (access), [`report`] (the
//! result).

mod admin;
pub mod capabilities;
pub mod checker;
pub mod converge;
pub mod counterexample;
pub mod database;
pub mod family;
pub mod history;
pub mod http;
mod ledger;
pub mod observation;
pub mod plan;
mod random;
mod read_request;
mod reader;
pub mod record_schema;
pub mod report;
pub mod row;
pub mod rules;
pub mod run;
mod setup;
mod shared_state;
mod writer;
