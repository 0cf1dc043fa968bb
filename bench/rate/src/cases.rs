//! The measured cases.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use hotrow_admission::rate::Cell;
use hotrow_admission::rate::gcra::Gcra;
use hotrow_admission::rate::keyed::Keyed;
use hotrow_admission::rate::meter::Meter;
use hotrow_measure::clock::Nanos;

use crate::report::{Memory, Row};

/// Name of the row that is judged.
pub(crate) const BY_KEY: &str = "by key: hash, look-up, decision (1,000 keys)";
/// Names of the contention rows.
pub(crate) const ONE_KEY: &str = "one key";
const OWN_KEYS: &str = "a key of its own each";

/// Decisions between two reads of the clock.
const CHUNK: u64 = 20_000;
const SEED: [u64; 2] = [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210];

fn gcra(rate: &str, burst: u32) -> Gcra {
    let rate = rate.parse().unwrap_or_else(|e| unreachable!("the rates are fixed: {e}"));
    Gcra(Meter::new(rate, burst, Duration::ZERO, Nanos(0)))
}

/// Returns a client's key in the server's format: 17 bytes.
fn client(number: u64) -> [u8; 17] {
    let mut key = [4; 17];
    key[1..9].copy_from_slice(&number.to_le_bytes());
    key
}

/// Returns the median time of a call over rounds of [`CHUNK`] calls; each call receives its number.
fn row(name: &'static str, time: Duration, mut call: impl FnMut(u64)) -> Row {
    let mut rounds = Vec::new();
    let mut number = 0;
    let begun = Instant::now();
    while begun.elapsed() < time || rounds.len() < 3 {
        let round = Instant::now();
        for _ in 0..CHUNK {
            call(number);
            number += 1;
        }
        rounds.push(round.elapsed().as_secs_f64() * 1e9 / CHUNK as f64);
    }
    rounds.sort_by(f64::total_cmp);
    Row { name, threads: 1, ns: rounds[rounds.len() / 2] }
}

/// One thread. Virtual time advances by a microsecond per call unless the row's name differs.
pub(crate) fn alone(time: Duration) -> Vec<Row> {
    let free = gcra("10000000/s", 1_000_000);
    let never = gcra("1/h", 1);
    let cell = Cell::default();
    let full = Cell::default();
    let few = Keyed::new(65_536, SEED);
    let many = Keyed::new(1 << 21, SEED);
    let new = Keyed::new(65_536, SEED);
    let at = |number: u64| Nanos(number * 1000);
    // A stride coprime to the number of keys visits all of them, far apart.
    let scattered = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
    vec![
        row("the clock, for comparison", time, |_| _ = black_box(Nanos::now())),
        row("the hash of a client's key", time, |n| _ = black_box(few.hash(&client(black_box(n))))),
        row("one cell: decision alone", time, |n| _ = black_box(cell.decide(&free, 1, at(n)))),
        row("one cell: refusal", time, |n| _ = black_box(full.decide(&never, 1, Nanos(n)))),
        row(BY_KEY, time, |n| {
            let key = few.hash(&client(black_box(n % 1000)));
            black_box(few.decide(key, &free, 1, at(n)));
        }),
        row("by key, the clock read too (1,000 keys)", time, |n| {
            let key = few.hash(&client(black_box(n % 1000)));
            black_box(few.decide(key, &free, 1, Nanos::now()));
        }),
        row("by key, 1,048,576 keys in no order", time, |n| {
            let key = many.hash(&client(black_box(scattered(n))));
            black_box(many.decide(key, &free, 1, at(n)));
        }),
        row("by key, each key new (an attacker)", time, |n| {
            let key = new.hash(&client(black_box(n)));
            black_box(new.decide(key, &free, 1, at(n)));
        }),
    ]
}

/// 1 to 8 threads, on one shared key and on a key each.
pub(crate) fn contended(time: Duration) -> Vec<Row> {
    let mut rows = Vec::new();
    for threads in [1, 2, 4, 8] {
        for (name, own) in [(ONE_KEY, false), (OWN_KEYS, true)] {
            rows.push(Row { name, threads, ns: together(threads, own, time) });
        }
    }
    rows
}

/// Returns the nanoseconds per decision of one thread while all threads decide.
fn together(threads: usize, own: bool, time: Duration) -> f64 {
    let table = Keyed::new(65_536, SEED);
    let gcra = gcra("10000000/s", 1_000_000);
    let start = Barrier::new(threads);
    let decide = |thread: u64| {
        let key = table.hash(&client(if own { thread } else { 0 }));
        start.wait();
        let begun = Instant::now();
        let mut decisions = 0_u64;
        while begun.elapsed() < time {
            for _ in 0..CHUNK {
                black_box(table.decide(black_box(key), &gcra, 1, Nanos(decisions * 1000)));
                decisions += 1;
            }
        }
        begun.elapsed().as_secs_f64() * 1e9 / decisions as f64
    };
    let times: Vec<f64> = std::thread::scope(|scope| {
        let running: Vec<_> =
            (0..threads as u64).map(|thread| scope.spawn(move || decide(thread))).collect();
        running.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    // The sum of the threads' rates gives the mean time of a thread.
    times.len() as f64 / times.iter().map(|ns| 1.0 / ns).sum::<f64>()
}

/// Inserts this many keys, each with a debt, so that none can be dropped for free.
pub(crate) fn memory(keys: usize) -> Memory {
    let before = resident_bytes();
    let table = Keyed::new(keys, SEED);
    let gcra = gcra("1/h", 10);
    let begun = Instant::now();
    for number in 0..keys as u64 {
        black_box(table.decide(table.hash(&client(number)), &gcra, 1, Nanos(0)));
    }
    let ns_per_key = begun.elapsed().as_secs_f64() * 1e9 / keys as f64;
    let grown_bytes = resident_bytes().saturating_sub(before);
    let counts = table.counts();
    Memory {
        keys,
        grown_bytes,
        bound_bytes: Keyed::bytes(keys),
        kept: counts.kept,
        displaced: counts.displaced,
        ns_per_key,
    }
}

/// Returns the resident memory from /proc/self/statm, in pages of 4 KiB; 0 without that file.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0_usize)
        * 4096
}
