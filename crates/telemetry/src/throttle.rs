//! Throttled log lines, for faults that a broken database could repeat a thousand times a second:
//! at most one line a second each, with the number of suppressed lines.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hotrow_measure::clock::Nanos;

const PERIOD: Duration = Duration::from_secs(1);

/// Queries that failed as a whole.
pub static QUERY_FAILED: Throttle = Throttle::new();
/// Queries over the threshold.
pub(crate) static SLOW_QUERY: Throttle = Throttle::new();
/// Answers found inconsistent.
pub static INCONSISTENT: Throttle = Throttle::new();
/// Failures of the access log's output.
pub(crate) static ACCESS_LOG: Throttle = Throttle::new();
/// Failures of the export of traces.
pub(crate) static TRACE_EXPORT: Throttle = Throttle::new();
/// Followers of changes that were too slow.
pub static SLOW_FOLLOWER: Throttle = Throttle::new();
/// Records without a JSON form.
pub static ROW_UNREADABLE: Throttle = Throttle::new();

/// Throttle that passes one line a second.
#[derive(Debug)]
pub struct Throttle {
    next_ns: AtomicU64,
    suppressed: AtomicU64,
}

impl Default for Throttle {
    fn default() -> Self {
        Self::new()
    }
}

impl Throttle {
    /// Creates one that passes the first line.
    pub const fn new() -> Self {
        Self { next_ns: AtomicU64::new(0), suppressed: AtomicU64::new(0) }
    }

    /// Calls `log` with the number of lines suppressed since the last one, or suppresses this one.
    pub fn warn(&self, log: impl FnOnce(u64)) {
        let now = Nanos::now();
        let next = self.next_ns.load(Ordering::Relaxed);
        let due = now.0 >= next
            && self
                .next_ns
                .compare_exchange(next, now.after(PERIOD).0, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if due {
            log(self.suppressed.swap(0, Ordering::Relaxed));
        } else {
            self.suppressed.fetch_add(1, Ordering::Relaxed);
        }
    }
}
