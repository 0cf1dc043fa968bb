//! Tests of the server that look at their own process: its allocations, memory and descriptors. One
//! runs at a time.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking, in helpers too")]

use std::sync::{Mutex, MutexGuard, PoisonError};

mod allocations;
#[path = "../common/mod.rs"]
mod common;
mod descriptors;
mod http2_attacks;

/// Returns what a test holds as long as it runs.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
