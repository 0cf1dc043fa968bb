//! `hotrow lab`: real processes, real proxies, real services, the real binary.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking, in helpers too")]

mod access;
mod experiment;
mod limits;
mod models;
/// Real nginx in every topology: correct responses from the correct backends, and no wrong cache
/// hits.
mod nginx {
    mod caching;
    mod command;
    mod harness;
    mod midnight;
    mod sharing;
}
mod own_service;
mod proxy;
mod reference;
mod report;
mod routing;
mod stage;
mod workloads;

use hotrow_testkit::postgres as server;
