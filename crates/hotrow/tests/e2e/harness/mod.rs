//! Drives the real binary: starts it on a generated configuration, speaks HTTP to it byte by byte, reads its metrics, and
//! writes to its database as another process would. Shares no code with what it judges.
//!
//! Every wait has a deadline; what is awaited is a condition, never a length of time.
// Two test binaries include this module, and each uses a part of it.
#![allow(dead_code, unreachable_pub)]

pub mod answer;
pub mod client;
pub mod config;
pub mod database;
pub mod metrics;
pub mod server;

use std::time::{Duration, Instant};

pub use answer::Answer;
pub use client::Client;
pub use config::Config;
pub use database::Database;
pub use server::{Ended, Server};

/// How long anything may take that ought to happen soon. Generous, for the tests run beside each other on two cores.
pub const SOON: Duration = Duration::from_secs(15);

/// Looks again and again for `time`, until nine of ten looks in such a time found it in time: a machine that stands still makes some late,
/// what is late by itself stays so.
///
/// # Panics
/// When that does not come about; `what` is named.
#[track_caller]
pub fn await_mostly(what: &str, time: Duration, mut in_time: impl FnMut() -> bool) {
    let end = Instant::now() + SOON + 3 * time;
    loop {
        let (begun, mut looks, mut late) = (Instant::now(), 0, 0);
        while begun.elapsed() < time {
            looks += 1;
            late += u32::from(!in_time());
        }
        if late * 10 <= looks {
            return;
        }
        assert!(Instant::now() < end, "{what}: {late} of {looks} looks in {time:?} found it late");
    }
}

/// Looks every millisecond until `condition` holds.
///
/// # Panics
/// When it does not hold within `deadline`; `what` is named.
#[track_caller]
pub fn await_until(what: &str, deadline: Duration, mut condition: impl FnMut() -> bool) {
    await_some(what, deadline, || condition().then_some(()));
}

/// Looks every millisecond until `look` finds something.
///
/// # Panics
/// When it does not within `deadline`; `what` is named.
#[track_caller]
pub fn await_some<T>(what: &str, deadline: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + deadline;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "not within {deadline:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
