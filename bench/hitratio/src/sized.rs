//! Hit ratios under a byte bound: the traces with drawn sizes, log-normal from 200 B to 20 kB,
//! independent of popularity, growing with it or shrinking with it.

use std::collections::HashMap;

use hotrow_replay::trace::Trace;

use crate::policy::{Gdsf, Hotrow, QuickBytes, entry_bytes};

/// Capacities in % of the bytes of all entries.
const PERCENTS: [f64; 6] = [0.5, 1.0, 3.0, 5.0, 10.0, 30.0];
const LEAST_BYTES: f64 = 200.0;
const MOST_BYTES: f64 = 20_000.0;
/// Estimate of the mean entry that the product had before it learned the mean.
const OLD_ESTIMATE_BYTES: u64 = 512;
/// Estimate that it starts with now.
const ESTIMATE_BYTES: u64 = 128;

/// Relation of a record's size to its popularity.
#[derive(Clone, Copy, Debug)]
enum Sizes {
    Independent,
    Growing,
    Shrinking,
}

/// Share of object hits and of byte hits, in %.
#[derive(Clone, Copy, Default)]
struct Hits {
    object: f64,
    byte: f64,
}

/// Returns a number that looks random, from 0 to 1 (SplitMix64's finalizer).
fn uniform(seed: u64) -> f64 {
    let mut z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

/// Draws the body bytes of one record: 95 % are within the bounds before they are clamped.
fn draw(seed: u64) -> u64 {
    let normal = (-2.0 * uniform(2 * seed + 1).max(1e-12).ln()).sqrt()
        * (std::f64::consts::TAU * uniform(2 * seed + 2)).cos();
    let middle = (LEAST_BYTES.ln() + MOST_BYTES.ln()) / 2.0;
    let deviation = (MOST_BYTES.ln() - LEAST_BYTES.ln()) / (2.0 * 1.96);
    (middle + deviation * normal).exp().clamp(LEAST_BYTES, MOST_BYTES) as u64
}

/// Returns the body bytes of every key.
fn sizes(trace: &Trace, relation: Sizes) -> HashMap<u32, u64> {
    let mut requests: HashMap<u32, u64> = HashMap::new();
    trace.keys.iter().for_each(|key| *requests.entry(*key).or_default() += 1);
    // Rarest first; of equally popular keys in an order of their own.
    let mut keys: Vec<(u64, u64, u32)> = requests
        .iter()
        .map(|(key, count)| (*count, uniform(u64::from(*key) << 20).to_bits(), *key))
        .collect();
    keys.sort_unstable();
    let mut drawn: Vec<u64> = (0..keys.len() as u64).map(draw).collect();
    match relation {
        // The draws are independent of the order of the keys.
        Sizes::Independent => {}
        Sizes::Growing => drawn.sort_unstable(),
        Sizes::Shrinking => drawn.sort_unstable_by(|a, b| b.cmp(a)),
    }
    keys.into_iter().map(|(_, _, key)| key).zip(drawn).collect()
}

fn replay(requests: &[(u32, u64)], mut get_or_insert: impl FnMut(u32, u64) -> bool) -> Hits {
    let mut hits = [0_u64; 2];
    let mut bytes = 0;
    for (key, body_bytes) in requests {
        bytes += body_bytes;
        if get_or_insert(*key, *body_bytes) {
            hits[0] += 1;
            hits[1] += body_bytes;
        }
    }
    let [object, byte] = hits.map(|hits| hits as f64 * 100.0);
    Hits { object: object / requests.len() as f64, byte: byte / bytes as f64 }
}

/// Prints object hits and byte hits of each cell.
pub fn print(traces: &[Trace]) {
    let names = ["before", "before, mean known", "hotrow", "GDSF"];
    println!(
        "Object hits in %, byte hits in brackets. *before*: quick_cache with the settings of the \
         product before its own store, with {OLD_ESTIMATE_BYTES} bytes estimated, and with the mean \
         known.\n\n| trace, sizes, bytes | {} | hotrow − before |\n|---|{}",
        names.join(" | "),
        "---|".repeat(names.len() + 1)
    );
    let mut cells: Vec<[Hits; 4]> = Vec::new();
    for trace in traces {
        for relation in [Sizes::Independent, Sizes::Growing, Sizes::Shrinking] {
            let sizes = sizes(trace, relation);
            let all: u64 = sizes.values().map(|body| entry_bytes(*body)).sum();
            let requests: Vec<(u32, u64)> =
                trace.keys.iter().map(|key| (*key, sizes[key])).collect();
            for percent in PERCENTS {
                let capacity = (all as f64 * percent / 100.0) as u64;
                let cell = cell(&requests, capacity, all / sizes.len() as u64);
                let columns = cell.map(|hits| format!("{:.2} ({:.2})", hits.object, hits.byte));
                println!(
                    "| {} {relation:?} {percent} % ({} kB) | {} | {:+.2} |",
                    trace.name,
                    capacity / 1000,
                    columns.join(" | "),
                    cell[2].object - cell[0].object
                );
                cells.push(cell);
            }
        }
    }
    verdict(&names, &cells);
}

fn cell(requests: &[(u32, u64)], capacity: u64, mean_bytes: u64) -> [Hits; 4] {
    let quick = |estimate| {
        let cache = QuickBytes::new(capacity, estimate);
        replay(requests, |key, body| cache.get_or_insert(key, entry_bytes(body)))
    };
    let hotrow = Hotrow::with_bytes(capacity, ESTIMATE_BYTES);
    let mut gdsf = Gdsf::new(capacity);
    [
        quick(entry_bytes(OLD_ESTIMATE_BYTES)),
        quick(mean_bytes),
        replay(requests, |key, body| hotrow.get_or_insert_sized(key, body as usize)),
        replay(requests, |key, body| gdsf.get_or_insert(key, entry_bytes(body))),
    ]
}

/// Prints means over all cells, and the worst cell of the product.
fn verdict(names: &[&str], cells: &[[Hits; 4]]) {
    println!();
    let mean = |value: &dyn Fn(&[Hits; 4]) -> f64| {
        cells.iter().map(value).sum::<f64>() / cells.len().max(1) as f64
    };
    for (at, name) in names.iter().enumerate() {
        let object = mean(&|cell| cell[at].object);
        let byte = mean(&|cell| cell[at].byte);
        println!("- {name}: mean of object hits {object:.2}, of byte hits {byte:.2}");
    }
    let gains = cells.iter().map(|cell| cell[2].object - cell[0].object);
    let worst = gains.fold(f64::INFINITY, f64::min);
    let gain = mean(&|cell| cell[2].object - cell[0].object);
    println!("- hotrow − before: mean {gain:+.2} (aim: +1.0), worst cell {worst:+.2} (aim: −0.5)");
}
