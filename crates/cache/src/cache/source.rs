//! Progress of each source's feed, and what follows from it for the source's collections.
//!
//! A collection is read from one source, and knows its state. So a loss, a watermark and the point
//! of the log that has been applied concern the collections of that source alone.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hotrow_measure::clock::Nanos;
use hotrow_types::key::CollectionId;
use hotrow_types::source::SourceId;
use hotrow_types::version::{Position, Version};

use super::{Cache, CacheState, Collection};
use crate::config::{CollectionPolicy, Config, SourceSettings};
use crate::record::Epoch;
use crate::safeguards::Safeguard;
use crate::source_state::SourceState;

impl<E> Collection<E> {
    /// Returns the staleness that entries of the collection are judged by.
    #[inline]
    pub(crate) fn effective_staleness(&self, now: Nanos) -> Duration {
        self.source.effective_staleness(now)
    }
}

impl<E> CacheState<E> {
    pub(crate) fn source_state(&self, CollectionId(id): CollectionId) -> &SourceState {
        &self.collections[usize::from(id)].source
    }

    /// Returns the collections of a source.
    pub(crate) fn collections_of(
        &self,
        source: SourceId,
    ) -> impl Iterator<Item = (CollectionId, &Collection<E>)> {
        let numbered = (0..).map(CollectionId).zip(&self.collections);
        numbered.filter(move |(_, collection)| collection.source.id == source)
    }
}

impl<E: Clone> Cache<E> {
    /// Creates an empty cache whose collections are read from several sources: the settings of each
    /// source, and the source of each collection, which must be one of them.
    #[must_use]
    pub fn of_sources(
        config: Config,
        collections: Vec<CollectionPolicy>,
        sources: &[SourceSettings],
        source_of: impl Fn(CollectionId) -> SourceId,
    ) -> Arc<Self> {
        let numbered = (0..).map(SourceId).zip(sources);
        let sources = numbered.map(|(id, settings)| SourceState::new(id, *settings)).collect();
        Self::assemble(config, collections, sources, source_of)
    }

    /// Returns the source that a collection is read from.
    pub fn source_of(&self, collection: CollectionId) -> SourceId {
        self.source_state(collection).id
    }

    /// Returns the number of sources.
    pub fn source_count(&self) -> usize {
        self.sources.len()
    }

    /// Returns the settings of a source.
    pub fn source_settings(&self, source: SourceId) -> &SourceSettings {
        &self.sources[source.index()].settings
    }

    /// Returns whether a feed invalidates the source's entries, and not their TTL alone.
    pub fn is_followed(&self, source: SourceId) -> bool {
        self.sources[source.index()].is_followed()
    }

