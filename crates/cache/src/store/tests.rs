use std::sync::Arc;

use hotrow_measure::clock::Nanos;

use super::*;
use crate::record::RecordParts;
use crate::testkit::{FIRST, config, key_of, log, parts};

const SECOND: CollectionId = CollectionId(1);

struct Bench {
    store: Store,
    stats: Arc<[CollectionStats]>,
    capacity_bytes: u64,
}

impl Bench {
    fn new(capacity_bytes: u64) -> Self {
        let stats: Arc<[CollectionStats]> = (0..2).map(|_| CollectionStats::default()).collect();
        let config = Config { capacity_bytes, ..config() };
        Self { store: Store::new(&config, stats.clone()), stats, capacity_bytes }
    }

    fn put(&self, key: &Key, body: Option<&[u8]>, read_at: u64) {
        let version = log(1);
        let parts = RecordParts { read_at: Nanos(read_at), ..parts(key, body, &version) };
        self.store.insert(key, &Record::new(&parts));
    }

    fn check(&self) {
        let mut total = 0;
        for (collection, counted) in
            [FIRST, SECOND].map(|c| (c, self.store.recount().remove(&c).unwrap_or_default()))
        {
            let stats = self.stats[usize::from(collection.0)].snapshot();
            assert_eq!(
                [stats.entries, stats.negative_entries, stats.bytes],
                counted,
                "{collection:?}"
            );
            total += stats.bytes;
        }
        assert!(total <= self.capacity_bytes, "{total} bytes");
        assert!(self.store.fill(Presence::Missing).0 <= self.capacity_bytes / 10);
    }

    fn removed(&self, collection: CollectionId, cause: Removal) -> u64 {
        self.stats[usize::from(collection.0)].snapshot().removed[cause as usize]
    }
}

/// Returns the capacities for existing and for missing records.
fn capacities(store: &Store) -> [u64; 2] {
    [Presence::Found, Presence::Missing].map(|presence| store.fill(presence).1)
}

#[test]
fn every_cause_of_removal_is_counted_once() {
    let bench = Bench::new(100_000);
    let key = key_of(FIRST, 1);
    bench.put(&key, Some(b"a"), 1);
    bench.put(&key, Some(b"b"), 2);
    assert_eq!(bench.removed(FIRST, Removal::Replaced), 1);
    bench.put(&key, None, 3);
    assert_eq!(bench.removed(FIRST, Removal::Replaced), 2);
    assert_eq!(bench.store.get(&key).unwrap().presence(), Presence::Missing);
    bench.put(&key, Some(b"c"), 4);
    assert_eq!(bench.store.get(&key).unwrap().body(), b"c");
    bench.check();
    assert!(bench.store.remove(&key, Removal::Purged));
    assert!(!bench.store.remove(&key, Removal::Purged));
    assert_eq!(bench.removed(FIRST, Removal::Purged), 1);
    bench.check();
    assert_eq!(bench.stats[0].snapshot().entries, 0);
}

#[test]
fn another_capacity_is_reached_step_by_step_in_every_shard() {
    const LARGE: u64 = 256 << 20;
    let bench = Bench::new(LARGE);
    let config = Config { capacity_bytes: LARGE, ..config() };
    assert!(bench.store.shards.len() > 1);
    let body = [b'x'; 1_000];
    for id in 0..4_000 {
        bench.put(&key_of(FIRST, id), (id % 10 > 0).then_some(&body), 1);
    }
    assert_eq!(bench.removed(FIRST, Removal::Capacity), 0);
    let is_found = |id: &i64| bench.store.peek(&key_of(FIRST, *id)).is_some();
    let entries =
        |found: bool| (0..4_000).filter(move |id| (id % 10 > 0) == found).filter(is_found);
    let (mut steps, mut removed) = (0, 0);
    while bench.store.step_to_capacity(&config, 1 << 20) {
        steps += 1;
        let evicted = bench.removed(FIRST, Removal::Capacity) - removed;
        assert!(evicted <= 2 * shard::EVICTED_PER_STEP_MAX as u64, "{evicted}");
        removed += evicted;
        bench.check();
    }
    assert!(steps as u64 > removed / 256, "{steps} steps for {removed} entries");
    let [found, missing] = capacities(&bench.store);
    assert!(found <= (1 << 20) * 9 / 10 + 1 && missing <= (1 << 20) / 10, "{found}, {missing}");
    assert_eq!(bench.store.capacity_bytes(), found + missing);
    assert!((500..900).contains(&entries(true).count()), "as many as fit: {found} bytes");
    assert_eq!(removed, 4_000 - (entries(true).count() + entries(false).count()) as u64);
    // A larger capacity holds after one step of each shard.
    for _ in 0..bench.store.shards.len() {
        assert!(bench.store.step_to_capacity(&config, LARGE));
    }
    assert!(!bench.store.step_to_capacity(&config, LARGE));
    assert_eq!(bench.store.capacity_bytes(), Store::new(&config, bench.stats).capacity_bytes());
}

