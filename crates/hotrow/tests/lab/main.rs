//! Whole set-ups: real proxies, real services.

#![allow(clippy::panic, reason = "tests fail by panicking, in helpers too")]

mod experiment;
mod nginx;