    /// Marks a gap in the feed of a source, or its restart at `position`: every entry of the source
    /// becomes stale, in O(1) per collection.
    pub fn mark_gap(&self, source: SourceId, position: Option<Position>) {
        for (_, collection) in self.collections_of(source) {
            let mut fetches = collection.fetch_queue.lock();
            if position.is_some() {
                // A feed starts only when every read sees what the previous feed delivered.
                fetches.fence.clear();
                fetches.standbys.iter_mut().for_each(|standbys| standbys.restart());
            }
            fetches.marks.all_changed();
            collection
                .raise(Epoch { feed: u32::from(self.safeguards.has(Safeguard::Epoch)), flush: 0 });
        }
        let state = &self.sources[source.index()];
        state.progress.mark_gap(position);
        state.feed_epochs_total.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that every change of the source committed before `probe_sent_at` has been applied,
    /// up to `position`.
    pub fn advance(&self, source: SourceId, probe_sent_at: Nanos, position: Option<Position>) {
        self.sources[source.index()].progress.advance(probe_sent_at, position);
        self.standbys_passed(source, probe_sent_at, position);
    }

    /// Records that reads of the source sent from now on see at least `version`: changes that it
    /// contains need no fence.
    pub fn advance_visibility(&self, source: SourceId, version: &Version) {
        for (_, collection) in self.collections_of(source) {
            let mut fetches = collection.fetch_queue.lock();
            if !fetches.fence.is_open() {
                fetches.fence.seen(version);
            }
        }
    }

    /// Returns how long a change of the source may have gone unseen. Meaningless without a feed
    /// ([`InvalidationMode::TtlOnly`]).
    pub fn staleness(&self, source: SourceId, now: Nanos) -> Duration {
        self.sources[source.index()].progress.staleness(now)
    }

    /// Returns whether the feed of the source has passed its first probe: from then on its
    /// staleness is known.
    pub fn has_watermark(&self, source: SourceId) -> bool {
        self.sources[source.index()].progress.watermark() > Nanos(0)
    }

    /// Returns whether the feed of the source is within the contract's bound, or none is
    /// configured.
    pub fn is_current(&self, source: SourceId, now: Nanos) -> bool {
        self.sources[source.index()].effective_staleness(now) <= self.config.max_staleness
    }

    /// Returns the point of the source's log up to which changes have been applied; `None` before
    /// its feed started or without a log.
    pub fn applied(&self, source: SourceId) -> Option<Position> {
        self.sources[source.index()].progress.applied()
    }

    /// Returns how often the feed of the source lost its position or started; each raises the feed
    /// epoch of its collections.
    pub fn feed_epochs_total(&self, source: SourceId) -> u64 {
        self.sources[source.index()].feed_epochs_total.load(Ordering::Relaxed)
    }

    /// Returns the settings of a collection's source.
    pub(crate) fn settings_of(&self, collection: CollectionId) -> &SourceSettings {
        &self.source_state(collection).settings
    }

    /// Returns the staleness that entries of a collection are judged by.
    #[inline]
    pub(super) fn effective_staleness(&self, collection: CollectionId, now: Nanos) -> Duration {
        self.source_state(collection).effective_staleness(now)
    }

    /// Returns whether entries of the collection are within the contract's bound.
    pub(crate) fn is_collection_current(&self, collection: &Collection<E>, now: Nanos) -> bool {
        collection.effective_staleness(now) <= self.config.max_staleness
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use hotrow_types::version::ChangeId;

    use super::*;
    use crate::config::InvalidationMode;
    use crate::testkit::*;
    use crate::{Freshness, Lookup, NotReached, ReadMode};

    const OTHER: CollectionId = CollectionId(1);
    const SECOND: SourceId = SourceId(1);

    /// Returns a cache of two collections, each of a source of its own.
    fn two_sources(second: SourceSettings) -> TestCache {
        let ttl = Duration::from_secs(600);
        let policy =
            CollectionPolicy { ttl, negative_ttl: ttl, has_tenants: false, has_views: false };
        let sources = [config().only_source(), second];
        let cache = Cache::of_sources(config(), vec![policy.clone(), policy], &sources, |id| {
            SourceId(id.0)
        });
        cache.advance(SourceId::FIRST, START, Some(at(1, 10)));
        cache.advance(SECOND, START, Some(at(2, 70)));
        cache
    }

    fn at(incarnation: u64, at: u64) -> Position {
        Position { incarnation, at }
    }

    fn fill(cache: &TestCache, collection: CollectionId) {
        let _waiter = cache.lookup(&key_of(collection, 1), ReadMode::Normal, START);
        let mut loader = cache.batch_loader(collection).unwrap();
        assert!(loader.next_batch(START).is_some());
        loader.complete(answers(5, 1), START);
        assert!(loader.next_batch(START).is_none());
    }

    fn hit(cache: &TestCache, collection: CollectionId, now: Nanos) -> Option<Freshness> {
        match cache.lookup(&key_of(collection, 1), ReadMode::Normal, now) {
            Lookup::Hit(_, freshness) => Some(freshness),
            _ => None,
        }
    }

    fn filled() -> TestCache {
        let cache = two_sources(config().only_source());
        [FIRST, OTHER].into_iter().for_each(|collection| fill(&cache, collection));
        cache
    }

    #[test]
    fn a_loss_does_not_cross_to_another_source() {
        let cache = filled();
        cache.mark_gap(SourceId::FIRST, None);
        assert_eq!(hit(&cache, FIRST, START), None);
        assert_eq!(hit(&cache, OTHER, START), Some(Freshness::Fresh));
        let epochs = [SourceId::FIRST, SECOND].map(|source| cache.feed_epochs_total(source));
        assert_eq!(epochs, [1, 0]);
        assert_eq!(
            (cache.applied(SourceId::FIRST), cache.applied(SECOND)),
            (None, Some(at(2, 70)))
        );
    }

    #[test]
    fn a_silent_feed_makes_only_its_own_entries_stale() {
        let cache = filled();
        let late = ms(1_002_000);
        cache.advance(SECOND, late, Some(at(2, 71)));
        assert_eq!(
            (hit(&cache, FIRST, late), hit(&cache, OTHER, late)),
            (None, Some(Freshness::Fresh))
        );
        assert!(!cache.is_current(SourceId::FIRST, late) && cache.is_current(SECOND, late));
        assert!(cache.staleness(SourceId::FIRST, late) > cache.staleness(SECOND, late));
    }

    #[test]
    fn a_position_of_another_sources_log_is_refused() {
        let cache = filled();
        assert_eq!(cache.has_passed(FIRST, &at(1, 10)), Ok(true));
        assert_eq!(cache.has_passed(OTHER, &at(1, 10)), Err(NotReached::OtherLog));
        assert_eq!(cache.has_passed(FIRST, &at(2, 1)), Err(NotReached::OtherLog));
    }

    /// A read of one source proves nothing about the changes of another.
    #[test]
    fn what_one_source_shows_does_not_open_the_fence_of_another() {
        let cache = two_sources(config().only_source());
        let _ = cache.invalidate(&key_of(OTHER, 1), ChangeId::Commit(at(1, 9)));
        cache.advance_visibility(SourceId::FIRST, &log(9));
        let _waiter = cache.lookup(&key_of(OTHER, 1), ReadMode::Normal, START);
        let mut loader = cache.batch_loader(OTHER).unwrap();
        assert!(loader.next_batch(START).is_some());
        loader.complete(answers(5, 1), START);
        assert_eq!(hit(&cache, OTHER, START), None, "the read does not see the change");
    }

    #[test]
    fn each_source_has_its_own_bounds_and_mode() {
        let own = SourceSettings {
            invalidation_mode: InvalidationMode::TtlOnly,
            query_keys: 1,
            reads_in_flight: 1,
            ..config().only_source()
        };
        let cache = two_sources(own);
        let keys = [1, 2].map(|id| key_of(OTHER, id));
        let _waiters = cache.lookup_batch(&keys, ReadMode::Normal, START);
        let mut loader = cache.batch_loader(OTHER).unwrap();
        assert_eq!(loader.next_batch(START).map(|keys| keys.len()), Some(1));
        assert!(cache.batch_loader(OTHER).is_none(), "one query at once");
        loader.complete(answers(5, 1), START);
        // No feed: the TTL alone decides, and no position is promised.
        let late = ms(1_100_000);
        assert_eq!(hit(&cache, OTHER, late), Some(Freshness::Fresh));
        let (record, _) = cache.peek(&key_of(OTHER, 1), late).unwrap();
        assert_eq!(record.position(), None);
        assert!(cache.is_followed(SourceId::FIRST) && !cache.is_followed(SECOND));
    }
}
