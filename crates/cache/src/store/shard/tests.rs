//! The shard's invariants after every step of random work, and cases that once were traps.

use hotrow_types::key::Key;
use proptest::prelude::*;

use super::*;
use crate::record::ENTRY_OVERHEAD_BYTES;
use crate::testkit::{FIRST, key_of, log, parts};

fn record(key: &Key, body_bytes: Option<usize>) -> Record {
    let body = body_bytes.map(|bytes| vec![b'x'; bytes]);
    Record::new(&parts(key, body.as_deref(), &log(1)))
}

struct Bench {
    shard: Shard,
    hasher: FixedState,
    evicted: usize,
}

impl Bench {
    fn new(found_bytes: u64, missing_bytes: u64) -> Self {
        let hasher = FixedState::with_seed(3);
        let capacity = ShardCapacity { found_bytes, missing_bytes };
        Self { shard: Shard::new(capacity, hasher.clone()), hasher, evicted: 0 }
    }

    /// Takes one step towards a capacity. Returns whether it has been reached.
    fn step_to(&mut self, found_bytes: u64, missing_bytes: u64) -> bool {
        let capacity = ShardCapacity { found_bytes, missing_bytes };
        let mut evicted = Vec::new();
        let before = self.shard.records().count();
        self.shard.step_to(capacity, &mut evicted);
        assert_eq!(self.shard.records().count() + evicted.len(), before);
        self.evicted += evicted.len();
        self.check_entries();
        self.shard.is_at(capacity)
    }

    fn capacity_bytes(&self) -> u64 {
        self.shard.found.capacity_bytes + self.shard.missing.capacity_bytes
    }

    fn hash(&self, id: i64) -> u64 {
        self.hasher.hash_one(key_of(FIRST, id))
    }

    fn put(&mut self, id: i64, body_bytes: Option<usize>) -> Inserted {
        let inserted = self.insert(id, body_bytes);
        self.check();
        inserted
    }

    fn insert(&mut self, id: i64, body_bytes: Option<usize>) -> Inserted {
        let key = key_of(FIRST, id);
        let hash = self.hash(id);
        let mut replaced = None;
        let mut evicted = Vec::new();
        let before = self.shard.records().count();
        let inserted =
            self.shard.insert(hash, record(&key, body_bytes), &mut replaced, &mut evicted);
        let stored = usize::from(inserted == Inserted::Stored);
        let left = usize::from(replaced.is_some()) + evicted.len();
        assert_eq!(self.shard.records().count() + left, before + stored);
        self.evicted += evicted.len();
        inserted
    }

    fn get(&self, id: i64) -> bool {
        let key = key_of(FIRST, id);
        self.shard.get(self.hasher.hash_one(&key), key.as_bytes()).is_some()
    }

    fn remove(&mut self, id: i64) -> bool {
        let key = key_of(FIRST, id);
        let removed = self.shard.remove(self.hasher.hash_one(&key), key.as_bytes()).is_some();
        self.check();
        removed
    }

    /// Checks everything.
    fn check(&self) {
        self.check_entries();
        for region in [&self.shard.found, &self.shard.missing] {
            let least = ENTRY_OVERHEAD_BYTES + 11;
            assert!(region.ghosts.len() as u64 <= region.capacity_bytes / least / 2 + 1);
        }
    }

