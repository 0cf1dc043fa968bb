//! Where the feed delivers: the cache takes changes in, the log tells of losses, waiters for positions wake.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hotrow_cache::key::CollectionId;
use hotrow_cache::version::{Mark, Position, Version};
use hotrow_measure::clock::Nanos;
use hotrow_source::{Change, FlushCause, LossCause, Sink};

use crate::shared::Shared;

mod unfollowed;

pub use self::unfollowed::Unfollowed;

/// The cache's side of the feed.
pub struct CacheSink {
    shared: Arc<Shared>,
    counts: Arc<FeedCounts>,
}

/// What the feed brought since the start.
#[derive(Debug, Default)]
pub struct FeedCounts {
    changes: AtomicU64,
    losses: [AtomicU64; 5],
    starts: AtomicU64,
    flushes: [AtomicU64; 3],
}

impl FeedCounts {
    /// Changes delivered.
    #[must_use]
    pub fn changes_total(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Times that the feed started.
    #[must_use]
    pub fn starts_total(&self) -> u64 {
        self.starts.load(Ordering::Relaxed)
    }

    /// Losses by cause, with the label of each.
    #[must_use]
    pub fn losses_total(&self) -> [(&'static str, u64); 5] {
        const LABELS: [&str; 5] = ["log_pruned", "other_log", "other_database", "unavailable", "not_watched"];
        std::array::from_fn(|i| (LABELS[i], self.losses[i].load(Ordering::Relaxed)))
    }

    /// Flushes by cause, with the label of each.
    #[must_use]
    pub fn flushes_total(&self) -> [(&'static str, u64); 3] {
        const LABELS: [&str; 3] = ["bulk", "schema", "unlisted"];
        std::array::from_fn(|i| (LABELS[i], self.flushes[i].load(Ordering::Relaxed)))
    }
}

impl CacheSink {
    /// A sink that feeds `shared.cache`.
    #[must_use]
    pub fn new(shared: Arc<Shared>, counts: Arc<FeedCounts>) -> Self {
        Self { shared, counts }
    }

    fn name(&self, collection: CollectionId) -> &str {
        &self.shared.collection(collection).name
    }
}

impl Sink for CacheSink {
    fn changes(&self, changes: &[Change]) {
        for Change { key, mark } in changes {
            if self.shared.cache.invalidate(key, *mark) {
                self.shared.refresh.want(key.collection());
            }
        }
        self.counts.changes.fetch_add(changes.len() as u64, Ordering::Relaxed);
    }

    fn flush(&self, collection: CollectionId, cause: FlushCause, mark: Option<Mark>) {
        self.shared.cache.flush(collection, mark);
        self.counts.flushes[cause as usize].fetch_add(1, Ordering::Relaxed);
        match cause {
            FlushCause::Schema => {
                tracing::info!(collection = self.name(collection), "table changed: all its entries are stale")
            }
            FlushCause::Bulk | FlushCause::Unlisted => {
                tracing::debug!(collection = self.name(collection), ?cause, "flushed");
            }
        }
    }

    fn loss(&self, cause: LossCause, detail: &str) {
        self.shared.cache.lose(None);
        self.counts.losses[cause as usize].fetch_add(1, Ordering::Relaxed);
        tracing::warn!(?cause, detail, "the feed lost its place: every entry is stale");
    }

    fn started(&self, position: Option<Position>) {
        self.shared.cache.lose(position);
        self.counts.starts.fetch_add(1, Ordering::Relaxed);
        let position = position.map(|p| p.to_string());
        tracing::info!(position, "the feed follows the database");
    }

    fn advance(&self, probe_sent_at: Nanos, position: Option<Position>, visible: Option<&Version>) {
        #[cfg(feature = "sabotage")]
        let probe_sent_at = if self.shared.cache.has(hotrow_cache::Fix::Probe) { probe_sent_at } else { Nanos::now() };
        let before = self.shared.cache.applied();
        self.shared.cache.advance(probe_sent_at, position);
        if let Some(version) = visible {
            self.shared.cache.visible(version);
        }
        if before != position {
            self.shared.feed_moved.notify_waiters();
        }
    }
}
