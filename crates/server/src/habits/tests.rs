use std::sync::Arc;
use std::time::Duration;

use hotrow_cache::config::{CollectionConfig, Config, Upkeep, WhenStale, queue};
use hotrow_cache::key::{CollectionId, KeyPart, KeySchema, KeyType};
use hotrow_cache::version::{Position, Version};
use hotrow_cache::{Answers, Cache, ENTRY_OVERHEAD_BYTES, Fetched, Lookup};
use hotrow_measure::clock::Nanos;

use super::*;

fn round(habits: &Rc<Habits>, usual: &Usual, hits_percent: u32) -> Wish {
    while_current(habits, || {
        for i in 0..ROUND {
            note(if i * 100 < hits_percent * ROUND { LookupKind::Hit } else { LookupKind::Miss }, usual);
        }
        wish()
    })
}

#[test]
fn who_finds_far_less_than_usual_roams_until_he_finds_it_again() {
    let (usual, good, other) = (Usual::default(), Rc::new(Habits::default()), Rc::new(Habits::default()));
    assert_eq!(round(&other, &usual, 0), Wish::Any, "at the start nobody finds anything");
    (0..100).for_each(|_| assert_eq!(round(&good, &usual, 80), Wish::Any));
    assert_eq!(round(&other, &usual, 60), Wish::Any);
    assert_eq!(round(&other, &usual, 25), Wish::Passing);
    assert_eq!(round(&good, &usual, 80), Wish::Any);
    assert_eq!(round(&other, &usual, 70), Wish::Any);
    assert_eq!(wish(), Wish::Any, "nobody's requests");
}

#[test]
fn who_roams_does_not_become_what_is_usual_at_many_times_the_others_rate() {
    for rate in [1, 2, 8] {
        let (usual, good, scan) = (Usual::default(), Rc::new(Habits::default()), Rc::new(Habits::default()));
        (0..100).for_each(|_| _ = round(&good, &usual, 80));
        for _ in 0..2000 {
            assert_eq!(round(&good, &usual, 80), Wish::Any);
            (0..rate).for_each(|_| assert_eq!(round(&scan, &usual, 25), Wish::Passing, "{rate}, {}", usual.get()));
        }
    }
}

#[test]
fn when_all_find_less_they_stop_roaming() {
    let (usual, all) = (Usual::default(), Rc::new(Habits::default()));
    (0..100).for_each(|_| _ = round(&all, &usual, 80));
    let rounds = (0..1000).take_while(|_| round(&all, &usual, 25) == Wish::Passing).count();
    // 0.25 + 0.55 · (1 - 1/256)^n comes down to 0.25 / 0.6 after 305 rounds.
    assert!((290..320).contains(&rounds), "{rounds}");
    (0..100).for_each(|_| assert_eq!(round(&all, &usual, 25), Wish::Any));
}

#[test]
fn refusals_and_reads_at_will_do_not_count() {
    let (usual, habits) = (Usual::default(), Rc::new(Habits::default()));
    (0..20).for_each(|_| _ = round(&habits, &usual, 90));
    while_current(&habits, || {
        for _ in 0..10 * ROUND {
            note(LookupKind::Bypass, &usual);
            note(LookupKind::Refused, &usual);
        }
        assert_eq!(wish(), Wish::Any);
    });
}

#[test]
fn a_panic_leaves_nobody_current() {
    let habits = Rc::new(Habits { roams: Cell::new(true), ..Habits::default() });
    let work = std::panic::AssertUnwindSafe(|| while_current(&habits, || panic!("as the test asks")));
    assert!(std::panic::catch_unwind(work).is_err());
    assert_eq!(wish(), Wish::Any);
}

const FIRST: CollectionId = CollectionId(0);
const NOW: Nanos = Nanos(1_000_000_000);
const ITEMS: u64 = 8_000;
/// A quarter of the items.
const FITTING: u64 = ITEMS / 4;
const BODY: &[u8] = &[b'x'; 200];
/// Bytes of a key of one integer.
const KEY_BYTES: u64 = 11;
/// Requests before anything is counted.
const WARM_UP: u64 = 10 * ITEMS;
/// Requests that are counted: the share of hits is known within 0.25 points (standard deviation).
const COUNTED: u64 = 25_600;

/// Clients with a connection each, in turn, 80 % of whose requests go to 20 % of the items, and the cache that they use.
struct World {
    cache: Arc<Cache<&'static str>>,
    schema: KeySchema,
    usual: Usual,
    others: Vec<Rc<Habits>>,
    random: u64,
    /// What scatters the ranks over the ids; coprime to the number of items.
    scatter: u64,
}

