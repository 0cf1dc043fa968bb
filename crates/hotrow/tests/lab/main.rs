//! Whole set-ups: real proxies, real services.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking, in helpers too")]

mod nginx;
