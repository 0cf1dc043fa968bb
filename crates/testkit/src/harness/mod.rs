//! Driver of the real binary: starts it on a generated configuration, exchanges exact HTTP bytes
//! with it, reads its metrics, and writes to its database as another process would. Shares no code
//! with the tested program.
//!
//! Every wait has a deadline and ends with a condition, never after a fixed time.
// Two test binaries include this module, and each uses a part of it.

pub mod account;
pub mod answer;
pub mod client;
pub mod config;
pub mod database;
pub mod events;
pub mod metrics;
pub mod panics;
pub mod server;

use std::path::PathBuf;
use std::time::{Duration, Instant};

pub use account::Account;
pub use answer::Answer;
pub use client::Client;
pub use config::{Config, Gate};
pub use database::Database;
pub use events::{EventStream, SentEvent};
pub use server::{Ended, Server};

/// Time limit of conditions that should hold soon. Generous, because tests run in parallel on two
/// cores, and a machine that writes back a build's files can stop others for many seconds.
pub const SOON: Duration = Duration::from_secs(120);

/// Intervals between two checks of a condition: a share of the wait so far, within bounds.
const POLLS_PER_WAIT: u32 = 50;
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(1);
const POLL_INTERVAL_MAX: Duration = Duration::from_millis(10);

/// Checks repeatedly for `time`, until nine of ten checks in such a period succeed. A machine that
/// pauses makes a few checks late; a systematic delay makes most of them late.
///
/// # Panics
/// Panics if this is not reached within a minute plus three times `time`; `what` is named.
#[track_caller]
pub fn await_mostly(what: &str, time: Duration, mut in_time: impl FnMut() -> bool) {
    let end = Instant::now() + SOON + 3 * time;
    loop {
        let begun = Instant::now();
        let mut checks = 0;
        let mut late = 0;
        while begun.elapsed() < time {
            checks += 1;
            late += u32::from(!in_time());
        }
        if late * 10 <= checks {
            return;
        }
        assert!(Instant::now() < end, "{what}: {late} of {checks} checks in {time:?} were late");
    }
}

/// Checks until `condition` holds, as often as [`await_some`].
#[track_caller]
pub fn await_until(what: &str, deadline: Duration, mut condition: impl FnMut() -> bool) {
    await_some(what, deadline, || condition().then_some(()));
}

/// Checks until `find` returns a value: every millisecond at first, and less often the longer it
/// takes, because a check that reads the metrics costs the CPU time of other tests.
#[track_caller]
pub fn await_some<T>(what: &str, deadline: Duration, mut find: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = find() {
            return found;
        }
        let waited = begun.elapsed();
        assert!(waited < deadline, "not within {deadline:?}: {what}");
        std::thread::sleep((waited / POLLS_PER_WAIT).clamp(POLL_INTERVAL_MIN, POLL_INTERVAL_MAX));
    }
}

/// The path of a program of this workspace, built beside the running test.
///
/// # Panics
/// When it is not built.
#[track_caller]
pub fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    let built = test.parent().and_then(|deps| deps.parent()).expect("target/PROFILE/deps");
    let program = built.join(name);
    assert!(program.is_file(), "{} is missing: build the workspace first", program.display());
    program
}
