//! Cost of a cached lookup beside a bare get of `quick_cache`, and cost of an entry beyond its key
//! and body.
//!
//! `cargo bench -p hotrow-cache`. Both sides hold the same bodies under the same key type and look
//! up the same ids, Zipf-like; they alternate in one process and are timed by the thread's CPU
//! time, so that a busy machine slows both equally. Bytes are resident memory with the binary's
//! allocator, each filling in a separate process.

use std::hint::black_box;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::FixedState;
use hotrow_admission::concurrency::queue;
use hotrow_cache::config::{CollectionPolicy, Config, InvalidationMode, WhenStale};
use hotrow_cache::{Answers, Cache, Fetched, Lookup, ReadMode};
use hotrow_measure::clock::Nanos;
use hotrow_types::key::{CollectionId, Key, KeyPart, KeySchema, KeyType};
use hotrow_types::source::SourceId;
use hotrow_types::version::{Position, Version};
use quick_cache::sync::Cache as Quick;
use quick_cache::sync::DefaultLifecycle;
use quick_cache::{OptionsBuilder, UnitWeighter};
use rustix::time::{ClockId, clock_gettime};

const ENTRIES: usize = 100_000;
const BODY_BYTES: usize = 320;
const LOOKUPS: usize = 200_000;
const ROUNDS: usize = 31;
/// Makes the process fill a cache with room for this share of the keys, and measure that.
const SHARE: &str = "LOOKUP_COST_SHARE";
/// Valid for x86-64 and most others.
const PAGE_BYTES: u64 = 4096;
const FIRST: CollectionId = CollectionId(0);
const NOW: Nanos = Nanos(1_000_000_000_000);

type Raw = Quick<Key, Arc<[u8]>, UnitWeighter, FixedState, DefaultLifecycle<Key, Arc<[u8]>>>;

fn main() {
    let keys = keys();
    if let Ok(share) = std::env::var(SHARE) {
        memory(&keys, share.parse().expect("a share as it was printed below"));
        return;
    }
    for share in ["1.0", "0.5"] {
        let this = std::env::current_exe().expect("the bench's own file");
        Command::new(this).env(SHARE, share).status().expect("the bench starts once more");
    }
    let asked = zipf_like(&keys);
    let cache = ours(&keys, 1.0);
    let raw = raw(&keys);
    let ours = |keys: &[&Key]| {
        for key in keys {
            match cache.lookup(black_box(key), ReadMode::Normal, NOW) {
                Lookup::Hit(record, _) => drop(black_box(record)),
                other => unreachable!("all keys were put in: {other:?}"),
            }
        }
    };
    let bare = |keys: &[&Key]| {
        for key in keys {
            drop(black_box(raw.get(*black_box(key)).expect("all keys were put in")));
        }
    };
    let mut ours_ns = Vec::new();
    let mut bare_ns = Vec::new();
    let mut ratios = Vec::new();
    for round in 0..=ROUNDS {
        let a = timed(|| ours(&asked));
        let b = timed(|| bare(&asked));
        // The first round only warms up.
        if round > 0 {
            ours_ns.push(a);
            bare_ns.push(b);
            ratios.push(a / b);
        }
    }
    let ours_ns = median(ours_ns);
    let bare_ns = median(bare_ns);
    let ratio = median(ratios);
    println!(
        "lookup {ours_ns:.1} ns, bare get {bare_ns:.1} ns, ratio {ratio:.2} (aim: at most 1.5)"
    );
}

fn keys() -> Vec<Key> {
    let schema = KeySchema::new(FIRST, vec![KeyType::Integer]);
    (0..ENTRIES as i64)
        .map(|id| schema.key(&[KeyPart::Integer(id)]).expect("an integer is a key"))
        .collect()
}

/// Returns ids with a density of about 1/rank: `n^u` for `u` uniform in 0 to 1. Ranks are
/// independent of ids.
fn zipf_like(keys: &[Key]) -> Vec<&Key> {
    let mut state: u64 = 1;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    let rank = |u: f64| (keys.len() as f64).powf(u) as usize % keys.len();
    // 48271 and the number of keys have no common factor.
    (0..LOOKUPS).map(|_| &keys[rank(next()) * 48_271 % keys.len()]).collect()
}

