//! Counters of a feed.

use std::sync::atomic::{AtomicU64, Ordering};

use hotrow_source::LossCause;

/// Counters of the feed since the start.
#[derive(Debug, Default)]
pub struct FeedCounts {
    /// Changes delivered.
    pub changes: AtomicU64,
    /// Losses of the position, by cause.
    pub losses: [AtomicU64; 7],
    /// Starts of the feed.
    pub starts: AtomicU64,
    /// Flushes of collections, by cause.
    pub flushes: [AtomicU64; 4],
}

impl FeedCounts {
    /// Returns the number of delivered changes.
    pub fn changes_total(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Returns how often the feed started.
    pub fn starts_total(&self) -> u64 {
        self.starts.load(Ordering::Relaxed)
    }

    /// Returns gaps by cause, with the label of each.
    pub fn losses_total(&self) -> [(&'static str, u64); 7] {
        LossCause::ALL
            .map(|cause| (cause.label(), self.losses[cause as usize].load(Ordering::Relaxed)))
    }

    /// Returns flushes by cause, with the label of each.
    pub fn flushes_total(&self) -> [(&'static str, u64); 4] {
        const LABELS: [&str; 4] = ["bulk", "schema", "unlisted", "gap"];
        std::array::from_fn(|i| (LABELS[i], self.flushes[i].load(Ordering::Relaxed)))
    }
}
