//! Simulations of known workloads, with time and seeds as arguments.

use std::time::Duration;

use hotrow_measure::clock::Nanos;
use hotrow_measure::random;
use hotrow_types::key::CollectionId;

use super::curve::LOOKUPS_MIN;
use super::sampling::{Event, Sample, SamplingRate, Weighed, selector};
use super::*;
use crate::config::CollectionPolicy;
use crate::record::Presence;

mod replayed;

const FIRST: CollectionId = CollectionId(0);
const WEIGHT: u32 = 1_000;
/// Entries of the store that is simulated.
const ENTRIES: u64 = 40_000;
const DAY: Duration = Duration::from_hours(24);

fn settings(rate: f64) -> Settings {
    Settings {
        capacity_bytes: ENTRIES * u64::from(WEIGHT),
        negative_share: 0.0,
        ttl_jitter: 0.0,
        stale_while_revalidate: Duration::ZERO,
        prefetch_on_change: false,
        collections: vec![
            CollectionPolicy {
                ttl: DAY,
                negative_ttl: Duration::from_mins(1),
                has_tenants: false,
                has_views: false,
            };
            2
        ],
        rate: SamplingRate::from_share(rate),
        seed: 1,
    }
}

/// A simulation that is fed key by key, with the counts of all lookups.
struct Fed {
    simulation: Simulation,
    totals: [LookupTotals; 2],
    now: Nanos,
}

fn hash(key: u64) -> u64 {
    // Well mixed, like a key's hash.
    random::mix(key.wrapping_add(1).wrapping_mul(random::STEP))
}

const FOUND: Weighed = Weighed { weight_bytes: WEIGHT, presence: Presence::Found };

impl Fed {
    fn new(settings: Settings) -> Self {
        let totals = [LookupTotals::default(); 2];
        let simulation = Simulation::new(settings, &totals, Nanos(0));
        Self { simulation, totals, now: Nanos(1) }
    }

    fn event(&mut self, key: u64, event: Event) {
        let key_hash = hash(key);
        if self.simulation.settings().rate.takes(key_hash) {
            let sample = Sample { at: self.now, key_hash, collection: FIRST, event };
            self.simulation.apply(&sample);
        }
    }

    /// A lookup that the store answers, or misses and reads.
    fn lookup(&mut self, key: u64, is_hit: bool) {
        self.totals[0].lookups += 1;
        self.totals[0].answered += u64::from(is_hit);
        self.totals[0].reads += u64::from(!is_hit);
        self.event(key, Event::Lookup { is_scan: false, held: is_hit.then_some(FOUND) });
        if !is_hit {
            self.event(key, Event::Stored { entry: FOUND, is_warm_up: false });
        }
    }

    fn advance(&mut self, by: Duration) {
        self.now = self.now.after(by);
        self.simulation.advance(&self.totals, self.now);
    }

    fn curve(&mut self) -> Curve {
        self.advance(Duration::from_secs(10));
        self.simulation.curve().expect("enough lookups")
    }

    fn hit_ratios(&mut self) -> [f64; COPIES] {
        self.curve().points.map(|point| point.hit_ratio.value)
    }
}

fn assert_near(actual: f64, expected: f64, points: f64) {
    assert!((actual - expected).abs() <= points / 100.0, "{actual} instead of {expected}");
}

#[test]
fn a_loop_hits_where_it_fits() {
    let mut fed = Fed::new(settings(0.125));
    // Half as much again as the store has room for: twice the capacity holds it.
    let keys = ENTRIES * 3 / 2 - ENTRIES / 20;
    for _ in 0..10 {
        (0..keys).for_each(|key| fed.lookup(key, false));
    }
    let ratios = fed.hit_ratios();
    assert_near(ratios[7], 0.9, 1.0);
    assert_near(ratios[5], 0.9, 1.0);
    assert!(ratios[0] < 0.25, "{ratios:?}");
    assert!(ratios.is_sorted(), "{ratios:?}");
}

#[test]
fn keys_that_never_return_never_hit() {
    let mut fed = Fed::new(settings(0.125));
    (0..200_000).for_each(|key| fed.lookup(key, false));
    let curve = fed.curve();
    for point in curve.points {
        // The number of sampled keys is random.
        assert_near(point.hit_ratio.value, 0.0, 3.0);
        assert!(point.hit_ratio.low <= 0.001);
    }
    assert!(matches!(curve.advice, Advice::Shrink(_)), "{:?}", curve.advice);
}

