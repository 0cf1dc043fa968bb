//! Counters of purges. Written once per request, and when a whole collection is purged.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of one target since the start.
#[derive(Debug, Default)]
pub(super) struct TargetCounts {
    pub(crate) accepted: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) records: AtomicU64,
    pub(crate) collections: AtomicU64,
}

impl TargetCounts {
    /// Counts an accepted request and what it purged.
    pub(crate) fn accepted(&self, records: usize, collections: usize) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        self.records.fetch_add(records as u64, Ordering::Relaxed);
        self.collections.fetch_add(collections as u64, Ordering::Relaxed);
    }

    /// Counts a request that was not accepted.
    pub(crate) fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }
}
