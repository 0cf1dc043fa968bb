//! State of one source, which its collections share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use hotrow_measure::clock::Nanos;
use hotrow_types::source::SourceId;

use crate::config::{InvalidationMode, SourceSettings};
use crate::freshness::Progress;

/// A source as its collections share it.
pub(crate) struct SourceState {
    pub(crate) id: SourceId,
    pub(crate) settings: SourceSettings,
    pub(crate) progress: Progress,
    pub(crate) feed_epochs_total: AtomicU64,
    /// Whether standbys may wait for a probe; see [`Cache::release_standbys_after`].
    pub(crate) standbys_are_held: AtomicBool,
}

impl SourceState {
    pub(crate) fn new(id: SourceId, settings: SourceSettings) -> Arc<Self> {
        Arc::new(Self {
            id,
            settings,
            progress: Progress::new(),
            feed_epochs_total: AtomicU64::new(0),
            standbys_are_held: AtomicBool::new(false),
        })
    }

    pub(crate) fn is_followed(&self) -> bool {
        self.settings.invalidation_mode == InvalidationMode::Feed
    }

    /// Returns the staleness that entries are judged by: zero where the TTL alone decides.
    #[inline]
    pub(crate) fn effective_staleness(&self, now: Nanos) -> Duration {
        match self.settings.invalidation_mode {
            InvalidationMode::Feed => self.progress.effective_staleness(now),
            InvalidationMode::TtlOnly => Duration::ZERO,
        }
    }
}
