use super::*;
use crate::random::{STEP, mix};
use proptest::prelude::*;

/// Returns well-mixed bits; distinct for distinct numbers.
fn mixed(i: u64) -> u64 {
    mix(i.wrapping_add(1).wrapping_mul(STEP))
}

fn error_of(n: u64, seed: u64) -> f64 {
    let mut sketch = Sketch::default();
    (0..n).for_each(|i| sketch.insert(mixed(i + (seed << 40))));
    sketch.estimate() as f64 / n as f64 - 1.0
}

#[test]
fn the_error_is_as_stated_at_every_size() {
    // Per size: 20 seeds; the root of the mean square within 1.5 standard errors and none beyond 5.
    for n in [1_000, 5_000, 10_000, 12_000, 20_000, 50_000, 200_000] {
        let errors: Vec<f64> = (0..20).map(|seed| error_of(n, seed)).collect();
        let rms = (errors.iter().map(|e| e * e).sum::<f64>() / 20.0).sqrt();
        assert!(rms < 1.5 * 0.01625, "n {n}: {rms}");
        assert!(errors.iter().all(|e| e.abs() < 5.0 * 0.01625), "n {n}: {errors:?}");
    }
}

#[test]
fn small_counts_are_nearly_exact() {
    let empty = Sketch::default();
    assert_eq!(empty.estimate(), 0);
    for n in [1, 2, 10, 50] {
        assert!((error_of(n, 3) * n as f64).abs() <= 1.0, "n {n}");
    }
}

#[test]
fn repeated_hashes_count_once() {
    let mut sketch = Sketch::default();
    (0..100_000).for_each(|i| sketch.insert(mixed(i % 100)));
    assert!((98..=102).contains(&sketch.estimate()), "{}", sketch.estimate());
}

#[test]
fn extreme_hashes_have_a_register() {
    assert_eq!(place_of(0), (0, 53));
    assert_eq!(place_of(u64::MAX), (REGISTERS - 1, 1));
    assert_eq!(place_of(1), (0, 52));
}

proptest! {
    #[test]
    fn a_merge_equals_inserting_everything_in_one(
        a in prop::collection::vec(any::<u64>(), 0..200),
        b in prop::collection::vec(any::<u64>(), 0..200),
    ) {
        let of = |hashes: &[u64]| {
            let mut sketch = Sketch::default();
            hashes.iter().for_each(|h| sketch.insert(*h));
            sketch
        };
        let mut merged = of(&a);
        merged.merge(&of(&b));
        prop_assert_eq!(&merged, &of(&[a.clone(), b].concat()));

        let shared = SharedSketch::default();
        a.iter().for_each(|h| shared.insert(*h));
        prop_assert_eq!(shared.snapshot(), of(&a));
        shared.clear();
        prop_assert_eq!(shared.snapshot().estimate(), 0);
    }
}
