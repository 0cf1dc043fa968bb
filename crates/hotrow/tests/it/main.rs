//! The program `hotrow serve` and the checker `hotrow verify`, as real processes over real servers.
//!
//! One binary, so that it is linked once and all suites share the machine.
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking, in helpers too")]

mod contract;
mod e2e;
mod mongodb;
mod mysql;
mod overload;
mod postgres;
mod verify;
