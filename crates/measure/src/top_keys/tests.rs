use std::collections::HashMap;

use super::*;

/// A sequence of pseudo-random numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Returns the cumulative shares of `keys` keys with Zipf's law of exponent 0.9.
fn zipf(keys: usize) -> Vec<f64> {
    let weights: Vec<f64> = (1..=keys).map(|rank| (rank as f64).powf(-0.9)).collect();
    let total: f64 = weights.iter().sum();
    weights
        .iter()
        .scan(0.0, |sum, weight| {
            *sum += weight / total;
            Some(*sum)
        })
        .collect()
}

fn hash(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[test]
fn counts_of_a_zipf_stream_keep_their_bound() {
    const SAMPLES: usize = 40_000;
    let shares = zipf(20_000);
    let mut random = Random(7);
    let mut sketch = TopKeys::new(128);
    let mut true_counts: HashMap<u64, f64> = HashMap::new();
    for sample in 0..SAMPLES {
        // Weights as of a sampler that changes its step; decay as by a clock.
        let weight = f64::from(1 << (sample % 3));
        let share = random.share();
        let key = shares.partition_point(|sum| *sum < share) as u64;
        sketch.add(hash(key), &key.to_be_bytes(), weight);
        *true_counts.entry(key).or_default() += weight;
        if sample % 1_000 == 999 {
            sketch.decay(0.98);
            true_counts.values_mut().for_each(|count| *count *= 0.98);
        }
    }
    let rounding = sketch.total() * 1e-9;
    let total: f64 = true_counts.values().sum();
    assert!((sketch.total() - total).abs() < rounding, "{} {total}", sketch.total());
    let reported: HashMap<u64, &TopKey> = sketch
        .top(usize::MAX)
        .into_iter()
        .map(|entry| (u64::from_be_bytes((*entry.key).try_into().unwrap()), entry))
        .collect();
    assert_eq!(reported.len(), sketch.capacity());
    for (key, entry) in &reported {
        let count = true_counts[key];
        assert!(entry.count >= count - rounding, "key {key} is reported too low");
        assert!(entry.count - entry.over <= count + rounding, "key {key} exceeds its own bound");
        assert!(entry.over <= sketch.error_max() + rounding, "key {key} exceeds N/m");
    }
    for (key, count) in &true_counts {
        let is_frequent = *count > sketch.error_max() + rounding;
        assert!(!is_frequent || reported.contains_key(key), "frequent key {key} is missing");
    }
    // The bound is worth something: the ten most frequent keys exceed it, in the right order.
    let first: Vec<u64> = sketch
        .top(3)
        .iter()
        .map(|entry| u64::from_be_bytes((*entry.key).try_into().unwrap()))
        .collect();
    assert_eq!(first, [0, 1, 2]);
}

#[test]
fn keys_with_equal_hashes_stay_apart_and_the_least_yields() {
    let mut sketch = TopKeys::new(2);
    sketch.add(1, b"a", 5.0);
    sketch.add(1, b"b", 2.0);
    sketch.add(1, b"a", 1.0);
    sketch.add(1, b"c", 1.0);
    let top: Vec<(&[u8], f64, f64)> =
        sketch.top(9).iter().map(|entry| (&*entry.key, entry.count, entry.over)).collect();
    assert_eq!(top, [(&b"a"[..], 6.0, 0.0), (&b"c"[..], 3.0, 2.0)]);
    assert_eq!((sketch.total(), sketch.error_max()), (9.0, 4.5));
}

#[test]
fn memory_is_bounded_by_the_capacity_and_the_longest_key() {
    let mut sketch = TopKeys::new(64);
    for key in 0..10_000_u64 {
        let long = [key.to_be_bytes(); 14].concat();
        sketch.add(hash(key), &long, 1.0);
    }
    assert!(sketch.memory_bytes() <= 64 * (8 + 40 + 112), "{}", sketch.memory_bytes());
}
