//! `hotrow lab`: real processes, real proxies, real services, the real binary.

#![allow(clippy::panic, reason = "tests fail by panicking, in helpers too")]

mod experiment;
mod nginx;
mod reference;
mod report;
mod stage;
