//! Overload and hostile clients against the real binary: what must hold while it is hit by everything.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking, in helpers too")]

mod breaker;
mod concurrency;
mod crowd;
mod flood;
mod forwarding;
mod fronts;
mod penetration;
mod rate;
mod scan;
mod shed;
mod slow;
mod smuggling;

#[allow(unused_imports, reason = "shared with the end-to-end tests")]
#[path = "../e2e/harness/mod.rs"]
mod harness;
