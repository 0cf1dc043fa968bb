//! Gap in the changes of one collection: nothing read while it is open is kept.
//!
//! A feed marks such a gap when it follows all collections but one: its table was not published for
//! a while, and transactions that wrote to it then may be delivered in part or not at all. Answers
//! come from the database until the feed closes the gap. The other collections keep their entries
//! and their freshness.

use std::sync::atomic::Ordering::Relaxed;

use crate::Cache;
use crate::cache::Collection;
use crate::record::Epoch;
use hotrow_types::key::CollectionId;

impl<E: Clone> Cache<E> {
    /// Opens a gap: changes of this collection may be missed from here on. All its entries and
    /// leases become invalid. Rows read until [`Cache::close_gap`] are answered, not kept, and
    /// joined only before their query is sent.
    pub fn open_gap(&self, collection: CollectionId) {
        self.set_gap(collection, true);
    }

    /// Closes the gap: the feed delivers the collection's changes again, and a read sent from now
    /// on sees all changes that were not delivered.
    pub fn close_gap(&self, collection: CollectionId) {
        self.set_gap(collection, false);
    }

    fn set_gap(&self, collection: CollectionId, is_open: bool) {
        let (collection, stats) = self.collection(collection);
        // Under this lock, like every insertion: a read that began before is judged by the new
        // epoch and the new flag.
        let mut fetches = collection.fetch_queue.lock();
        fetches.standbys.iter_mut().for_each(|standbys| standbys.hold());
        fetches.marks.all_changed();
        collection.raise(Epoch { feed: 0, flush: 1 });
        collection.has_gap.store(is_open, Relaxed);
        stats.flushes_total.add(1);
    }
}

impl<E> Collection<E> {
    /// Returns whether changes may be missed; called under the queue's lock.
    pub(crate) fn has_gap(&self) -> bool {
        self.has_gap.load(Relaxed)
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use super::*;
    use crate::testkit::*;
    use crate::{BatchLoader, Freshness, Lookup, ReadMode};

    const KEY: i64 = 7;

    fn send(cache: &TestCache) -> BatchLoader<TestError> {
        let mut loader = cache.batch_loader(FIRST).unwrap();
        assert_eq!(loader.next_batch(START).unwrap(), [key(KEY)]);
        loader
    }

    /// Reads the key again, with the log at `at`.
    fn read(cache: &TestCache, at: u64) {
        let mut waiter = waiter(cache.lookup(&key(KEY), ReadMode::Normal, START));
        let mut loader = send(cache);
        loader.complete(answers(at, 1), START);
        assert!(loader.next_batch(START).is_none());
        assert_eq!(body(poll(&mut waiter)), Some(at));
    }

    fn is_kept(cache: &TestCache) -> bool {
        cache.peek(&key(KEY), START).is_some_and(|(_, freshness)| freshness == Freshness::Fresh)
    }

    #[test]
    fn nothing_is_kept_while_a_gap_is_open() {
        let cache = cache(config());
        read(&cache, 1);
        assert!(is_kept(&cache));
        cache.open_gap(FIRST);
        assert!(!is_kept(&cache), "what was read before the gap");
        read(&cache, 2);
        assert!(!is_kept(&cache), "what was read within it");
        cache.close_gap(FIRST);
        assert!(!is_kept(&cache));
        read(&cache, 3);
        assert!(is_kept(&cache), "what was read after it");
    }

    #[test]
    fn a_read_across_either_end_of_a_gap_is_not_kept() {
        for end in [Cache::open_gap, Cache::close_gap] as [fn(&Cache<TestError>, CollectionId); 2] {
            let cache = cache(config());
            let _waiter = waiter(cache.lookup(&key(KEY), ReadMode::Normal, START));
            let mut loader = send(&cache);
            end(&cache, FIRST);
            loader.complete(answers(1, 1), START);
            assert!(!is_kept(&cache));
        }
    }

    #[test]
    fn a_read_within_a_gap_is_joined_only_before_its_query() {
        let cache = cache(config());
        cache.open_gap(FIRST);
        let _first = waiter(cache.lookup(&key(KEY), ReadMode::Normal, START));
        assert!(
            matches!(cache.lookup(&key(KEY), ReadMode::Normal, START), Lookup::Coalesced(_)),
            "it sees all that is to be seen"
        );
        let _loader = send(&cache);
        assert!(
            matches!(cache.lookup(&key(KEY), ReadMode::Normal, START), Lookup::Miss(_)),
            "no change would end its lease"
        );
    }
}
