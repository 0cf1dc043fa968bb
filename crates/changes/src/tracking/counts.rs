//! Counters of client-side caching. Written when an invalidation is put into a mailbox.

use std::sync::atomic::{AtomicU64, Ordering};

use hotrow_push::tracking::{AllCause, TrackedUsage};
use hotrow_telemetry::exposition::Exposition;

use super::Tracking;

/// Counts since the start of the process, and what is used at present.
#[derive(Debug, Default)]
pub struct TrackingCounts {
    invalidated: AtomicU64,
    gave_up_all: [AtomicU64; AllCause::ALL.len()],
    slow: AtomicU64,
    keys: AtomicU64,
    bytes: AtomicU64,
}

impl TrackingCounts {
    pub(super) fn invalidated(&self) {
        self.invalidated.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn gave_up_all(&self, cause: AllCause) {
        self.gave_up_all[cause as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a client that did not take its replies and invalidations fast enough.
    pub fn slow(&self) {
        self.slow.fetch_add(1, Ordering::Relaxed);
    }

    /// Replaces what a worker used before by what it uses now.
    pub fn uses(&self, before: TrackedUsage, now: TrackedUsage) {
        let replace = |count: &AtomicU64, before: usize, now: usize| {
            // Modulo 2^64: the sum over workers is right.
            count.fetch_add((now as u64).wrapping_sub(before as u64), Ordering::Relaxed);
        };
        replace(&self.keys, before.keys, now.keys);
        replace(&self.bytes, before.bytes, now.bytes);
    }
}

impl Tracking {
    /// Writes the metrics.
    pub fn expose(&self, out: &mut Exposition) {
        let counts = &self.counts;
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        out.gauge(
            "hotrow_redis_tracking_clients",
            "Connections of the Redis protocol that track what they read.",
            [([], self.clients.load(Ordering::Relaxed) as u64)],
        );
        out.gauge(
            "hotrow_redis_tracked_keys",
            "Keys of which clients that track may hold copies, once for each client and spelling.",
            [([], get(&counts.keys))],
        );
        out.gauge(
            "hotrow_redis_tracking_bytes",
            "Bytes of memory for tracked keys.",
            [([], get(&counts.bytes))],
        );
        out.counter(
            "hotrow_redis_invalidations_total",
            "Keys sent to clients, which give up their copies.",
            [([], get(&counts.invalidated))],
        );
        let gave_up = AllCause::ALL.iter().zip(&counts.gave_up_all);
        out.counter(
            "hotrow_redis_invalidate_alls_total",
            "Times that a client had to give up all copies, by reason.",
            gave_up.map(|(cause, count)| ([("reason", cause.label())], get(count))),
        );
        out.counter(
            "hotrow_redis_tracking_slow_total",
            "Clients that track and did not take their replies fast enough, and were closed.",
            [([], get(&counts.slow))],
        );
    }
}
