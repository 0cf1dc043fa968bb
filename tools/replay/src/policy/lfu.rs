//! Least frequently used: evicts the entry with the fewest requests since its insertion, of those
//! the least recently used. Counts end with the entry, as in common LFU caches, so that what was
//! popular yesterday stays.

use std::collections::{BTreeSet, HashMap};

use foldhash::fast::FixedState;

use super::Policy;

/// Requests of an entry and the time of the last one, in requests.
type Rank = (u64, u64);

/// A hash map, and an order by rank.
pub struct Lfu {
    ranks: HashMap<u32, Rank, FixedState>,
    order: BTreeSet<(Rank, u32)>,
    requests: u64,
    capacity: usize,
}

impl Lfu {
    /// Creates a cache of `capacity` entries.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let ranks = HashMap::with_capacity_and_hasher(capacity, FixedState::with_seed(1));
        Self { ranks, order: BTreeSet::new(), requests: 0, capacity }
    }
}

impl Policy for Lfu {
    fn get_or_insert(&mut self, key: u32) -> bool {
        self.requests += 1;
        let found = self.ranks.get(&key).copied();
        match found {
            Some(rank) => {
                self.order.remove(&(rank, key));
            }
            None if self.ranks.len() >= self.capacity => {
                if let Some((_, evicted)) = self.order.pop_first() {
                    self.ranks.remove(&evicted);
                }
            }
            None => {}
        }
        let rank = (found.map_or(1, |(uses, _)| uses + 1), self.requests);
        self.ranks.insert(key, rank);
        self.order.insert((rank, key));
        found.is_some()
    }

    fn entries(&self) -> usize {
        self.ranks.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_with_the_fewest_requests_is_evicted() {
        let mut lfu = Lfu::new(2);
        // 1 has three requests; 2 and 3 evict each other.
        assert_eq!(lfu.replay(&[1, 1, 1, 2, 3, 2, 3, 1]), 3);
        assert_eq!(lfu.entries(), 2);
    }

    #[test]
    fn of_equal_counts_the_least_recently_used_is_evicted() {
        let mut lfu = Lfu::new(2);
        assert_eq!(lfu.replay(&[1, 2, 3, 2]), 1);
        // What was popular before stays, however long ago that was.
        let mut lfu = Lfu::new(2);
        lfu.replay(&[1, 1, 1, 1]);
        assert_eq!(lfu.replay(&[5, 6, 5, 6, 5, 6, 5, 6]), 0);
        assert!(lfu.get_or_insert(1));
    }
}