#[test]
fn a_skewed_workload_is_predicted_from_a_share_of_its_keys() {
    // Keys by the square of a uniform number: key k is requested in proportion to k^-1/2.
    const KEYS: f64 = 400_000.0;
    let key = |at: u64| {
        let unit = (hash(at) >> 11) as f64 / (1_u64 << 53) as f64;
        (unit * unit * KEYS) as u64
    };
    let ratios = [1.0, 0.125].map(|rate| {
        let mut fed = Fed::new(settings(rate));
        (0..1_000_000).for_each(|at| fed.lookup(key(at), false));
        fed.curve().points
    });
    for (all, sampled) in ratios[0].iter().zip(&ratios[1]) {
        assert_near(sampled.hit_ratio.value, all.hit_ratio.value, 1.5);
        let Estimate { low, high, .. } = sampled.hit_ratio;
        assert!(high - low < 0.05 && high - low > 0.001, "{low} to {high}");
    }
    assert!(ratios[0].iter().is_sorted_by_key(|point| point.hit_ratio.value));
    let [all, sampled] = [&ratios[0][3], &ratios[1][3]].map(|point| point.database_reads_per_s);
    assert!((all - sampled).abs() < 0.05 * all, "{all} {sampled}");
}

#[test]
fn a_hot_key_in_the_sample_does_not_distort_the_prediction() {
    let rate = 1.0 / 64.0;
    let sampled = |key: &u64| SamplingRate::from_share(rate).takes(hash(*key));
    let is_sampled = [true, false].map(|wanted| {
        // Half of all lookups are of one key.
        let hot = (1_000_000..).find(|key| sampled(key) == wanted).expect("one in 64");
        let mut fed = Fed::new(settings(rate));
        for at in 0..400_000 {
            fed.lookup(hot, at > 0);
            fed.lookup(at % 200_000, false);
        }
        fed.hit_ratios()
    });
    for (with, without) in is_sampled[0].iter().zip(&is_sampled[1]) {
        assert_near(*with, *without, 0.1);
        assert!((0.45..=0.8).contains(with), "{is_sampled:?}");
    }
}

#[test]
fn lost_events_widen_the_interval() {
    let width = |lost: u64| {
        let mut fed = Fed::new(settings(0.125));
        (0..400_000).for_each(|at| fed.lookup(hash(at) % 100_000, false));
        fed.simulation.lose(lost);
        let curve = fed.curve();
        assert_eq!(curve.dropped, lost);
        let Estimate { low, high, .. } = curve.points[3].hit_ratio;
        high - low
    };
    let none = width(0);
    // A tenth of the sampled lookups, about.
    let some = width(5_500);
    assert!(some > none + 0.15 && some < none + 0.25, "{none} {some}");
}

#[test]
fn old_counts_fade() {
    let mut fed = Fed::new(settings(0.125));
    (0..200_000).for_each(|key| fed.lookup(key, false));
    assert!(fed.hit_ratios()[7] < 0.05);
    fed.advance(Duration::from_hours(6));
    for _ in 0..20 {
        (0..10_000).for_each(|key| fed.lookup(key, true));
    }
    let curve = fed.curve();
    assert!(curve.points[7].hit_ratio.value > 0.9, "{:?}", curve.points[7]);
    assert!(curve.measured > 0.99);
    assert!(curve.window_s < 3_600.5, "{}", curve.window_s);
}

#[test]
fn nothing_is_said_before_enough_lookups() {
    let mut fed = Fed::new(settings(0.125));
    let mut key = 0;
    while fed.simulation.sampled_lookups() < LOOKUPS_MIN - 1 {
        fed.lookup(key, false);
        key += 1;
    }
    fed.advance(Duration::from_secs(1));
    assert_eq!(fed.simulation.curve(), None);
    (key..key + 1_000).for_each(|key| fed.lookup(key, false));
    assert!(fed.simulation.curve().is_some());
}

