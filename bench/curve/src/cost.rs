//! Time of a lookup's part in the prediction, and of the replay.

use std::hint::black_box;
use std::time::{Duration, Instant};

use hotrow_cache::Presence;
use hotrow_cache::miniature::sampling::{Event, Sample, SamplingRate, Weighed, selector};
use hotrow_cache::miniature::{LookupTotals, Simulation};
use hotrow_measure::clock::Nanos;
use hotrow_replay::policy::{Hotrow, Policy, entry_bytes};
use hotrow_types::key::CollectionId;

/// Rounds of each row; their median counts.
const ROUNDS: usize = 21;
const ROUND: Duration = Duration::from_millis(50);
/// Entries of the cache.
const ENTRIES: u32 = 100_000;

/// Time of one step.
pub struct Cost {
    pub name: &'static str,
    pub ns: f64,
}

/// Returns the median time of a step, in nanoseconds.
fn time(mut step: impl FnMut(u64)) -> f64 {
    const STEPS: u64 = 1_000;
    let mut rounds: Vec<f64> = Vec::new();
    let mut at = 0;
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let mut steps = 0;
        while began.elapsed() < ROUND {
            (at..at + STEPS).for_each(&mut step);
            at += STEPS;
            steps += STEPS;
        }
        rounds.push(began.elapsed().as_nanos() as f64 / steps as f64);
    }
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

/// Measures all rows.
pub fn measure() -> Vec<Cost> {
    let mut cache = Hotrow::new(ENTRIES as usize);
    (0..ENTRIES).for_each(|key| _ = cache.get_or_insert(key));
    let hash = |key| cache.key_hash(key).unwrap_or_default();
    let hashes: Vec<u64> = (0..ENTRIES).map(hash).collect();
    let of = |at: u64| hashes[(at % u64::from(ENTRIES)) as usize];
    let key = |at: u64| (selector(at) % u64::from(ENTRIES)) as u32;
    let nothing = time(|at| _ = black_box(of(at)));
    let rare = SamplingRate::from_share(1.0 / 256.0);
    let decides = time(|at| _ = black_box(black_box(rare).takes(of(at))));
    let draws = time(|at| _ = black_box(key(at)));
    let lookup = time(|at| _ = black_box(cache.get_or_insert(key(at))));
    let unsampled = time(|at| {
        _ = black_box(cache.sample(key(at), SamplingRate::NONE));
    });
    let sampled = time(|at| _ = black_box(cache.sample(key(at), SamplingRate::from_share(1.0))));
    vec![
        Cost { name: "decision of a lookup whose key is not sampled", ns: decides - nothing },
        Cost { name: "a hit of the cache, for comparison", ns: lookup - draws },
        Cost { name: "look at the entry of a sampled key", ns: sampled - unsampled },
        Cost { name: "an event of a lookup in all eight copies", ns: replay(&hashes) },
    ]
}

fn replay(hashes: &[u64]) -> f64 {
    let cache = Hotrow::new(ENTRIES as usize);
    let settings = cache.miniature_settings(SamplingRate::from_share(1.0 / 8.0));
    let rate = settings.rate;
    let sampled: Vec<u64> = hashes.iter().copied().filter(|hash| rate.takes(*hash)).collect();
    let mut simulation = Simulation::new(settings, &[LookupTotals::default()], Nanos(0));
    let held = Some(Weighed { weight_bytes: entry_bytes(2) as u32, presence: Presence::Found });
    time(|at| {
        let event = Event::Lookup { is_scan: false, held };
        let key_hash = sampled[(selector(at) % sampled.len() as u64) as usize];
        simulation.apply(&Sample { at: Nanos(1), key_hash, collection: CollectionId(0), event });
    })
}
