//! Delivery of the feed: the cache applies changes, the log reports gaps, and requests waiting for
//! positions wake.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hotrow_answer::collections::Collections;
use hotrow_cache::Cache;
use hotrow_gate::feed_counts::FeedCounts;
use hotrow_gate::read::{Fetcher, SourceReads};
use hotrow_gate::refresh::Refresh;
use hotrow_measure::clock::Nanos;
use hotrow_source::looks::Looks;
use hotrow_source::{Change, FlushCause, LossCause, ReadFailure, Sink};
use hotrow_telemetry::traces::FeedTrace;
use hotrow_types::key::CollectionId;
use hotrow_types::source::SourceId;
use hotrow_types::version::{ChangeId, Position, Version};

use crate::follow::Follows;
use crate::tracking::Tracking;

/// The cache's end of the feed.
pub struct CacheSink {
    cache: Arc<Cache<ReadFailure>>,
    collections: Arc<Collections>,
    fetcher: Arc<Fetcher>,
    refresh: Arc<Refresh>,
    source: SourceId,
    /// Followers of changes, if collections may be followed.
    follows: Option<Arc<Follows>>,
    /// Clients that keep copies, if there are clients of the Redis protocol.
    tracking: Option<Arc<Tracking>>,
    /// Spans of the feed, if traces are configured.
    trace: Option<FeedTrace>,
}

impl CacheSink {
    /// Creates a sink for the feed of `source` that feeds `cache`, and informs followers and
    /// clients that keep copies, if there can be any.
    #[must_use]
    pub fn new(
        cache: &Arc<Cache<ReadFailure>>,
        (fetcher, refresh): (&Arc<Fetcher>, &Arc<Refresh>),
        (follows, tracking): (Option<Arc<Follows>>, Option<Arc<Tracking>>),
        source: SourceId,
    ) -> Self {
        let named = || fetcher.sources[source.index()].name.clone();
        Self {
            cache: Arc::clone(cache),
            collections: Arc::clone(&fetcher.collections),
            fetcher: Arc::clone(fetcher),
            refresh: Arc::clone(refresh),
            source,
            follows,
            tracking,
            trace: fetcher
                .tracer
                .clone()
                .map(|tracer| FeedTrace::new(tracer, named(), cache.config().max_staleness)),
        }
    }

    fn reads(&self) -> &SourceReads {
        &self.fetcher.sources[self.source.index()]
    }

    fn counts(&self) -> &FeedCounts {
        &self.reads().feed
    }

    fn name(&self, collection: CollectionId) -> &str {
        &self.collections.get(collection).name
    }
}

impl Sink for CacheSink {
    fn changes(&self, changes: &[Change]) {
        let now = Nanos::now();
        let cache = self.fetcher.cache.get();
        for Change { key, mark } in changes {
            let is_read_again = cache.invalidate(key, *mark);
            cache.note_removed(key, true, now);
            if is_read_again {
                self.refresh.want(key.collection());
            }
        }
        self.counts().changes.fetch_add(changes.len() as u64, Ordering::Relaxed);
        self.follows.iter().for_each(|follows| follows.changes(self.source, changes));
        self.tracking.iter().for_each(|tracking| tracking.changes(self.source, changes));
    }

    fn flush(&self, collection: CollectionId, cause: FlushCause, mark: Option<ChangeId>) {
        self.cache.flush(collection, mark);
        self.cache.release_standbys_after(collection, Nanos::now());
        self.cache.note_flushed(collection, Nanos::now());
        self.counts().flushes[cause as usize].fetch_add(1, Ordering::Relaxed);
        self.follows.iter().for_each(|follows| follows.flush(self.source, collection, mark));
        self.tracking.iter().for_each(|own| own.flush(self.source, collection, mark));
        match cause {
            FlushCause::Schema => {
                tracing::info!(
                    collection = self.name(collection),
                    "table changed: all its entries are stale"
                )
            }
            FlushCause::Bulk | FlushCause::Unlisted | FlushCause::Gap => {
                tracing::debug!(collection = self.name(collection), ?cause, "flushed");
            }
        }
    }

    fn open_gap(&self, collection: CollectionId, detail: &str) {
        self.cache.open_gap(collection);
        self.trace.iter().for_each(|trace| trace.gap_opened(collection));
        self.cache.note_flushed(collection, Nanos::now());
        self.counts().flushes[FlushCause::Gap as usize].fetch_add(1, Ordering::Relaxed);
        self.follows.iter().for_each(|follows| follows.open_gap(self.source, collection));
        self.tracking.iter().for_each(|own| own.flush(self.source, collection, None));
        tracing::warn!(
            collection = self.name(collection),
            detail,
            "changes of one collection may be missed: it is read from the database until its \
             changes are delivered again"
        );
    }

