//! Counters of purges. Written once per request, and when a whole collection is purged.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of one target since the start.
#[derive(Debug, Default)]
pub(super) struct TargetCounts {
    pub(super) accepted: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) records: AtomicU64,
    pub(super) collections: AtomicU64,
}

impl TargetCounts {
    /// Counts an accepted request and what it purged.
    pub(super) fn accepted(&self, records: usize, collections: usize) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        self.records.fetch_add(records as u64, Ordering::Relaxed);
        self.collections.fetch_add(collections as u64, Ordering::Relaxed);
    }

    /// Counts a request that was not accepted.
    pub(super) fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }
}
