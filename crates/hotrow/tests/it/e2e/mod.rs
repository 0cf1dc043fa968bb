//! End-to-end tests: the real binary, real sockets, a real SQLite file with other writers.
//!
//! Reading order: [`harness`]; one request ([`record`], [`conditional`], [`keys`], [`batch`],
//! [`position`]); freshness ([`fresh`], [`expiry`], [`behind`]); the database's load ([`merging`]);
//! HTTP ([`conduct`], [`head`], [`curl`], [`malformed`], [`limits`], [`timeouts`]); operation
//! ([`admin`], [`admin_access`], [`documented`], [`page`], [`foreign_page`], [`start`],
//! [`permissions`], [`drain`], [`dead_log`], `threads`, [`demo`]).
// Helpers of tests fail by panicking, as tests do.
#![allow(clippy::unwrap_used, clippy::panic)]

mod admin;
mod admin_access;
mod batch;
mod behind;
mod conditional;
mod conduct;
mod curl;
mod dead_log;
mod demo;
mod documented;
mod drain;
mod expiry;
mod foreign_page;
mod fresh;
mod head;
mod keys;
mod limits;
mod malformed;
mod merging;
mod page;
mod permissions;
mod position;
mod record;
mod start;
#[cfg(feature = "failpoints")]
mod threads;
mod timeouts;
mod unfollowed;
