//! Waits of the observing threads, which end with the measurement.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hotrow_measure::clock::Nanos;

/// Longest sleep before checking whether the load has ended; the loading thread may wake it
/// (`unpark`).
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// Waits for the beginning of a load; `None` if it ended without one.
pub(super) fn start_of(at: &OnceLock<Nanos>, over: &AtomicBool) -> Option<Nanos> {
    loop {
        match at.get() {
            Some(start) => return Some(*start),
            None if over.load(Ordering::Relaxed) => return None,
            None => std::thread::park_timeout(SLEEP_MAX),
        }
    }
}

/// Sleeps; returns whether the whole time passed before the end.
pub(super) fn sleep_until(until: Nanos, over: &AtomicBool) -> bool {
    loop {
        let now = Nanos::now();
        if over.load(Ordering::Relaxed) {
            return false;
        }
        if now >= until {
            return true;
        }
        std::thread::park_timeout(until.since(now).min(SLEEP_MAX));
    }
}
