//! Greedy-Dual-Size-Frequency: evicts the entry with the least priority, which is the priority of
//! the last evicted entry plus uses over size. A reference for object hits under a byte bound; a
//! hit moves the entry in an ordered set, which no hit path could afford.
//!
//! Source: Cherkasova, "Improving WWW proxies performance with Greedy-Dual-Size-Frequency caching
//! policy", HP Labs 1998.

use std::collections::{BTreeSet, HashMap};

struct Entry {
    priority: u64,
    uses: u64,
    weight: u64,
}

/// The cache.
pub struct Gdsf {
    entries: HashMap<u32, Entry>,
    /// Priority and key. Positive floating-point numbers are ordered as their bits are.
    order: BTreeSet<(u64, u32)>,
    clock: f64,
    used_bytes: u64,
    capacity_bytes: u64,
}

impl Gdsf {
    /// Creates a cache of `capacity_bytes`.
    pub fn new(capacity_bytes: u64) -> Self {
        let (entries, order) = (HashMap::new(), BTreeSet::new());
        Self { entries, order, clock: 0.0, used_bytes: 0, capacity_bytes }
    }

    /// Looks up `key` and inserts `weight` bytes after a miss. Returns true for a hit.
    pub fn get_or_insert(&mut self, key: u32, weight: u64) -> bool {
        let clock = self.clock;
        let priority = |uses: u64| (clock + 1e6 * uses as f64 / weight as f64).to_bits();
        if let Some(entry) = self.entries.get_mut(&key) {
            self.order.remove(&(entry.priority, key));
            entry.uses += 1;
            entry.priority = priority(entry.uses);
            self.order.insert((entry.priority, key));
            return true;
        }
        if weight > self.capacity_bytes {
            return false;
        }
        while self.used_bytes + weight > self.capacity_bytes {
            let Some((least, evicted)) = self.order.pop_first() else { break };
            self.clock = f64::from_bits(least);
            if let Some(entry) = self.entries.remove(&evicted) {
                self.used_bytes -= entry.weight;
            }
        }
        let priority = (self.clock + 1e6 / weight as f64).to_bits();
        self.entries.insert(key, Entry { priority, uses: 1, weight });
        self.order.insert((priority, key));
        self.used_bytes += weight;
        false
    }
}
