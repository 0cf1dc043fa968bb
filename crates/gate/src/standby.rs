//! Reads of standbys: in place of the primary, past its limits and its breaker.

use std::sync::Arc;
use std::time::Duration;

use hotrow_cache::StandbyBound;
use hotrow_source::standby::{RefusalCounts, StandbyRead, StandbyRefusal};
use hotrow_source::{ReadSet, RowBudget, Source};
use hotrow_types::key::{CollectionId, Key};
use hotrow_types::source::SourceId;
use hotrow_types::version::{Position, Version};

use crate::cache_in_force::CacheInForce;
use crate::feed_progress::FeedProgress;

/// Longest wait for the feed to deliver what a standby's answer may show. The feed is ahead of a
/// standby nearly always; when the log grows without commits it may be behind until its next probe.
const FEED_WAIT_MAX: Duration = Duration::from_millis(20);
/// Pauses before keys are read again whose answer is older than one of a standby: the first, and
/// the longest.
pub(crate) const PAUSE: std::ops::Range<Duration> =
    Duration::from_millis(1)..Duration::from_millis(50);

/// Counters of the reads of standbys.
#[derive(Debug, Default)]
pub struct StandbyReads {
    refusals: RefusalCounts,
}

impl StandbyReads {
    /// Returns the reads that no standby answered, by reason.
    pub fn refusals(&self) -> &RefusalCounts {
        &self.refusals
    }
}

/// A database with standbys, and what decides whether the answer of one may be used.
pub(crate) struct Primary<'a> {
    pub(crate) id: SourceId,
    pub(crate) source: &'a dyn Source,
    pub(crate) standbys: &'a StandbyReads,
    /// Progress of its feed.
    pub(crate) progress: &'a FeedProgress,
    /// Its cache when the answer is there, which may be another than when the read began.
    pub(crate) cache: &'a CacheInForce,
}

impl Primary<'_> {
    /// Reads `keys` from a standby that has replayed the log up to `floor`; `None` if none
    /// answered.
    pub(crate) async fn read_standby(
        &self,
        collection: CollectionId,
        keys: Vec<Key>,
        rows: Arc<RowBudget>,
        floor: Position,
    ) -> Option<ReadSet> {
        let Self { standbys, progress, .. } = self;
        let read = self.source.read_standby(collection, keys, rows, floor).await;
        let StandbyRead { rows, seen } =
            read.map_err(|refusal| standbys.refusals.count(refusal)).ok()?;
        let bound = StandbyBound { past: seen.past, end: seen.end };
        let cache = self.cache.get();
        let feed = (&*cache, self.id);
        let Some(to) = progress.delivered_through(feed, floor, bound, FEED_WAIT_MAX).await else {
            standbys.refusals.count(StandbyRefusal::FeedBehind);
            return None;
        };
        let from = Position { at: seen.from, ..floor };
        Some(ReadSet { version: Version::Replayed { from, to }, position: Some(to), rows })
    }
}