impl World {
    fn new() -> Self {
        let entry_bytes = ENTRY_OVERHEAD_BYTES + KEY_BYTES + BODY.len() as u64;
        let config = Config {
            enabled: true,
            capacity_bytes: FITTING * entry_bytes * 100 / 95,
            negative_share: 0.05,
            entry_bytes_estimate: BODY.len() as u64,
            upkeep: Upkeep::TtlOnly,
            max_staleness: Duration::from_secs(1),
            when_stale: WhenStale::Bypass,
            ttl_jitter: 0.0,
            refresh_hot: false,
            isolate_scans: true,
            error_ttl: Duration::ZERO,
            stale_while_revalidate: Duration::ZERO,
            stale_if_error: Duration::ZERO,
            reads_in_flight: 1,
            query_keys: 1,
            query_bytes: 1000,
            waiting_keys: 10,
            queue: queue::Config {
                adaptive: false,
                target: Duration::ZERO,
                interval: Duration::ZERO,
                query_target: Duration::ZERO,
            },
            seed: 7,
        };
        let life = Duration::from_secs(3600);
        let mut world = Self {
            cache: Cache::new(config, vec![CollectionConfig { ttl: life, negative_ttl: life }]),
            schema: KeySchema::new(FIRST, vec![KeyType::Integer]),
            usual: Usual::default(),
            others: (0..8).map(|_| Rc::default()).collect(),
            random: 1,
            scatter: 7_919,
        };
        world.others_hit_percent(WARM_UP, |_, _| {});
        world
    }

    fn below(&mut self, n: u64) -> u64 {
        // Knuth's linear congruential generator for MMIX; its upper bits are good.
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % n
    }

    /// A request of the client: `true` is a hit.
    fn get(&self, client: &Rc<Habits>, id: u64) -> bool {
        let key = self.schema.key(&[KeyPart::Integer(id as i64)]).unwrap();
        while_current(client, || {
            let kind = match self.cache.lookup(&key, wish(), NOW) {
                Lookup::Hit(..) => LookupKind::Hit,
                Lookup::Fill(_waiter) => {
                    let mut turn = self.cache.turn(FIRST).unwrap();
                    assert_eq!(turn.next_query(NOW), Some(vec![key.clone()]));
                    let version = Version::Log(Position { incarnation: 1, at: 1 });
                    let rows = vec![Fetched::Found(BODY.to_vec())];
                    turn.complete(Ok(Answers { version, position: None, rows }), NOW);
                    assert_eq!(turn.next_query(NOW), None);
                    LookupKind::Miss
                }
                other => panic!("{other:?}"),
            };
            note(kind, &self.usual);
            kind == LookupKind::Hit
        })
    }

    /// The hits in percent of so many requests of the others, each of them followed by what `beside` does.
    fn others_hit_percent(&mut self, requests: u64, mut beside: impl FnMut(&Self, u64)) -> f64 {
        let (hot, mut hits) = (ITEMS / 5, 0);
        for n in 0..requests {
            let rank = if self.below(5) < 4 { self.below(hot) } else { hot + self.below(ITEMS - hot) };
            let client = &self.others[n as usize % self.others.len()];
            hits += u64::from(self.get(client, rank * self.scatter % ITEMS));
            beside(self, n);
        }
        100.0 * hits as f64 / requests as f64
    }

    fn roaming(&self) -> usize {
        self.others.iter().filter(|client| client.roams.get()).count()
    }
}

#[test]
fn when_everybodys_requests_change_the_hit_ratio_comes_back() {
    let mut world = World::new();
    let before = world.others_hit_percent(COUNTED, |_, _| {});
    assert_eq!(world.roaming(), 0);
    world.scatter = 5_003;
    let mut roamed = 0;
    world.others_hit_percent(600 * u64::from(ROUND), |world, _| roamed = roamed.max(world.roaming()));
    assert!(roamed > 4, "{roamed} of 8 have found far less than usual");
    assert_eq!(world.roaming(), 0);
    let after = world.others_hit_percent(COUNTED, |_, _| {});
    println!("{before:.2} %, and after everybody's requests have changed {after:.2} %");
    assert!(after > before - 1.0, "{before:.2} % to {after:.2} %");
}

#[test]
fn a_scan_at_twice_the_others_rate_is_told_apart() {
    let mut world = World::new();
    let before = world.others_hit_percent(COUNTED, |_, _| {});
    let (scan, judged) = (Rc::new(Habits::default()), 2 * u64::from(ROUND));
    let beside = world.others_hit_percent(2 * COUNTED, |world, n| {
        (2 * n..2 * n + 2).for_each(|id| _ = world.get(&scan, id % ITEMS));
        assert!(n < judged || scan.roams.get(), "after {n} requests {} is usual", world.usual.get());
    });
    assert_eq!(world.roaming(), 0);
    println!("{before:.2} %, beside a scan at twice the rate {beside:.2} %");
    // A point, and three standard deviations of what is counted.
    assert!(beside > before - 1.0 - 0.9, "{before:.2} % to {beside:.2} %");
}
