//! Memory of evicted keys: a key that is read again soon after its eviction was evicted too early,
//! and its entry becomes hot at once.
//!
//! First in, first out, by 32-bit hashes. With 100,000 remembered keys, one new key of 40,000 is
//! taken for a remembered one.

use std::collections::VecDeque;

use hashbrown::HashTable;

/// Keys forgotten at one insertion beyond what it needs, so that a smaller capacity takes effect
/// step by step.
const FORGOTTEN_MAX: usize = 2;
/// Fewest positions before the order is compacted.
const COMPACTED_MIN: usize = 32;

/// Hashes of evicted keys, oldest first.
#[derive(Debug, Default)]
pub(super) struct Ghosts {
    /// Includes positions whose key was taken; at most an eighth of them beside the live ones, and
    /// [`COMPACTED_MIN`].
    order: VecDeque<u32>,
    /// Number of the first position. Numbers wrap around.
    first: u32,
    /// Numbers of the live positions, found by their hash.
    live: HashTable<u32>,
}

/// Spreads the hash over the bits that the table needs; its high bits select the shard.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Ghosts {
    pub(super) fn len(&self) -> usize {
        self.live.len()
    }

    /// Remembers a key as the newest of at most `capacity`.
    pub(super) fn push(&mut self, hash: u32, capacity: usize) {
        self.take(hash);
        if capacity == 0 {
            return;
        }
        if self.order.len() == self.order.capacity() {
            self.make_room();
        }
        let number = self.first.wrapping_add(self.order.len() as u32);
        self.order.push_back(hash);
        let Self { order, first, live } = self;
        live.insert_unique(spread(hash), number, |number| {
            spread(order[number.wrapping_sub(*first) as usize])
        });
        for _ in 0..FORGOTTEN_MAX {
            if self.live.len() > capacity {
                self.forget_oldest();
            }
        }
    }

    /// Forgets a key. Returns whether it was remembered.
    pub(super) fn take(&mut self, hash: u32) -> bool {
        let Self { order, first, live } = self;
        live.find_entry(spread(hash), |number| order[number.wrapping_sub(*first) as usize] == hash)
            .map(hashbrown::hash_table::OccupiedEntry::remove)
            .is_ok()
    }

    /// Forgets the oldest keys until `capacity` are left, but at most `forgotten_max`.
    pub(super) fn shrink(&mut self, capacity: usize, forgotten_max: usize) {
        for _ in 0..self.live.len().saturating_sub(capacity).min(forgotten_max) {
            self.forget_oldest();
        }
    }

    /// Returns the memory in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.order.capacity() * size_of::<u32>() + self.live.allocation_size()
    }

    fn forget_oldest(&mut self) {
        while let Some(hash) = self.order.pop_front() {
            let number = self.first;
            self.first = self.first.wrapping_add(1);
            if let Ok(entry) = self.live.find_entry(spread(hash), |live| *live == number) {
                entry.remove();
                return;
            }
        }
    }

    /// Drops the positions of taken keys, or enlarges the order when they are few.
    fn make_room(&mut self) {
        let taken = self.order.len() - self.live.len();
        if taken <= self.order.len() / 8 {
            self.order.reserve_exact(COMPACTED_MIN.max(self.order.len() / 4));
            return;
        }
        let mut numbers: Vec<u32> =
            self.live.iter().map(|number| number.wrapping_sub(self.first)).collect();
        numbers.sort_unstable();
        for (to, from) in numbers.iter().enumerate() {
            self.order[to] = self.order[*from as usize];
        }
        self.order.truncate(numbers.len());
        self.first = 0;
        self.live.clear();
        let order = &self.order;
        for (number, hash) in order.iter().enumerate() {
            self.live.insert_unique(spread(*hash), number as u32, |number| {
                spread(order[*number as usize])
            });
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_first() {
        let mut ghosts = Ghosts::default();
        (0..10).for_each(|hash| ghosts.push(hash, 4));
        assert_eq!(ghosts.len(), 4);
        assert!(!ghosts.take(5));
        assert!(ghosts.take(6) && !ghosts.take(6));
        ghosts.push(20, 4);
        assert!(ghosts.take(7), "a taken key left room");
        ghosts.push(1, 0);
        assert!(!ghosts.take(1), "no key is remembered without capacity");
    }

    #[test]
    fn a_smaller_capacity_takes_effect_step_by_step() {
        let mut ghosts = Ghosts::default();
        (0..100).for_each(|hash| ghosts.push(hash, 100));
        ghosts.push(100, 10);
        assert_eq!(ghosts.len(), 99);
        (101..300).for_each(|hash| ghosts.push(hash, 10));
        assert_eq!(ghosts.len(), 10);
    }

    proptest::proptest! {
        #[test]
        fn it_agrees_with_a_list(
            steps in proptest::collection::vec((0_u32..80, proptest::bool::ANY), 1..3_000),
            capacity in 1_usize..40,
        ) {
            let mut ghosts = Ghosts::default();
            let mut list: Vec<u32> = Vec::new();
            for (hash, push) in steps {
                let known = list.iter().position(|known| *known == hash);
                known.map(|at| list.remove(at));
                if push {
                    list.push(hash);
                    if list.len() > capacity {
                        list.remove(0);
                    }
                    ghosts.push(hash, capacity);
                } else {
                    assert_eq!(ghosts.take(hash), known.is_some());
                }
                assert_eq!(ghosts.len(), list.len());
                let positions = ghosts.order.len();
                assert!(positions <= 2 * (list.len() + COMPACTED_MIN) + capacity, "{positions}");
            }
        }
    }
}