/// Creates a cache with room for a share of the keys, and inserts all of them through reads.
fn ours(keys: &[Key], share: f64) -> Arc<Cache<()>> {
    let entry_bytes =
        BODY_BYTES + keys[0].as_bytes().len() + hotrow_cache::ENTRY_OVERHEAD_BYTES as usize;
    let config = Config {
        enabled: true,
        // Beside the tenth for missing entries, with some reserve, because shards fill unevenly.
        capacity_bytes: (ENTRIES as f64 * share * entry_bytes as f64 * 1.2) as u64,
        negative_share: 0.1,
        entry_bytes_estimate: BODY_BYTES as u64,
        invalidation_mode: InvalidationMode::Feed,
        prefetch_on_change: true,
        isolate_scans: true,
        max_staleness: Duration::from_secs(1),
        when_stale: WhenStale::Bypass,
        ttl_jitter: 0.1,
        error_ttl: Duration::from_secs(1),
        stale_while_revalidate: Duration::ZERO,
        stale_if_error: Duration::ZERO,
        reads_in_flight: 4,
        query_keys: 1000,
        query_bytes: 1 << 20,
        waiting_keys: 10_000,
        queue: queue::Config {
            adaptive: true,
            target: Duration::from_millis(100),
            interval: Duration::from_millis(500),
            query_target: Duration::from_millis(100),
        },
        seed: 7,
    };
    let ttl = Duration::from_secs(86_400);
    let cache = Cache::new(
        config,
        vec![CollectionPolicy { ttl, negative_ttl: ttl, has_tenants: false, has_views: false }],
    );
    let position = Position { incarnation: 1, at: 1 };
    cache.advance(SourceId::FIRST, NOW, Some(position));
    for some in keys.chunks(1000) {
        let waiters = cache.lookup_batch(some, ReadMode::Normal, NOW);
        let mut loader = cache.batch_loader(FIRST).expect("keys wait and no loader runs");
        while let Some(query) = loader.next_batch(NOW) {
            let rows = query.iter().map(|_| Fetched::Found(vec![b'x'; BODY_BYTES])).collect();
            loader.complete(
                Ok(Answers { version: Version::Log(position), position: Some(position), rows }),
                NOW,
            );
        }
        drop(waiters);
    }
    cache
}

/// Creates the library's cache with the same settings of the policy.
fn raw(keys: &[Key]) -> Raw {
    let options = OptionsBuilder::new()
        .hot_allocation(0.9)
        .ghost_allocation(1.0)
        .estimated_items_capacity(ENTRIES * 2)
        .weight_capacity(ENTRIES as u64 * 2)
        .shards(1)
        .build()
        .expect("both sizes are given");
    let raw = Raw::with_options(
        options,
        UnitWeighter,
        FixedState::with_seed(7),
        DefaultLifecycle::default(),
    );
    for key in keys {
        raw.insert(key.clone(), vec![b'x'; BODY_BYTES].into());
    }
    raw
}

fn memory(keys: &[Key], share: f64) {
    let before = resident_bytes();
    let cache = ours(keys, share);
    let held = resident_bytes() - before;
    let stats = cache.stats(FIRST);
    let payload = stats.entries * (BODY_BYTES + keys[0].as_bytes().len()) as u64;
    let beyond = (held as f64 - payload as f64) / stats.entries as f64;
    let policy = cache.policy_bytes() as f64 / stats.entries as f64;
    println!(
        "room for {share} of the keys: {} entries of {BODY_BYTES} + {} bytes; beyond these \
         {beyond:.0} bytes per entry, of which the policy {policy:.0} (aim: at most 80), counted \
         as {}",
        stats.entries,
        keys[0].as_bytes().len(),
        hotrow_cache::ENTRY_OVERHEAD_BYTES,
    );
}

/// Returns the resident memory of this process, in bytes.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: u64 =
        statm.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("the second field is a number");
    pages * PAGE_BYTES
}

/// Returns the CPU time of this thread for one lookup, in ns.
fn timed(work: impl Fn()) -> f64 {
    let now = || {
        let t = clock_gettime(ClockId::ThreadCPUTime);
        t.tv_sec as f64 * 1e9 + t.tv_nsec as f64
    };
    let start = now();
    work();
    (now() - start) / LOOKUPS as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
