//! Clairvoyant bound: Belady's policy, which evicts the key needed last, with the choice not to
//! admit a new entry.

use std::collections::{BTreeSet, HashMap};

/// Returns the hits of the best possible policy with `capacity` entries.
pub fn hits(keys: &[u32], capacity: usize) -> u64 {
    let mut next_use = vec![usize::MAX; keys.len()];
    let mut seen: HashMap<u32, usize> = HashMap::new();
    for (at, key) in keys.iter().enumerate().rev() {
        next_use[at] = seen.insert(*key, at).unwrap_or(usize::MAX - at);
    }
    // The position of a key in `held` is its next use, which is unique because requests differ in
    // index.
    let mut held: BTreeSet<usize> = BTreeSet::new();
    let mut hits = 0;
    for (at, &next) in next_use.iter().enumerate() {
        if held.remove(&at) {
            hits += 1;
        }
        held.insert(next);
        if held.len() > capacity {
            held.pop_last();
        }
    }
    hits
}

#[cfg(test)]
mod tests {
    #[test]
    fn knows_the_future() {
        // With two entries, 1 and 2 are worth keeping and 3 is not.
        assert_eq!(super::hits(&[1, 2, 3, 1, 2, 3, 1, 2], 2), 4);
        assert_eq!(super::hits(&[1, 2, 3, 1, 2, 3], 3), 3);
        assert_eq!(super::hits(&[1, 1, 1], 1), 2);
    }
}
