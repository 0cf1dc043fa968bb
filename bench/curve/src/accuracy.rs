//! Replays of traces against the product's cache at each capacity, beside its prediction from one.

use std::collections::HashMap;

use hotrow_cache::Presence;
use hotrow_cache::miniature::sampling::{Event, Sample, SamplingRate, Weighed};
use hotrow_cache::miniature::{COPIES, COPY_ENTRIES_MIN, Curve, FACTORS, LookupTotals, Simulation};
use hotrow_measure::clock::Nanos;
use hotrow_replay::policy::{Hotrow, entry_bytes};
use hotrow_replay::trace::Trace;
use hotrow_types::key::CollectionId;

/// Sampling rates that are measured.
pub const RATES: [f64; 5] = [0.125, 1.0 / 32.0, 0.01, 1.0 / 128.0, 1.0 / 256.0];
/// Sets of sampled keys per cell: the error depends on chance.
pub const SEEDS: u64 = 8;
/// Factors of sizes between the smallest and the largest body.
const SIZES: f64 = 100.0;
const LEAST_BYTES: f64 = 200.0;

/// A sequence of requests, with the body bytes of each key.
pub struct Workload {
    pub name: String,
    keys: Vec<u32>,
    bodies: Vec<u32>,
    /// Bytes of all entries.
    bytes: u64,
    unique: u64,
}

/// One capacity of one workload.
pub struct Cell {
    pub workload: String,
    /// Capacity in % of the bytes of all entries.
    pub percent: f64,
    pub capacity_bytes: u64,
    pub entries: u64,
    /// Hit ratios of the cache at the capacities.
    pub actual: [f64; COPIES],
    pub rows: Vec<Row>,
}

/// Predictions at one rate.
pub struct Row {
    pub rate: f64,
    /// Mean number of different keys in the sample.
    pub keys: u64,
    /// By set of sampled keys.
    pub predicted: Vec<[f64; COPIES]>,
    /// Whether the interval holds the actual hit ratio.
    pub within: Vec<[bool; COPIES]>,
    /// `true`: the product samples at this rate or a higher one, or says that it does not know.
    pub is_refused: bool,
    /// Largest memory of the copies.
    pub memory_bytes: u64,
}

impl Cell {
    /// Returns which capacities are below the bytes of all entries: above, nothing is predicted.
    fn is_open(&self, at: usize) -> bool {
        self.percent * FACTORS[at] <= 100.0
    }

    /// Returns the absolute errors of a row in points of the hit ratio.
    pub fn errors(&self, row: &Row) -> Vec<f64> {
        let errors = row.predicted.iter().flat_map(|predicted| {
            (0..COPIES)
                .filter(|at| self.is_open(*at))
                .map(|at| 100.0 * (predicted[at] - self.actual[at]).abs())
        });
        errors.collect()
    }

    /// Returns the mean of the signed errors in points.
    pub fn bias(&self, row: &Row) -> f64 {
        let errors = row.predicted.iter().flat_map(|predicted| {
            (0..COPIES)
                .filter(|at| self.is_open(*at))
                .map(|at| 100.0 * (predicted[at] - self.actual[at]))
        });
        mean(&errors.collect::<Vec<_>>())
    }

    /// Returns the share of intervals that hold the actual hit ratio.
    pub fn coverage(&self, row: &Row) -> f64 {
        let held = row.within.iter().flat_map(|within| {
            (0..COPIES).filter(|at| self.is_open(*at)).map(|at| f64::from(u8::from(within[at])))
        });
        mean(&held.collect::<Vec<_>>())
    }
}

/// Returns the mean, 0 of none.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn uniform(seed: u64) -> f64 {
    let mut z = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 31)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (z ^ (z >> 29)) as f64 / u64::MAX as f64
}

impl Workload {
    /// Numbers the keys of a trace, and draws a size for each, from 200 B to 20 kB, if `sized`.
    pub fn new(trace: &Trace, sized: bool) -> Self {
        Self::of_users(trace, sized, 1, trace.keys.len())
    }

    /// The first `requests` of a trace, made by several users at once, each with keys of its own
    /// and at another place of them.
    pub fn of_users(trace: &Trace, sized: bool, users: u32, requests: usize) -> Self {
        let mut numbers: HashMap<u32, u32> = HashMap::new();
        let mut dense: Vec<u32> = Vec::with_capacity(requests);
        for key in trace.keys.iter().take(requests) {
            let next = numbers.len() as u32;
            dense.push(*numbers.entry(*key).or_insert(next));
        }
        let unique = numbers.len() as u32;
        let length = dense.len();
        let of = |at: usize| {
            let dense = &dense;
            (0..users).map(move |user| {
                let start = length / users as usize * user as usize;
                dense[(at + start) % length] + user * unique
            })
        };
        let keys = (0..length).flat_map(of).collect();
        let body = |key: u32| match sized {
            true => (LEAST_BYTES * SIZES.powf(uniform(key.into()))) as u32,
            false => 2,
        };
        let bodies: Vec<u32> = (0..unique * users).map(body).collect();
        let bytes = bodies.iter().map(|body| entry_bytes((*body).into())).sum();
        let many = if users == 1 { String::new() } else { format!(" × {users}") };
        let sizes = if sized { ", sizes drawn" } else { "" };
        let name = format!("{}{many}{sizes}", trace.name);
        Self { name, unique: bodies.len() as u64, keys, bodies, bytes }
    }

