//! Least recently used: a sanity check, because its hit ratio is known for every trace.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::Policy;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Node {
    key: u32,
    newer: u32,
    older: u32,
}

/// A hash map into a doubly linked list of slots.
pub struct Lru {
    slots: HashMap<u32, u32, FixedState>,
    nodes: Vec<Node>,
    newest: u32,
    oldest: u32,
    capacity: usize,
}

impl Lru {
    /// Creates a cache of `capacity` entries.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let slots = HashMap::with_capacity_and_hasher(capacity, FixedState::with_seed(1));
        Self { slots, nodes: Vec::with_capacity(capacity), newest: NONE, oldest: NONE, capacity }
    }

    fn unlink(&mut self, at: u32) {
        let Node { newer, older, .. } = self.nodes[at as usize];
        match newer {
            NONE => self.newest = older,
            n => self.nodes[n as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            o => self.nodes[o as usize].newer = newer,
        }
    }

    fn link_newest(&mut self, at: u32) {
        let before = std::mem::replace(&mut self.newest, at);
        let node = &mut self.nodes[at as usize];
        node.newer = NONE;
        node.older = before;
        match before {
            NONE => self.oldest = at,
            b => self.nodes[b as usize].newer = at,
        }
    }
}

impl Policy for Lru {
    fn get_or_insert(&mut self, key: u32) -> bool {
        if let Some(&at) = self.slots.get(&key) {
            if self.newest != at {
                self.unlink(at);
                self.link_newest(at);
            }
            return true;
        }
        let at = if self.nodes.len() < self.capacity {
            self.nodes.push(Node { key, newer: NONE, older: NONE });
            self.nodes.len() as u32 - 1
        } else {
            let at = self.oldest;
            self.unlink(at);
            self.slots.remove(&self.nodes[at as usize].key);
            self.nodes[at as usize].key = key;
            at
        };
        self.link_newest(at);
        self.slots.insert(key, at);
        false
    }

    fn entries(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the definition: a request hits if fewer than `capacity` other keys were
    /// requested since its last use.
    #[test]
    fn agrees_with_reuse_distances() {
        let mut state = 7_u64;
        let keys: Vec<u32> = (0..5_000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                ((state >> 33) as u32 % 64) * ((state >> 40) as u32 % 3)
            })
            .collect();
        for capacity in [1, 2, 17, 100] {
            let expected: u64 = (0..keys.len())
                .filter(|&i| {
                    keys[..i].iter().rposition(|k| *k == keys[i]).is_some_and(|last| {
                        let between: std::collections::HashSet<_> =
                            keys[last + 1..i].iter().collect();
                        between.len() < capacity
                    })
                })
                .count() as u64;
            let mut lru = Lru::new(capacity);
            assert_eq!(lru.replay(&keys), expected, "capacity {capacity}");
            assert!(lru.entries() <= capacity);
        }
    }
}
