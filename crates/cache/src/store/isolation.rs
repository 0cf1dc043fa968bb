//! Isolation of scans: a client that reads everything, or requests missing ids, must not cost the
//! others their hits.
//!
//! Its reads use [`ReadMode::NoAdmit`](crate::ReadMode), as the server does after its first rounds.
//! Two stores see the same requests of the others, and one of them the intruder's too; the
//! difference of the others' hit ratios is the intruder's cost. The sizes are those of
//! the published workload behind `experiments/balancer-hit-ratio.toml`: 80 % of the requests go to
//! 20 % of the items, and a quarter of the items fit.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hotrow_measure::random::SplitMix64;

use super::Store;
use crate::config::Config;
use crate::record::Record;
use crate::scan_filter::ScanFilter;
use crate::stats::CollectionStats;
use crate::testkit::{FIRST, config, key_of, log, parts};
use hotrow_types::key::Key;

const ITEMS: u64 = 20_000;
/// A quarter of the items.
const FITTING: u64 = ITEMS / 4;
const BODY: &[u8] = &[b'x'; 200];
/// Requests of the others before the measurement.
const WARM_UP: u64 = 10 * ITEMS;
/// Largest permitted cost of an intruder to the others, in points of hit ratio.
const POINTS_MAX: f64 = 1.0;

/// Distribution of the others' requests.
#[derive(Clone, Copy, Debug)]
enum Traffic {
    /// 80 % to 20 % of the items, evenly within each part.
    TwoParts,
    /// Zipf's law with this exponent.
    Zipf(f64),
}

/// Behaviour of the client beside them.
#[derive(Clone, Copy, Debug)]
enum Intruder {
    /// Reads all items in their order, over and over.
    Scans,
    /// Reads random items, all equally likely.
    ReadsEvenly,
    /// Requests ids that do not exist, each once.
    AsksForMissing,
}

/// Generator of the others' requests, by rank of the item: 0 is requested most.
struct Ranks {
    traffic: Traffic,
    /// For Zipf: the cumulative share of requests by rank.
    shares: Vec<f64>,
}

impl Ranks {
    fn new(traffic: Traffic) -> Self {
        let mut shares = Vec::new();
        if let Traffic::Zipf(exponent) = traffic {
            let mut sum = 0.0;
            shares.extend((1..=ITEMS).map(|rank| {
                sum += (rank as f64).powf(-exponent);
                sum
            }));
            shares.iter_mut().for_each(|share| *share /= sum);
        }
        Self { traffic, shares }
    }

    fn next(&self, random: &mut SplitMix64) -> u64 {
        match self.traffic {
            Traffic::TwoParts if random.unit() < 0.8 => random.below(ITEMS / 5),
            Traffic::TwoParts => ITEMS / 5 + random.below(ITEMS - ITEMS / 5),
            Traffic::Zipf(_) => {
                let share = random.unit();
                (self.shares.partition_point(|upto| *upto < share) as u64).min(ITEMS - 1)
            }
        }
    }
}

/// Maps ranks to scattered ids, so that a scan does not read the items in the order of their use.
fn id_of_rank(rank: u64) -> u64 {
    // Coprime to the number of items: a permutation.
    rank * 7_919 % ITEMS
}

struct Shard {
    store: Store,
    scan_filter: ScanFilter,
}

impl Shard {
    fn new() -> Self {
        let stats: Arc<[CollectionStats]> = vec![CollectionStats::default()].into();
        let entry_bytes = record(&key_of(FIRST, 0), Some(BODY)).weight_bytes();
        let negative_share = 0.05;
        let capacity_bytes = (FITTING as f64 * entry_bytes as f64 / (1.0 - negative_share)) as u64;
        let config =
            Config { capacity_bytes, negative_share, entry_bytes_estimate: 200, ..config() };
        Self { store: Store::new(&config, stats), scan_filter: ScanFilter::new(FITTING) }
    }

    /// Reads through the store. `true` is a hit.
    fn read(&self, id: u64, body: Option<&[u8]>) -> bool {
        let key = key_of(FIRST, id as i64);
        let hit = self.store.get(&key).is_some();
        if !hit {
            self.store.insert(&key, &record(&key, body));
        }
        hit
    }