    fn close_gap(&self, collection: CollectionId) {
        self.cache.close_gap(collection);
        self.cache.release_standbys_after(collection, Nanos::now());
        self.trace.iter().for_each(|trace| trace.gap_closed(collection));
        self.follows.iter().for_each(|follows| follows.close_gap(self.source, collection));
        self.tracking.iter().for_each(|own| own.flush(self.source, collection, None));
        tracing::info!(
            collection = self.name(collection),
            "all changes of the collection are delivered again"
        );
    }

    fn loss(&self, cause: LossCause, detail: &str) {
        self.cache.mark_gap(self.source, None);
        self.reads().looks.close();
        self.cache.note_gap(self.source, Nanos::now());
        self.trace.iter().for_each(|trace| trace.lost(cause));
        self.follows.iter().for_each(|follows| follows.loss(self.source));
        self.tracking.iter().for_each(|tracking| tracking.reset(self.source));
        self.counts().losses[cause as usize].fetch_add(1, Ordering::Relaxed);
        let source = &*self.reads().name;
        tracing::warn!(source, ?cause, detail, "the feed lost its position: every entry is stale");
    }

    fn started(&self, position: Option<Position>) {
        self.cache.mark_gap(self.source, position);
        self.cache.release_all_standbys_after(self.source, Nanos::now());
        self.cache.note_gap(self.source, Nanos::now());
        if let Some(position) = position {
            self.reads().progress.began(position.incarnation, Nanos::now());
        }
        self.trace.iter().for_each(FeedTrace::started);
        self.follows.iter().for_each(|follows| follows.started(self.source, position));
        self.tracking.iter().for_each(|tracking| tracking.started(self.source));
        self.counts().starts.fetch_add(1, Ordering::Relaxed);
        let position = position.map(|p| p.to_string());
        let source = &*self.reads().name;
        tracing::info!(source, position, "the feed follows the database");
    }

    fn advance(&self, probe_sent_at: Nanos, position: Option<Position>, visible: Option<&Version>) {
        #[cfg(feature = "failpoints")]
        let probe_sent_at = if self.cache.has(hotrow_cache::Safeguard::Probe) {
            probe_sent_at
        } else {
            Nanos::now()
        };
        let before = self.cache.applied(self.source);
        self.cache.advance(self.source, probe_sent_at, position);
        self.trace.iter().for_each(|trace| trace.advanced(probe_sent_at));
        if let Some(version) = visible {
            self.cache.advance_visibility(self.source, version);
        }
        if before != position {
            self.reads().progress.moved();
        }
        // Last: who reads because of an event finds everything else done.
        self.follows.iter().for_each(|follows| follows.advance(self.source, position, visible));
        self.tracking.iter().for_each(|tracking| tracking.advance(self.source, visible));
    }

    fn wants_visibility(&self) -> bool {
        self.follows.as_ref().is_some_and(|follows| follows.wants_proof(self.source))
            || self.tracking.as_ref().is_some_and(|own| own.wants_proof(self.source))
    }

    fn looks(&self) -> Option<&Looks> {
        Some(&self.reads().looks)
    }
}

/// Sink for `source.feed = "none"`, which forwards only the events that invalidate all entries of a
/// table or database: that a table's shape changed, that another database answers, and that the
/// detection of both failed. Other entries live until their TTL, also while the database is
/// unavailable.
pub struct TtlOnlySink {
    cache: CacheSink,
}

impl TtlOnlySink {
    /// Wraps the cache's own sink.
    #[must_use]
    pub fn new(cache: CacheSink) -> Self {
        Self { cache }
    }
}

impl Sink for TtlOnlySink {
    fn changes(&self, _: &[Change]) {}

    fn flush(&self, collection: CollectionId, cause: FlushCause, mark: Option<ChangeId>) {
        match cause {
            FlushCause::Schema => self.cache.flush(collection, cause, mark),
            FlushCause::Bulk | FlushCause::Unlisted | FlushCause::Gap => {}
        }
    }

    fn open_gap(&self, _: CollectionId, _: &str) {}

    fn close_gap(&self, _: CollectionId) {}

    fn loss(&self, cause: LossCause, detail: &str) {
        match cause {
            LossCause::OtherDatabase | LossCause::OtherLog | LossCause::FeedFailed => {
                self.cache.loss(cause, detail)
            }
            LossCause::Unavailable
            | LossCause::LogPruned
            | LossCause::NotWatched
            | LossCause::Hub => {
                tracing::warn!(
                    source = &*self.cache.reads().name,
                    ?cause,
                    detail,
                    "the database cannot be watched now; entries stay until their TTL"
                );
            }
        }
    }

    fn started(&self, _: Option<Position>) {}

    fn advance(&self, _: Nanos, _: Option<Position>, _: Option<&Version>) {}

    fn looks(&self) -> Option<&Looks> {
        None
    }
}
