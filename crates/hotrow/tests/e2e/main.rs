//! End-to-end tests: the real binary, real sockets, a real SQLite file that others write.
//!
//! Reading order: [`harness`]; one request ([`record`], [`keys`], [`batch`], [`position`]); freshness ([`fresh`], [`expiry`],
//! [`behind`]); the database's load ([`merging`]); HTTP ([`conduct`], [`curl`], [`malformed`], [`limits`], [`timeouts`]);
//! operation ([`admin`], [`documented`], [`page`], [`start`], [`drain`], [`demo`]).
// Helpers of tests fail as tests do.
#![allow(clippy::unwrap_used, clippy::panic)]

mod admin;
mod batch;
mod behind;
mod conduct;
mod curl;
mod demo;
mod documented;
mod drain;
mod expiry;
mod fresh;
mod harness;
mod keys;
mod limits;
mod malformed;
mod merging;
mod page;
mod position;
mod record;
mod start;
mod timeouts;
mod unfollowed;