    /// Checks weights, counts, rings and bounds against the slots.
    fn check_entries(&self) {
        let slab = &self.shard.slab;
        slab.check();
        let mut in_rings = 0;
        for presence in [Presence::Found, Presence::Missing] {
            let region = self.shard.region(presence);
            for (ring, hot) in [(&region.hot, true), (&region.cold, false)] {
                let walked = slab.walk(ring);
                let mut weight_bytes = 0;
                for at in &walked {
                    let record = slab.record(*at).unwrap();
                    assert_eq!(record.presence(), presence);
                    assert_eq!(slab.is_hot(*at), hot);
                    assert!(slab.uses(*at) <= super::super::slab::USES_MAX);
                    assert!(slab.passes(*at) <= PASSES_MAX);
                    let hash = self.hasher.hash_one(KeyBytes(record.key_bytes()));
                    assert_eq!(slab.find(hash, record.key_bytes()), Some(*at));
                    weight_bytes += record.weight_bytes();
                }
                assert_eq!(walked.len(), ring.entries as usize);
                assert_eq!(weight_bytes, ring.weight_bytes);
                in_rings += walked.len();
            }
            assert!(region.weight_bytes() <= region.capacity_bytes, "over the capacity");
        }
        assert_eq!(in_rings, slab.records().count());
    }
}

proptest! {
    #[test]
    fn the_invariants_hold_after_every_step(
        found_bytes in 0_u64..30_000,
        missing_bytes in 0_u64..2_000,
        steps in proptest::collection::vec((0_u8..10, 0_i64..50, 0_u32..12), 1..300),
    ) {
        let mut bench = Bench::new(found_bytes, missing_bytes);
        for (what, id, size) in steps {
            match what {
                0 => { bench.remove(id); }
                1 | 2 => { bench.put(id, None); }
                3..=5 => { bench.get(id); }
                // Few bytes are frequent, up to 4 kB rare.
                _ => { bench.put(id, Some(1 << size)); }
            }
        }
    }
}

/// Most entries that one step may evict, of both kinds; and most that an insertion may evict for
/// the room of one record. A promotion may evict several small hot entries.
const EVICTED_MAX: [usize; 2] = [2 * resize::EVICTED_PER_STEP_MAX + 60, 60];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Work goes on between the steps; the entries never exceed the capacity in force, and it
    /// becomes the one that was set, whatever the work was.
    #[test]
    fn another_capacity_is_reached_in_bounded_steps(
        before in (0_u64..200_000, 0_u64..20_000),
        after in (0_u64..200_000, 0_u64..20_000),
        steps in proptest::collection::vec((0_u8..12, 0_i64..1_000, 0_u32..10), 1..80),
    ) {
        let mut bench = Bench::new(before.0, before.1);
        (0..1_000).for_each(|id| { bench.insert(id, (id % 8 > 0).then_some(40)); });
        for (what, id, size) in steps {
            let (evicted, capacity) = (bench.evicted, bench.capacity_bytes());
            match what {
                0 => { bench.shard.remove(bench.hash(id), key_of(FIRST, id).as_bytes()); }
                1 | 2 => { bench.insert(id, None); }
                3..=5 => { bench.get(id); }
                6..=8 => { bench.insert(id, Some(1 << size)); }
                _ => { bench.step_to(after.0, after.1); }
            }
            bench.check_entries();
            let evicted_max = EVICTED_MAX[usize::from(what < 9)];
            prop_assert!(bench.evicted - evicted <= evicted_max, "{}", bench.evicted - evicted);
            if after.0 <= before.0 && after.1 <= before.1 {
                prop_assert!(bench.capacity_bytes() <= capacity, "it only falls");
            }
        }
        let mut steps_left = 100;
        while !bench.step_to(after.0, after.1) {
            steps_left -= 1;
            prop_assert!(steps_left > 0, "it is never reached");
        }
        prop_assert_eq!(bench.capacity_bytes(), after.0 + after.1);
        bench.check();
    }
}

/// A case that random work found: an empty region has no mean weight.
#[test]
fn an_empty_region_remembers_no_more_keys_than_fit() {
    let mut bench = Bench::new(0, 464);
    (0..1_000).for_each(|id| {
        bench.insert(id, None);
    });
    while !bench.step_to(0, 4) {}
    bench.check();
}

