//! Warm start: which records are hot, and reads of records that were hot before the start.

use hotrow_measure::clock::Nanos;
use hotrow_types::key::Key;

use super::{Cache, FetchQueue};
use crate::flight::Kind;
use crate::record::Record;
use crate::store::Walk;

impl<E: Clone> Cache<E> {
    /// Appends some of the records in memory, the hottest first over the whole walk. `false`: the
    /// walk is at its end. Takes the read lock of one shard for a bounded time.
    pub fn step(&self, walk: &mut Walk, records: &mut Vec<Record>) -> bool {
        self.store.step(walk, records)
    }

    /// Returns whether records can be added without an eviction. Shards fill unevenly: the store
    /// counts as full a little below its capacity.
    pub fn has_room(&self) -> bool {
        self.config.enabled && !self.store.is_full()
    }

    /// Queues reads of those of `keys` that no usable entry and no read in flight has, all of one
    /// collection, and returns their number; `None`, and nothing is queued, while other keys of the
    /// collection wait. A record that does not exist is not remembered. If any was queued, call
    /// [`Cache::batch_loader`].
    pub fn warm_up(&self, keys: &[Key], now: Nanos) -> Option<usize> {
        let Some(first) = keys.first() else { return Some(0) };
        let (collection, stats) = self.collection(first.collection());
        let mut fetches = collection.fetch_queue.lock();
        if stats.waiting_keys.get() > 0 {
            return None;
        }
        let wanted: Vec<_> =
            keys.iter().filter(|key| self.is_unread(key, &mut fetches, now)).collect();
        let queued = fetches.queue(&wanted, Kind::WarmUp, None, &self.config, stats).ok()?;
        Some(queued.len())
    }

    fn is_unread(&self, key: &Key, fetches: &mut FetchQueue<E>, now: Nanos) -> bool {
        !fetches.in_flight.contains_key(key)
            && fetches.recent_failure(key, now).is_none()
            && self.peek(key, now).is_none()
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::testkit::*;
    use crate::{Lookup, ReadMode};

    /// Reads `keys` for requests.
    fn read(cache: &TestCache, keys: &[Key]) {
        let lookups = cache.lookup_batch(keys, ReadMode::Normal, START);
        let mut loader = cache.batch_loader(FIRST).expect("keys wait");
        while let Some(query) = loader.next_batch(START) {
            loader.complete(answers(1, query.len()), START);
        }
        drop(lookups);
    }

    fn warm(cache: &TestCache, keys: &[Key]) -> Vec<Key> {
        let queued = cache.warm_up(keys, START).expect("nothing waits");
        let Some(mut loader) = cache.batch_loader(FIRST) else { return Vec::new() };
        let query = loader.next_batch(START).expect("keys wait without a waiter");
        assert_eq!(query.len(), queued);
        loader.complete(answers(1, queued), START);
        assert_eq!(loader.next_batch(START), None);
        query
    }

    fn hits(cache: &TestCache, key: &Key) -> bool {
        matches!(cache.lookup(key, ReadMode::Normal, START), Lookup::Hit(..))
    }

    #[test]
    fn records_are_met_once_and_the_hottest_first() {
        // Three shards at least, and more slots than one step looks at.
        let cache = cache(crate::config::Config {
            capacity_bytes: 512 << 20,
            waiting_keys: 10_000,
            query_keys: 10_000,
            query_bytes: 1 << 20,
            ..config()
        });
        let keys: Vec<_> = (0..9_000).map(key).collect();
        read(&cache, &keys);
        let used = |id: &i64| *id % 7 == 0;
        (0..9_000).filter(used).for_each(|id| assert!(hits(&cache, &key(id))));
        let (mut walk, mut met) = (Walk::default(), Vec::new());
        let mut steps = 0;
        while cache.step(&mut walk, &mut met) {
            steps += 1;
        }
        assert!(steps > 12, "{steps} steps");
        let met: Vec<_> = met.iter().map(|record| record.key_bytes().to_vec()).collect();
        assert_eq!(met.iter().collect::<HashSet<_>>().len(), 9_000);
        assert_eq!(met.len(), 9_000);
        let first: HashSet<_> = met[..9_000_usize.div_ceil(7)].iter().cloned().collect();
        let expected: HashSet<_> =
            (0..9_000).filter(used).map(|id| key(id).as_bytes().to_vec()).collect();
        assert_eq!(first, expected);
    }

    #[test]
    fn absence_is_met_by_no_walk_and_stored_by_no_warm_up() {
        let cache = cache(config());
        let waiting = waiter(cache.lookup(&key(1), ReadMode::Normal, START));
        let mut loader = cache.batch_loader(FIRST).unwrap();
        assert_eq!(loader.next_batch(START).map(|keys| keys.len()), Some(1));
        loader.complete(missing(1, 1), START);
        drop((waiting, loader));
        let (mut walk, mut met) = (Walk::default(), Vec::new());
        while cache.step(&mut walk, &mut met) {}
        assert!(met.is_empty());

        assert_eq!(cache.warm_up(&[key(2)], START), Some(1));
        let mut loader = cache.batch_loader(FIRST).unwrap();
        assert_eq!(loader.next_batch(START), Some(vec![key(2)]));
        loader.complete(missing(1, 1), START);
        assert_eq!(cache.stats(FIRST).negative_entries, 1, "that of the request");
    }

    #[test]
    fn only_unread_keys_are_read() {
        let cache = cache(config());
        read(&cache, &[key(1)]);
        assert_eq!(warm(&cache, &[key(1), key(2), key(3)]), [key(2), key(3)]);
        assert!(hits(&cache, &key(2)) && hits(&cache, &key(3)));
        assert!(warm(&cache, &[key(1), key(2), key(3)]).is_empty());
    }

    #[test]
    fn requests_go_first_and_join() {
        let cache = cache(config());
        let mut first = waiter(cache.lookup(&key(1), ReadMode::Normal, START));
        assert_eq!(cache.warm_up(&[key(2)], START), None, "a key waits for the database");
        let mut loader = cache.batch_loader(FIRST).unwrap();
        assert_eq!(loader.next_batch(START), Some(vec![key(1)]));
        assert_eq!(cache.warm_up(&[key(1), key(2)], START), Some(1), "key 1 is being read");
        let mut joined = waiter(cache.lookup(&key(2), ReadMode::Normal, START));
        loader.complete(answers(3, 1), START);
        assert_eq!(loader.next_batch(START), Some(vec![key(2)]));
        loader.complete(answers(3, 1), START);
        assert_eq!(body(poll(&mut first)), Some(3));
        assert_eq!(body(poll(&mut joined)), Some(3));
    }

    #[test]
    fn a_change_ends_the_lease_of_a_warm_up() {
        let cache = cache(config());
        assert_eq!(cache.warm_up(&[key(1)], START), Some(1));
        let mut loader = cache.batch_loader(FIRST).unwrap();
        assert_eq!(loader.next_batch(START), Some(vec![key(1)]));
        let _ = cache.invalidate(&key(1), LOGGED);
        loader.complete(answers(1, 1), START);
        assert!(cache.peek(&key(1), START).is_none(), "the old row is not kept");
    }
}
