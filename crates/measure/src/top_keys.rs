//! The most frequent keys of a stream in fixed memory: Space-Saving (Metwally, Agrawal, El Abbadi:
//! "Efficient computation of frequent and top-k elements in data streams", 2005) with weights, and
//! with counts that decay, so that old requests lose their influence.
//!
//! **Error bound.** With a capacity of m keys and a total weight of N, a reported count is never
//! below the true one, exceeds it by at most `over` and never by more than N/m, and every key whose
//! true weight exceeds N/m is reported. Decay multiplies all of these by the same factor, so the
//! bound holds for decayed weights.

/// A key and its weight.
#[derive(Clone, Debug, PartialEq)]
pub struct TopKey {
    /// The key.
    pub key: Box<[u8]>,
    /// Its weight, at most `over` too high and never too low.
    pub count: f64,
    /// Largest error of `count`.
    pub over: f64,
}

/// A sketch of the most frequent keys. An addition compares at most [`TopKeys::capacity`] hashes;
/// it is meant for samples of a stream.
#[derive(Clone, Debug)]
pub struct TopKeys {
    capacity: usize,
    total: f64,
    /// Hash of the key at the same place in `keys`.
    hashes: Vec<u64>,
    keys: Vec<TopKey>,
}

impl TopKeys {
    /// Creates a sketch of at most `capacity` keys; at least 1.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        Self {
            capacity,
            total: 0.0,
            hashes: Vec::with_capacity(capacity),
            keys: Vec::with_capacity(capacity),
        }
    }

    /// Returns the most keys that are kept.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the weight of all additions, decayed.
    pub fn total(&self) -> f64 {
        self.total
    }

    /// Returns the bound of the error of every count.
    pub fn error_max(&self) -> f64 {
        self.total / self.capacity as f64
    }

    /// Adds `weight` (positive) to a key. Equal keys have equal hashes.
    pub fn add(&mut self, hash: u64, key: &[u8], weight: f64) {
        self.total += weight;
        let same = |at: &usize| self.hashes[*at] == hash && *self.keys[*at].key == *key;
        if let Some(at) = (0..self.keys.len()).find(same) {
            self.keys[at].count += weight;
            return;
        }
        if self.keys.len() < self.capacity {
            self.hashes.push(hash);
            self.keys.push(TopKey { key: key.into(), count: weight, over: 0.0 });
            return;
        }
        // The least frequent key yields; the new one may have had up to its count.
        let counts = self.keys.iter().map(|entry| entry.count).enumerate();
        let least = counts.min_by(|(_, a), (_, b)| a.total_cmp(b));
        if let Some((at, over)) = least {
            self.hashes[at] = hash;
            self.keys[at] = TopKey { key: key.into(), count: over + weight, over };
        }
    }

    /// Multiplies all weights by `factor`, 0 to 1.
    pub fn decay(&mut self, factor: f64) {
        self.total *= factor;
        for entry in &mut self.keys {
            entry.count *= factor;
            entry.over *= factor;
        }
    }

    /// Returns up to `most` keys, the most frequent first.
    pub fn top(&self, most: usize) -> Vec<&TopKey> {
        let mut keys: Vec<&TopKey> = self.keys.iter().collect();
        keys.sort_by(|a, b| b.count.total_cmp(&a.count).then_with(|| a.key.cmp(&b.key)));
        keys.truncate(most);
        keys
    }

    /// Returns the bytes of the sketch, without the allocator's own.
    pub fn memory_bytes(&self) -> usize {
        let keys: usize = self.keys.iter().map(|entry| entry.key.len()).sum();
        self.capacity * (size_of::<u64>() + size_of::<TopKey>()) + keys
    }
}

#[cfg(test)]
mod tests;
