//! Random missing ids: each is read once, their negative entries are bounded, and other clients are
//! not affected.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::overload::crowd::request_until;
use hotrow_testkit::harness::{Config, Database, Server};

/// Records that other clients request all the time.
const HOT: u32 = 200;
const BATCHES: usize = 300;
const BATCH: usize = 100;
const CAPACITY_BYTES: f64 = 1_048_576.0;
const NEGATIVE_SHARE: f64 = 0.05;
/// Returns an id above all existing ones.
/// Ids above all that exist.
fn missing(random: &mut u64) -> u64 {
    // Knuth's linear congruential generator for MMIX; its upper bits are good.
    *random =
        random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    1_000_000 + (*random >> 24)
}

fn ask(server: &Server, seed: u64) -> HashSet<u64> {
    let mut client = server.client();
    let mut random = seed;
    let mut requested = HashSet::new();
    for _ in 0..BATCHES {
        let ids: Vec<u64> = (0..BATCH).map(|_| missing(&mut random)).collect();
        let answer = client.post("/products", format!("{{\"ids\":{ids:?}}}"));
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.json()["items"], serde_json::json!({}));
        let single = missing(&mut random);
        assert_eq!(client.get(&format!("/products/{single}")).status, 404);
        requested.extend(ids);
        requested.insert(single);
    }
    requested
}

#[test]
fn random_missing_ids_are_read_once_each_fill_only_their_share_and_evict_no_record() {
    let database = Database::with_products(HOT);
    let config = Config::new(database.path())
        .collection("products")
        .set("cache.capacity", "\"1MiB\"")
        .set("cache.negative_share", &NEGATIVE_SHARE.to_string());
    let server = Server::start(&config);
    let mut client = server.client();
    (1..=HOT).for_each(|id| assert_eq!(client.get(&format!("/products/{id}")).status, 200));
    let sum = |name: &str| server.metrics().sum(name, &[]);
    let bytes = sum("hotrow_cache_bytes");
    let keys = sum("hotrow_batch_keys_total");
    let done = AtomicBool::new(false);
    let (requested, answers) = std::thread::scope(|scope| {
        // It asserts that each of its answers is a hit.
        let asking = scope.spawn(|| request_until(&server, &mut client, &done));
        let attackers: Vec<_> = (1..=4)
            .map(|seed| {
                scope.spawn({
                    let server = &server;
                    move || ask(server, seed)
                })
            })
            .collect();
        let requested: HashSet<u64> =
            attackers.into_iter().flat_map(|attacker| attacker.join().unwrap()).collect();
        done.store(true, Ordering::Relaxed);
        (requested, asking.join().unwrap())
    });
    let read = sum("hotrow_batch_keys_total") - keys;
    println!(
        "{} missing ids requested, {read} read, in {} queries; another client got {answers} hits",
        requested.len(),
        server.queries()
    );
    assert_eq!(read, requested.len() as f64, "one read per id");
    let entries = sum("hotrow_cache_entries");
    let negative = sum("hotrow_cache_negative_entries");
    assert_eq!(entries - negative, f64::from(HOT), "no record was evicted");
    let grown = sum("hotrow_cache_bytes") - bytes;
    assert!(
        negative > 0.0 && grown <= CAPACITY_BYTES * NEGATIVE_SHARE,
        "{negative} entries take {grown} bytes"
    );
    for id in 1..=HOT {
        assert_eq!(client.get(&format!("/products/{id}")).cache(), "hit", "{id}");
    }
}
