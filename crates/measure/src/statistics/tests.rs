use proptest::prelude::*;

use super::*;
use crate::random::SplitMix64;

const SEED: u64 = 7;

fn near(got: f64, want: f64, error: f64) {
    assert!((got - want).abs() <= error, "{got} is not within {error} of {want}");
}

#[test]
fn quantiles_are_those_of_r_and_numpy() {
    // numpy.percentile([15, 20, 35, 40, 50], [25, 40, 50, 75]) = 20, 29, 35, 40
    let values = [50.0, 15.0, 40.0, 20.0, 35.0];
    assert_eq!(
        [0.25, 0.4, 0.5, 0.75].map(|q| quantile(&values, q)),
        [20.0, 29.0, 35.0, 40.0].map(Some)
    );
    assert_eq!(median(&[1.0, 4.0, 2.0, 3.0]), Some(2.5));
    assert_eq!((median(&[]), quantile(&[3.0], 0.9)), (None, Some(3.0)));
}

#[test]
fn mann_whitney_gives_known_values() {
    // The example of scipy.stats.mannwhitneyu's documentation: exact 0.1111…, asymptotic
    // 0.11134688653314041.
    let males = [19.0, 22.0, 16.0, 29.0, 24.0];
    let females = [20.0, 11.0, 17.0, 12.0];
    near(mann_whitney(&males, &females).unwrap(), 0.111_111_111, 1e-9);
    near(rank::approximate_for_test(&males, &females), 0.111_346_886, 1e-6);
    // Completely separate: 2 of the 10 over 5 = 252 assignments of the ranks; and 2 of 20 for three
    // against three.
    near(
        mann_whitney(&[1.0, 2.0, 3.0, 4.0, 5.0], &[6.0, 7.0, 8.0, 9.0, 10.0]).unwrap(),
        2.0 / 252.0,
        1e-12,
    );
    near(mann_whitney(&[4.0, 5.0, 6.0], &[1.0, 2.0, 3.0]).unwrap(), 0.1, 1e-12);
    assert_eq!(mann_whitney(&[1.0; 30], &[1.0; 30]), Some(1.0));
    assert_eq!(mann_whitney(&[1.0; 3], &[1.0; 3]), Some(1.0));
    assert_eq!(mann_whitney(&[], &[1.0]), None);
}

#[test]
fn the_approximation_agrees_with_counting() {
    let these: Vec<f64> = (0..20).map(|i| f64::from(i * 7 % 20)).collect();
    let those: Vec<f64> = (0..20).map(|i| f64::from(i * 3 % 20) + 3.5).collect();
    let counted = mann_whitney(&these, &those).unwrap();
    near(rank::approximate_for_test(&these, &those), counted, 0.005);
}

#[test]
fn students_t_is_that_of_the_tables() {
    for (freedom, t) in [(4.0, 2.776), (9.0, 2.262), (29.0, 2.045), (1e6, 1.960)] {
        near(student_t_975(freedom) / t, 1.0, 0.003);
    }
    near(rank::normal_cdf(1.959_964), 0.975, 1e-6);
    near(rank::normal_cdf(-1.0), 0.158_655_25, 1e-6);
}

/// Returns an approximately normal number, the sum of twelve.
fn noise(random: &mut SplitMix64) -> f64 {
    (0..12).map(|_| random.bits() as f64 / u64::MAX as f64).sum::<f64>() - 6.0
}

/// Returns how many of 200 intervals of medians of `n` values contain the true one.
fn coverage(n: usize) -> f64 {
    let mut random = SplitMix64(SEED);
    let holds = (0..200).filter(|round| {
        let values: Vec<f64> = (0..n).map(|_| 100.0 + 5.0 * noise(&mut random)).collect();
        estimate(&values, *round).is_some_and(|e| e.low <= 100.0 && 100.0 <= e.high)
    });
    holds.count() as f64 / 200.0
}

#[test]
fn intervals_of_95_percent_contain_the_true_value_about_as_often() {
    for n in [5, 8, 15] {
        let share = coverage(n);
        assert!((0.91..=0.995).contains(&share), "{n} values: {share}");
    }
}

