use super::*;
use proptest::prelude::*;

/// Values of every magnitude, with the borders of buckets among them.
fn value() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..300u64,
        any::<u64>(),
        (0..64u32, any::<u64>()).prop_map(|(shift, v)| v >> shift),
        (0..64u32, -1..=1i64).prop_map(|(shift, by)| (1u64 << shift).wrapping_add_signed(by)),
    ]
}

fn filled(values: &[u64]) -> Histogram {
    let mut h = Histogram::default();
    values.iter().for_each(|v| h.record(*v));
    h
}

proptest! {
    #[test]
    fn quantiles_are_exact_or_at_most_the_stated_error_above(
        mut values in prop::collection::vec(value(), 1..300), quantile in 0.0..=1.0f64,
    ) {
        let h = filled(&values);
        values.sort_unstable();
        let rank = ((quantile * values.len() as f64).ceil() as usize).clamp(1, values.len());
        let exact = values[rank - 1];
        let reported = h.value_at_quantile(quantile).unwrap();
        prop_assert!(
            reported >= exact && reported - exact <= exact / SUB_BUCKETS,
            "exact {exact}, reported {reported}"
        );
        prop_assert_eq!(h.max(), *values.last().unwrap());
        prop_assert_eq!(h.count(), values.len() as u64);
        prop_assert_eq!(h.sum(), values.iter().map(|v| u128::from(*v)).sum::<u128>());
    }

    #[test]
    fn a_merge_equals_recording_everything_in_one(
        a in prop::collection::vec(value(), 0..100), b in prop::collection::vec(value(), 0..100),
    ) {
        let mut merged = filled(&a);
        merged.merge(&filled(&b));
        prop_assert_eq!(merged, filled(&[a, b].concat()));
    }

    #[test]
    fn the_shared_form_gives_the_same_histogram(
        values in prop::collection::vec(0..1u64 << 40, 0..200),
    ) {
        let shared = SharedHistogram::default();
        values.iter().for_each(|v| shared.record(*v));
        prop_assert_eq!(shared.snapshot(), filled(&values));
    }

    #[test]
    fn buckets_contain_their_values(v in value()) {
        let bucket = filled(&[v]).iter().next().unwrap();
        prop_assert!(bucket.low <= v && v <= bucket.high);
        prop_assert!(bucket.high - bucket.low <= bucket.low / SUB_BUCKETS);
    }

    #[test]
    fn count_up_to_is_exact_but_for_the_bucket_of_the_bound(
        values in prop::collection::vec(value(), 0..200), bound in value(),
    ) {
        let reported = filled(&values).count_up_to(bound);
        let exact = values.iter().filter(|v| **v <= bound).count() as u64;
        let upper = bound.saturating_add(bound / SUB_BUCKETS);
        let near = values.iter().filter(|v| **v <= upper).count() as u64;
        prop_assert!(exact <= reported && reported <= near);
    }
}

#[test]
fn buckets_cover_u64_without_gaps() {
    assert_eq!(low_of(0), 0);
    for index in 1..BUCKETS {
        assert_eq!(low_of(index), high_of(index - 1) + 1, "at {index}");
        assert_eq!((index_of(low_of(index)), index_of(high_of(index))), (index, index));
    }
    assert_eq!(high_of(BUCKETS - 1), u64::MAX);
}

#[test]
fn an_empty_histogram_has_no_quantile_and_no_mean() {
    let h = Histogram::default();
    assert_eq!((h.value_at_quantile(0.5), h.mean(), h.max(), h.iter().count()), (None, None, 0, 0));
}

#[test]
fn the_mean_is_exact() {
    assert_eq!(filled(&[1, 2, 3, 1_000_000]).mean(), Some(250_001.5));
}

#[test]
fn a_snapshot_during_writes_is_consistent() {
    let shared = SharedHistogram::default();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (0..200_000u64).for_each(|v| shared.record(v % 1000)));
        let mut last = 0;
        while !writer.is_finished() {
            let h = shared.snapshot();
            assert!(h.count() >= last);
            assert_eq!(h.iter().map(|b| b.count).sum::<u64>(), h.count());
            last = h.count();
        }
    });
    assert_eq!(shared.snapshot().count(), 200_000);
}

#[test]
fn several_at_once_are_the_same_as_one_by_one() {
    let mut at_once = Histogram::default();
    let mut singly = Histogram::default();
    for (value, n) in [(5, 3), (1_000_000, 2), (7, 0), (u64::MAX, 1)] {
        at_once.record_n(value, n);
        (0..n).for_each(|_| singly.record(value));
    }
    assert_eq!(at_once, singly);
    assert_eq!(
        [0, 1, 3, 7].map(|rank| at_once.value_at_rank(rank)),
        [None, Some(5), Some(5), None]
    );
    assert_eq!(at_once.value_at_rank(6), Some(u64::MAX));
    assert_eq!([rank_of(0.0, 9), rank_of(0.5, 9), rank_of(1.0, 9), rank_of(0.5, 0)], [1, 5, 9, 1]);
}

#[test]
fn the_difference_of_two_copies_has_the_samples_between_them() {
    let mut now = Histogram::default();
    [3, 70, 900_000].into_iter().for_each(|value| now.record(value));
    let before = now.clone();
    assert_eq!(now.since(&before), Histogram::default());
    let mut expected = Histogram::default();
    for value in [5, 5, 1_000] {
        now.record(value);
        expected.record(value);
    }
    let difference = now.since(&before);
    assert_eq!((difference.count(), difference.sum()), (3, 1_010));
    assert_eq!(difference.iter().collect::<Vec<_>>(), expected.iter().collect::<Vec<_>>());
    // At most one bucket's width above the true maximum.
    assert!((1_000..=1_000 + 1_000 / SUB_BUCKETS).contains(&difference.max()));
    assert_eq!(before.since(&now), Histogram { sum: 0, ..Histogram::default() });
}
