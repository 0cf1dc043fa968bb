//! `hotrow serve` as programs of others see it: the description of its API, compressed answers,
//! the clients in `examples`, of Redis too, and Prometheus. The command line, the demonstration and
//! the packages.
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking, in helpers too")]

mod cli;
mod compression;
mod demo;
mod description;
mod examples;
mod libraries;
mod monitoring;
mod near_cache;
mod nginx;
mod packaging;
mod programs;
mod redis;
