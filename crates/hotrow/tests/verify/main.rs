//! `hotrow verify` against the real binary: it finds nothing where nothing is wrong, whatever goes wrong around it, and it
//! finds what is wrong where a fix is taken out.
//!
//! Reading order: [`checker`] (how it is run), [`command`] (usage and refusals), [`stage`] (a database and the service over it),
//! [`faults`] and [`traps`] (what comes over them, for every engine alike), [`sqlite`], [`postgres`], [`mariadb`], [`mongo`] (each
//! with its tables of both), [`clock`] (a clock that is set), [`balancer`] (two instances behind one address), [`writers`] (the
//! checker's own way to each database).
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking, in helpers too")]

mod balancer;
mod checker;
mod clock;
mod command;
mod faults;
mod mariadb;
mod mongo;
mod postgres;
mod sqlite;
mod stage;
mod traps;
mod writers;

#[allow(unused_imports, reason = "shared with the end-to-end tests")]
#[path = "../e2e/harness/mod.rs"]
mod harness;
#[path = "../common_mysql/server.rs"]
mod maria;
#[path = "../common_pg/proxy.rs"]
mod proxy;
#[path = "../common_pg/server.rs"]
mod server;
#[allow(unused_imports, reason = "shared with the tests over MongoDB")]
#[path = "../common_mongo/standin.rs"]
mod standin;
