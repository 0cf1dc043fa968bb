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
//!
//! Reference `rules`: # Rules of verify
//!
//! A response in [`hotrow verify`](verify.md) violates
//!
//! - `committed`: if it shows a state that was not committed before its receipt, a body that no
//!   writer wrote, or an undocumented status;
//! - `monotonic`: (point 1) if it is older than one of that instance received before this request
//!   was sent;
//! - `fresh`: (point 2) if it misses a commit that had returned more than `max_staleness` before
//!   the request was sent, and is not marked stale;
//! - `age`: (point 2) if it is a hit or marked stale, and older than its `Age` plus half a second;
//! - `no_cache`: (point 1) if it was requested with `no-cache` and misses a commit that had
//!   returned before;
//! - `session`: (point 3) if it misses what the response with the sent token showed; for another
//!   key, what was committed before that response's commit began, or what the same transaction
//!   changed;
//! - `own_write`: (point 3) if it misses a commit up to the sent position. Not checked on SQLite
//!   without triggers, MySQL and MariaDB without the privilege to read the binlog's end, and
//!   MongoDB without sessions;
//! - `strict`: (point 6) if it was requested with `Hotrow-Min-Position: now` and misses a commit
//!   that had returned before, or what an earlier strict response of any instance showed;
//! - `snapshot`: (point 7) if its records and missing ids never were the database at one point of
//!   its log: a transaction is not in all of its parts, or one part shows a commit that was sent
//!   after the return of one that another part misses;
//! - `purged`: if it misses a commit that had returned before a completed purge was sent;
//! - `copied`: if it came from a near cache and misses a commit that had returned more than twice
//!   `max_staleness` and 600 ms before, though its connection was alive;
//! - `followed`: if it misses a commit up to the position of an event that a
//!   [follower](verify.md#followers) had got from that instance before, and is not marked stale; at
//!   another instance, if that position was sent. Checked where `own_write` is;
//! - `convergent`: (point 4) if, after the last write and `max_staleness`, it differs from the row
//!   in the database. Rows that differ from the last writes are inconclusive: another program
//!   wrote, or the database lost a commit.

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
