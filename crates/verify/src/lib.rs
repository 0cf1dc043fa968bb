//! The independent checker of the consistency contract: it writes to a table set aside for it as any program does, reads it
//! over HTTP through one or many instances, and holds every answer against the contract. It shares no code with what it
//! judges.
//!
//! Reading order: [`rules`] (the contract, pure), [`history`] and [`observation`] (what it is fed), [`story`] (how a
//! violation is told), [`plan`] and [`run`] (a run), `setup`, `writer`, `reader`, `judge`, `converge` (its parts),
//! [`database`] and [`http`] (the two ways), [`report`] (what comes out).

mod admin;
mod ask;
mod board;
pub mod converge;
pub mod database;
pub mod granted;
pub mod history;
pub mod http;
pub mod judge;
mod ledger;
pub mod observation;
pub mod plan;
mod random;
mod reader;
pub mod report;
pub mod row;
pub mod rules;
pub mod run;
mod setup;
pub mod story;
mod writer;