#[test]
fn the_rate_follows_the_entries() {
    let plan = |entries: u64| plan(entries * 500, 500, None);
    assert_eq!(plan(31_000), Err(Unplanned::TooSmall { entries: 31_000, entries_min: 32_000 }));
    assert_near(plan(32_000).unwrap().share(), 0.125, 0.001);
    assert_near(plan(400_000).unwrap().share(), 0.01, 0.001);
    assert_near(plan(1_100_000).unwrap().share(), RATE_MIN, 0.001);
    let many = plan(100_000_000).unwrap().share();
    assert!(many < RATE_MIN && many * 25_000_000.0 > COPY_ENTRIES_MIN, "{many}");
    let most = SamplingRate::from_share(0.001);
    assert_eq!(super::plan(50_000_000, 50, Some(most)), Ok(most));
    assert_eq!(super::plan(20_000_000, 50, Some(most)), Err(Unplanned::Memory));
    assert!(super::plan(0, 0, None).is_err());
}

#[test]
fn the_memory_of_a_million_entries_is_bounded() {
    const MILLION: u64 = 1_000_000;
    let rate = plan(MILLION * u64::from(WEIGHT), WEIGHT.into(), None).unwrap();
    let mut settings = settings(rate.share());
    settings.capacity_bytes = MILLION * u64::from(WEIGHT);
    let mut fed = Fed::new(settings);
    // More keys than the largest copy holds; only the sampled ones cost time.
    (0..20 * MILLION).for_each(|key| fed.lookup(key, false));
    let bytes = fed.simulation.memory_bytes();
    assert!((2_000_000..6_000_000).contains(&bytes), "{bytes}");
}

/// Pearson's statistic of a table of counts, per degree of freedom: about 1 without a dependence.
fn statistic(table: &[[f64; 64]]) -> f64 {
    let sum: f64 = table.as_flattened().iter().sum();
    let rows: Vec<f64> = table.iter().map(|row| row.iter().sum()).collect();
    let column = |at: usize| table.iter().map(|row| row[at]).sum::<f64>();
    let columns: Vec<f64> = (0..64).map(column).collect();
    let mut statistic = 0.0;
    for (row, of_row) in table.iter().zip(&rows) {
        for (count, of_column) in row.iter().zip(&columns) {
            let expected = of_row * of_column / sum;
            statistic += (count - expected).powi(2) / expected;
        }
    }
    statistic / (63.0 * (table.len() - 1) as f64)
}

#[test]
fn sampled_keys_spread_over_shards_and_buckets_like_all_others() {
    use std::hash::BuildHasher;

    let schema =
        hotrow_types::key::KeySchema::new(FIRST, vec![hotrow_types::key::KeyType::Integer]);
    for seed in [1, 0xdead_beef, u64::MAX] {
        let hasher = foldhash::fast::FixedState::with_seed(seed);
        // Consecutive integers: the least random of all usual keys.
        let hash =
            |id: u32| hasher.hash_one(schema.parse_url(&id.to_string()).expect("an integer"));
        let hashes: Vec<u64> = (0..400_000).map(hash).collect();
        // Whether a key is sampled, and its group, against bits of its hash.
        for shift in [0, 6, 12, 18, 20, 26, 32, 58] {
            for rate in [1.0 / 256.0, 0.125] {
                let rate = SamplingRate::from_share(rate);
                let mut sampled = [[0.0; 64]; 2];
                let mut groups = [[0.0; 64]; 16];
                for &hash in &hashes {
                    let bits = (hash >> shift) as usize % 64;
                    sampled[usize::from(rate.takes(hash))][bits] += 1.0;
                    groups[selector(hash) as usize % 16][bits] += 1.0;
                }
                // The standard deviations are 0.18 and 0.046.
                let found = [statistic(&sampled), statistic(&groups)];
                assert!(found[0] < 1.9 && found[1] < 1.25, "{seed} {shift} {found:?}");
                let share = sampled[1].iter().sum::<f64>() / 400_000.0;
                let deviation = (rate.share() / 400_000.0).sqrt();
                assert!((share - rate.share()).abs() < 5.0 * deviation, "{share}");
            }
        }
    }
}

#[test]
fn the_keys_of_a_lower_rate_are_among_those_of_a_higher_one() {
    let [low, high] = [0.01, 0.02].map(SamplingRate::from_share);
    let taken = |rate: SamplingRate| (0..10_000).filter(|key| rate.takes(hash(*key))).count();
    assert!((0..10_000).all(|key| !low.takes(hash(key)) || high.takes(hash(key))));
    assert!(taken(low) > 50 && taken(high) > taken(low) + 50);
    assert!(!SamplingRate::NONE.takes(hash(1)));
}