/// Returns the shares of verdicts of comparisons of `n` rounds; `gain` is the speed advantage of
/// this side. Whole rounds are slow or fast.
fn shown(n: usize, gain: f64) -> f64 {
    let mut random = SplitMix64(SEED);
    let found = (0..200).filter(|round| {
        let pairs: Vec<(f64, f64)> = (0..n)
            .map(|_| {
                let round = 1000.0 * (1.0 + 0.1 * noise(&mut random)).max(0.1);
                let mut one = || round * (1.0 + 0.01 * noise(&mut random));
                (gain * one(), one())
            })
            .collect();
        let found = compare_paired(&pairs, *round).unwrap().verdict;
        assert_ne!(found, ComparisonVerdict::TooFew);
        found != ComparisonVerdict::NoDifferenceShown
    });
    found.count() as f64 / 200.0
}

#[test]
fn equal_sides_show_no_difference_and_a_small_gain_is_found_in_noisy_rounds() {
    for n in [5, 8] {
        let wrong = shown(n, 1.0);
        assert!(wrong <= 0.09, "{n} rounds: a difference was reported in {wrong} of the cases");
    }
    // 5 % faster where rounds differ by 10 %: visible only with pairs.
    assert!(shown(8, 1.05) > 0.8, "{}", shown(8, 1.05));
}

#[test]
fn sides_without_pairs_are_compared_by_ranks_too() {
    let mut random = SplitMix64(SEED);
    let mut side = |middle: f64| (0..8).map(|_| middle + noise(&mut random)).collect::<Vec<f64>>();
    let wrong = (0..200).filter(|seed| {
        let verdict = compare(&side(100.0), &side(100.0), *seed).unwrap().verdict;
        verdict != ComparisonVerdict::NoDifferenceShown
    });
    assert!(wrong.count() <= 16, "more than 8 %");
    let faster = compare(&side(110.0), &side(100.0), 1).unwrap();
    assert_eq!(faster.verdict, ComparisonVerdict::Faster);
    assert!(
        faster.p < 0.01
            && faster.low > 1.0
            && faster.low <= faster.ratio
            && faster.ratio <= faster.high
    );
    assert_eq!(compare(&side(90.0), &side(100.0), 1).unwrap().verdict, ComparisonVerdict::Slower);
}

#[test]
fn too_few_values_are_reported() {
    let few = compare_paired(&[(2.0, 1.0), (3.0, 1.0), (4.0, 2.0)], SEED).unwrap();
    assert_eq!(
        (few.verdict, few.low, few.ratio, few.high),
        (ComparisonVerdict::TooFew, 2.0, 3.0, 3.0)
    );
    let one = estimate(&[5.0], SEED).unwrap();
    assert_eq!((one.median, one.low, one.high, one.spread), (5.0, 5.0, 5.0, Spread::Range));
    assert_eq!(estimate(&[], SEED), None);
    assert_eq!(compare_paired(&[(0.0, 1.0), (1.0, f64::NAN), (f64::INFINITY, 1.0)], SEED), None);
    assert_eq!(compare(&[1.0], &[0.0], SEED), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn intervals_contain_the_median_and_lie_within_the_values(
        values in prop::collection::vec(0.1f64..1e6, 1..12),
        seed: u64,
    ) {
        let found = estimate(&values, seed).unwrap();
        prop_assert!(found.low <= found.median && found.median <= found.high);
        let least = values.iter().copied().fold(f64::MAX, f64::min);
        let largest = values.iter().copied().fold(0.0f64, f64::max);
        prop_assert!(least <= found.low && found.high <= largest);
        prop_assert_eq!(found, estimate(&values, seed).unwrap());
    }

    #[test]
    fn exchanging_sides_inverts_the_result(
        pairs in prop::collection::vec((0.1f64..1e6, 0.1f64..1e6), 1..12),
    ) {
        let (these, those): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
        let p = mann_whitney(&these, &those).unwrap();
        let q = mann_whitney(&those, &these).unwrap();
        prop_assert!((p - q).abs() < 1e-9 && p > 0.0 && p <= 1.0);
        let turned: Vec<(f64, f64)> = pairs.iter().map(|(a, b)| (*b, *a)).collect();
        let there = compare_paired(&pairs, 1).unwrap();
        let back = compare_paired(&turned, 1).unwrap();
        prop_assert!((there.ratio * back.ratio - 1.0).abs() < 1e-9);
    }
}