#[test]
fn one_large_record_after_many_small_ones_leaves_the_capacity() {
    let mut bench = Bench::new(100_000, 0);
    for id in 0..2_000 {
        bench.put(id, Some(2));
        bench.get(id);
    }
    let evicted = bench.evicted;
    assert_eq!(bench.put(5_000, Some(80_000)), Inserted::Stored);
    assert!(bench.evicted - evicted > 100);
    assert_eq!(bench.put(5_001, Some(90_000)), Inserted::TooLarge);
}

#[test]
fn used_entries_survive_a_stream_of_new_ones() {
    let mut bench = Bench::new(20_000, 0);
    for round in 0..40 {
        for id in 0..20 {
            if !bench.get(id) {
                bench.put(id, Some(100));
            }
        }
        (0..30).for_each(|id| {
            bench.put(1_000 + 30 * round + id, Some(100));
        });
    }
    assert_eq!((0..20).filter(|id| bench.get(*id)).count(), 20);
}

/// Small and large records of equal popularity: the small ones stay.
#[test]
fn of_unused_entries_the_large_ones_are_evicted_first() {
    let mut bench = Bench::new(60_000, 0);
    for id in 0..400 {
        bench.put(id, Some(if id % 2 == 0 { 100 } else { 2_000 }));
    }
    let kept = |rest| (0..400).filter(|id| id % 2 == rest && bench.get(*id)).count();
    // The hot ring keeps what filled it; without regard to size as many of both would stay.
    assert!(2 * kept(0) > 3 * kept(1), "{} small and {} large", kept(0), kept(1));
}

#[test]
fn a_record_that_grows_in_place_evicts_others_or_itself() {
    let mut bench = Bench::new(20_000, 0);
    (0..100).for_each(|id| {
        bench.put(id, Some(50));
    });
    for bytes in [1_000, 10, 16_000, 5] {
        bench.put(99, Some(bytes));
        (0..5).for_each(|id| {
            bench.put(200 + id, Some(50));
        });
    }
}

#[test]
fn evicted_keys_that_return_become_hot_and_removed_keys_are_forgotten() {
    let mut bench = Bench::new(20_000, 0);
    (0..300).for_each(|id| {
        bench.put(id, Some(100));
    });
    let hashes: Vec<u32> =
        (0..300).map(|id| bench.hasher.hash_one(key_of(FIRST, id)) as u32).collect();
    let ghosts = &mut bench.shard.found.ghosts;
    assert!(ghosts.len() > 0);
    let newest = (0..300).rev().find(|id| ghosts.take(hashes[*id as usize])).unwrap();
    ghosts.push(hashes[newest as usize], usize::MAX);
    bench.put(newest, Some(100));
    let key = key_of(FIRST, newest);
    let at = bench.shard.slab.find(bench.hasher.hash_one(&key), key.as_bytes()).unwrap();
    assert!(bench.shard.slab.is_hot(at));
    assert!(!bench.shard.found.ghosts.take(hashes[newest as usize]), "it is an entry again");
    assert!(bench.remove(newest) && !bench.remove(newest));
}

#[test]
fn every_key_of_one_hash_is_found_in_a_batch() {
    let mut bench = Bench::new(1 << 20, 1 << 20);
    const HASH: u64 = 77;
    for id in [1, 2] {
        let (mut replaced, mut evicted) = (None, Vec::new());
        let record = record(&key_of(FIRST, id), Some(id as usize));
        bench.shard.insert(HASH, record, &mut replaced, &mut evicted);
    }
    let keys: Vec<Key> = [2, 3, 1].map(|id| key_of(FIRST, id)).into();
    let wanted: Vec<(u64, &[u8])> = keys.iter().map(|key| (HASH, key.as_bytes())).collect();
    let mut found = [const { None }; 3];
    bench.shard.get_some(&[0, 1, 2], &wanted, false, &mut found);
    let bodies = found.map(|record: Option<Record>| record.map(|record| record.body().len()));
    assert_eq!(bodies, [Some(2), None, Some(1)]);
}