    fn mean_bytes(&self) -> u64 {
        self.bytes / self.unique.max(1)
    }

    fn cache(&self, capacity_bytes: u64, seed: u64) -> Hotrow {
        Hotrow::with_seed(capacity_bytes, self.mean_bytes(), seed)
    }

    /// Replays all requests. Returns which hit.
    fn replay(&self, cache: &Hotrow) -> Vec<bool> {
        let hit = |key: &u32| cache.get_or_insert_sized(*key, self.bodies[*key as usize] as usize);
        self.keys.iter().map(hit).collect()
    }

    /// Measures one capacity, given in % of the bytes of all entries. `only_shown`: at the rates at
    /// which the product predicts.
    pub fn cell(&self, percent: f64, only_shown: bool) -> Cell {
        let capacity_bytes = (self.bytes as f64 * percent / 100.0) as u64;
        let entries = capacity_bytes / self.mean_bytes().max(1);
        let mut hits_now = Vec::new();
        let actual = FACTORS.map(|factor| {
            let hits = self.replay(&self.cache((capacity_bytes as f64 * factor) as u64, 1));
            let ratio = hits.iter().filter(|hit| **hit).count() as f64 / hits.len() as f64;
            if factor == 1.0 {
                hits_now = hits;
            }
            ratio
        });
        let is_refused = |rate: f64| rate * FACTORS[0] * entries as f64 + 0.5 < COPY_ENTRIES_MIN;
        let rates = RATES.iter().filter(|rate| !(only_shown && is_refused(**rate)));
        let rows = rates
            .map(|rate| Row {
                is_refused: is_refused(*rate),
                ..self.row(capacity_bytes, *rate, &hits_now, &actual)
            })
            .collect();
        let workload = self.name.clone();
        Cell { workload, percent, capacity_bytes, entries, actual, rows }
    }

    fn row(&self, capacity_bytes: u64, rate: f64, hits: &[bool], actual: &[f64; COPIES]) -> Row {
        let mut row = Row {
            rate,
            keys: 0,
            predicted: Vec::new(),
            within: Vec::new(),
            is_refused: false,
            memory_bytes: 0,
        };
        for seed in 1..=SEEDS {
            let cache = self.cache(capacity_bytes, seed);
            let settings = cache.miniature_settings(SamplingRate::from_share(rate));
            let hash = |key| cache.key_hash(key).unwrap_or_default();
            let hashes: Vec<u64> = (0..self.bodies.len() as u32).map(hash).collect();
            row.keys += hashes.iter().filter(|hash| settings.rate.takes(**hash)).count() as u64;
            let mut simulation = Simulation::new(settings, &[LookupTotals::default()], Nanos(0));
            let curve = self.predict(&mut simulation, &hashes, hits);
            row.memory_bytes = row.memory_bytes.max(simulation.memory_bytes());
            let Some(curve) = curve else { continue };
            let points = curve.points;
            row.predicted.push(points.map(|point| point.hit_ratio.value));
            row.within.push(std::array::from_fn(|at| {
                (points[at].hit_ratio.low..=points[at].hit_ratio.high).contains(&actual[at])
            }));
        }
        row.keys /= SEEDS;
        row
    }

    /// Feeds a simulation as the server does.
    fn predict(&self, simulation: &mut Simulation, hashes: &[u64], hits: &[bool]) -> Option<Curve> {
        const COLLECTION: CollectionId = CollectionId(0);
        let rate = simulation.settings().rate;
        let mut totals = LookupTotals::default();
        for (key, hit) in self.keys.iter().zip(hits) {
            totals.lookups += 1;
            totals.answered += u64::from(*hit);
            totals.reads += u64::from(!*hit);
            let key_hash = hashes[*key as usize];
            if !rate.takes(key_hash) {
                continue;
            }
            let weight_bytes = entry_bytes(self.bodies[*key as usize].into()) as u32;
            let entry = Weighed { weight_bytes, presence: Presence::Found };
            let event = Event::Lookup { is_scan: false, held: hit.then_some(entry) };
            let sample = Sample { at: Nanos(1), key_hash, collection: COLLECTION, event };
            simulation.apply(&sample);
            if !hit {
                let event = Event::Stored { entry, is_warm_up: false };
                simulation.apply(&Sample { event, ..sample });
            }
        }
        simulation.advance(&[totals], Nanos(1_000_000_000));
        simulation.curve()
    }
}
