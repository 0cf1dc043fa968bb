//! `hotrow serve` as programs of others see it: the description of its API, compressed answers, and
//! the clients in `examples`.
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking, in helpers too")]

mod compression;
mod description;
mod examples;
mod nginx;
mod programs;