    /// Reads through the store as [`crate::Cache`] does for a scanning client.
    fn read_without_admission(&self, id: u64, body: Option<&[u8]>) {
        let key = key_of(FIRST, id as i64);
        if self.store.peek(&key).is_some() {
            return;
        }
        let hash = FixedState::with_seed(7).hash_one(&key);
        assert!(self.store.is_full());
        self.scan_filter.mark(hash);
        if body.is_none() || !self.scan_filter.take(hash) {
            self.store.insert(&key, &record(&key, body));
        }
    }
}

fn record(key: &Key, body: Option<&[u8]>) -> Record {
    Record::new(&parts(key, body, &log(1)))
}

/// Returns the others' hit ratio without and with the intruder, in percent, while the intruder
/// makes `rate` requests to each of theirs, and at least as many requests as there are items.
fn hit_ratios(traffic: Traffic, intruder: Intruder, rate: f64) -> (f64, f64) {
    let ranks = Ranks::new(traffic);
    let mut random = SplitMix64(1);
    let mut evenly = SplitMix64(2);
    let baseline = Shard::new();
    let disturbed = Shard::new();
    for _ in 0..WARM_UP {
        let id = id_of_rank(ranks.next(&mut random));
        baseline.read(id, Some(BODY));
        disturbed.read(id, Some(BODY));
    }
    let requests = (ITEMS as f64 / rate) as u64;
    let requests = requests.max(2 * ITEMS);
    let mut baseline_hits = 0_u64;
    let mut disturbed_hits = 0_u64;
    let mut due = 0.0;
    let mut at = 0;
    for _ in 0..requests {
        due += rate;
        while due >= 1.0 {
            due -= 1.0;
            match intruder {
                Intruder::Scans => disturbed.read_without_admission(at % ITEMS, Some(BODY)),
                Intruder::ReadsEvenly => {
                    disturbed.read_without_admission(evenly.below(ITEMS), Some(BODY))
                }
                Intruder::AsksForMissing => disturbed.read_without_admission(ITEMS + at, None),
            }
            at += 1;
        }
        let id = id_of_rank(ranks.next(&mut random));
        baseline_hits += u64::from(baseline.read(id, Some(BODY)));
        disturbed_hits += u64::from(disturbed.read(id, Some(BODY)));
    }
    let percent = |hits: u64| 100.0 * hits as f64 / requests as f64;
    (percent(baseline_hits), percent(disturbed_hits))
}

fn costs_at_most_a_point(intruder: Intruder, rates: &[f64]) {
    let mut complaints = Vec::new();
    for traffic in [Traffic::TwoParts, Traffic::Zipf(0.8), Traffic::Zipf(1.0)] {
        for rate in rates {
            let (baseline, disturbed) = hit_ratios(traffic, intruder, *rate);
            println!(
                "{traffic:?}, {intruder:?} at {rate} of the others' rate: {baseline:.2} % falls to \
                 {disturbed:.2} %"
            );
            if baseline - disturbed > POINTS_MAX {
                complaints.push(format!(
                    "{traffic:?} at {rate}: from {baseline:.2} % to {disturbed:.2} %"
                ));
            }
        }
    }
    assert!(complaints.is_empty(), "{intruder:?} costs the others too much: {complaints:#?}");
}

#[test]
fn a_scan_costs_the_others_at_most_a_point_of_hit_ratio() {
    costs_at_most_a_point(Intruder::Scans, &[0.1, 0.5, 2.0]);
}

#[test]
fn random_reads_of_everything_cost_the_others_at_most_a_point_of_hit_ratio() {
    costs_at_most_a_point(Intruder::ReadsEvenly, &[0.1, 0.5, 2.0]);
}

#[test]
fn requests_for_missing_ids_cost_the_others_nothing() {
    for rate in [0.5, 10.0] {
        let (baseline, disturbed) = hit_ratios(Traffic::TwoParts, Intruder::AsksForMissing, rate);
        assert!((baseline - disturbed).abs() < f64::EPSILON, "{baseline} % falls to {disturbed} %");
    }
}