#[test]
fn an_entry_too_large_for_a_shard_removes_the_old_one() {
    let bench = Bench::new(100_000);
    let key = key_of(FIRST, 1);
    for old in [Some(b"old".as_slice()), None] {
        bench.put(&key, old, 1);
        bench.put(&key, Some(&vec![b'x'; 90_000]), 2);
        assert!(bench.store.peek(&key).is_none(), "an older answer must not come back");
        bench.check();
    }
    assert_eq!(bench.removed(FIRST, Removal::TooLarge), 2);
    assert_eq!(bench.removed(FIRST, Removal::Replaced), 2);
}

#[test]
fn requests_for_missing_ids_evict_only_missing_ids() {
    let bench = Bench::new(200_000);
    let found: Vec<Key> = (0..300).map(|id| key_of(FIRST, id)).collect();
    found.iter().for_each(|key| bench.put(key, Some(&[b'x'; 100]), 1));
    let before = bench.stats[0].snapshot();
    assert_eq!(before.entries, 300);
    (1000..20_000).for_each(|id| bench.put(&key_of(SECOND, id), None, 1));
    bench.check();
    assert!(found.iter().all(|key| bench.store.peek(key).is_some()));
    let after = bench.stats[1].snapshot();
    assert_eq!(after.negative_entries, after.entries);
    assert!(after.bytes <= 20_000 && after.bytes > 15_000, "{} bytes", after.bytes);
    assert_eq!(after.removed[Removal::Capacity as usize], 19_000 - after.entries);
}

#[test]
fn the_negative_share_is_bounded_in_any_configuration() {
    for (share, at_most) in
        [(0.0, 0), (0.05, 5_000), (0.1, 10_000), (7.0, 10_000), (-1.0, 0), (f64::NAN, 0)]
    {
        let stats: Arc<[CollectionStats]> = vec![CollectionStats::default()].into();
        let config = Config { capacity_bytes: 100_000, negative_share: share, ..config() };
        let store = Store::new(&config, stats.clone());
        let [found, missing] = capacities(&store);
        assert!(missing <= at_most, "{share}");
        assert!(missing + found <= 100_000, "{share}");
        assert!(missing + 1 >= at_most, "{share}");
    }
}

#[test]
fn shards_never_exceed_the_capacity_together() {
    for capacity_bytes in [0, 1, 1000, 100_000_003, 1 << 30, (3 << 30) + 7, 64 << 30] {
        let stats: Arc<[CollectionStats]> = vec![CollectionStats::default()].into();
        let store = Store::new(&Config { capacity_bytes, ..config() }, stats);
        let shards: u64 = capacities(&store).iter().sum();
        assert!(
            shards <= capacity_bytes && capacity_bytes - shards < 130,
            "{capacity_bytes}: {shards}"
        );
    }
}

proptest::proptest! {
    #[test]
    fn the_accounting_is_exact_after_any_sequence(
        capacity_bytes in 1_000_u64..60_000,
        steps in proptest::collection::vec((0_u8..10, 0_i64..60, 0_usize..3_000, 0_u16..2), 1..400),
    ) {
        let bench = Bench::new(capacity_bytes);
        for (at, (what, id, body_bytes, collection)) in steps.into_iter().enumerate() {
            let key = key_of(CollectionId(collection), id);
            match what {
                0 => drop(bench.store.remove(&key, Removal::Invalidated)),
                1 | 2 => bench.put(&key, None, at as u64),
                3 => bench.put(&key, Some(&vec![0; body_bytes * 30]), at as u64),
                4 | 5 => drop(bench.store.get(&key)),
                _ => bench.put(&key, Some(&vec![0; body_bytes]), at as u64),
            }
            bench.check();
        }
    }
}
