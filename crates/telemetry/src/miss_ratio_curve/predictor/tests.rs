//! The predictor step by step, with time as an argument.

use hotrow_cache::config::{CollectionPolicy, Config, InvalidationMode};
use hotrow_cache::miniature::sampling::{Event, Sample, Weighed};
use hotrow_cache::{Answers, Fetched, Lookup, Presence, ReadMode};
use hotrow_types::key::{Key, KeyPart, KeySchema, KeyType};
use hotrow_types::version::Version;

use super::*;
use crate::miss_ratio_curve::{RING_LOOKUPS_MAX, RINGS_LOOKUPS_MAX, WorkerSamples};
use crate::{access_log, history};

const FIRST: CollectionId = CollectionId(0);
const START: Nanos = Nanos(1_000_000_000);
const MIB: u64 = 1 << 20;
/// With key and bookkeeping an entry weighs 1,016 bytes.
const BODY: usize = 900;

fn config(capacity_bytes: u64) -> Config {
    Config {
        negative_share: 0.05,
        entry_bytes_estimate: 900,
        invalidation_mode: InvalidationMode::TtlOnly,
        isolate_scans: false,
        query_keys: 1,
        query_bytes: 1 << 20,
        waiting_keys: 1,
        ..Config::small(capacity_bytes)
    }
}

/// Most bytes of all that watches a running service.
const WATCHING_BYTES_MAX: usize = 16 << 20;

/// Workers, and the predictor that they feed.
struct Rig {
    cache: Arc<Cache<ReadFailure>>,
    curve: Arc<MissRatioCurve>,
    lookups: Arc<WorkerLookups>,
    worker: WorkerSamples,
    others: Vec<WorkerSamples>,
    predictor: Predictor,
    schema: KeySchema,
    now: Nanos,
}

impl Rig {
    fn new(capacity_bytes: u64) -> Self {
        Self::with_workers(capacity_bytes, 2)
    }

    fn with_workers(capacity_bytes: u64, workers: usize) -> Self {
        let day = Duration::from_hours(24);
        let policy =
            CollectionPolicy { ttl: day, negative_ttl: day, has_tenants: false, has_views: false };
        let cache = Cache::new(config(capacity_bytes), vec![policy]);
        let curve = Arc::new(MissRatioCurve::new(workers, true, true));
        let lookups = Arc::new(WorkerLookups::new(1));
        let predictor = {
            let cache = cache.clone();
            Predictor::new(curve.clone(), Box::new(move || cache.clone()), vec![lookups.clone()])
        };
        let schema = KeySchema::new(FIRST, vec![KeyType::Integer]);
        let worker = curve.worker();
        let others = (1..workers).map(|_| curve.worker()).collect();
        Self { cache, worker, others, curve, lookups, predictor, schema, now: START }
    }

    fn key(&self, id: u64) -> Key {
        self.schema.key(&[KeyPart::Integer(id.cast_signed())]).expect("an integer")
    }

    /// Requests a record as the handler does.
    fn request(&self, id: u64) {
        let key = self.key(id);
        let hash = self.cache.hash(&key);
        if let Some(sample) = self.cache.sample_lookup(&key, hash, ReadMode::Normal, self.now) {
            self.worker.push(&sample);
        }
        match self.cache.lookup(&key, ReadMode::Normal, self.now) {
            Lookup::Hit(..) => self.lookups.count(0, LookupKind::Hit),
            Lookup::Miss(_waiter) => {
                self.lookups.count(0, LookupKind::Miss);
                let mut loader = self.cache.batch_loader(FIRST).expect("a key waits");
                while loader.next_batch(self.now).is_some() {
                    let rows = vec![Fetched::Found(vec![b'x'; BODY])];
                    let answers = Answers { version: Version::Unknown, position: None, rows };
                    loader.complete(Ok(answers), self.now);
                }
            }
            other => unreachable!("{other:?}"),
        }
    }

    /// Steps a second later. Returns what is published.
    fn step(&mut self) -> Report {
        self.now = self.now.after(PUBLISH_EVERY);
        self.predictor.step(self.now);
        self.curve.published().report
    }

    fn rate(&self) -> f64 {
        self.cache.samples().rate().share()
    }
}

#[test]
fn a_small_or_empty_cache_has_no_curve_and_samples_nothing() {
    let mut rig = Rig::new(16 * MIB);
    let few = |entries| Report::Unknown(Unknown::FewEntries { entries, entries_min: 128 });
    assert_eq!(rig.step(), few(0));
    (0..100).for_each(|id| rig.request(id));
    assert_eq!(rig.step(), few(100));
    (0..1_000).for_each(|id| rig.request(id));
    let report = rig.step();
    let too_small = |report: &Report| {
        matches!(report, Report::Unknown(Unknown::TooSmall { entries: 16_513, .. }))
    };
    assert!(too_small(&report), "{report:?}");
    let Report::Unknown(reason) = report else { return };
    assert!(reason.to_string().starts_with("too small to predict: the capacity holds about 16513"));
    assert_eq!(rig.rate(), 0.0);
    assert!(rig.curve.rings.lock().list.iter().all(|ring| ring.memory_bytes() == 0));
}

#[test]
fn all_that_watches_stays_within_its_bound() {
    for (workers, has_access_log) in [(128, false), (2, true)] {
        let mut rig = Rig::with_workers(64 * MIB, workers);
        (0..1_000).for_each(|id| rig.request(id));
        rig.step();
        let queues = rig.predictor.queues_bytes();
        let ring = (RINGS_LOOKUPS_MAX / workers).min(RING_LOOKUPS_MAX);
        let (rate, now) = (rig.cache.samples().rate(), rig.now);
        let mut hashes = (1_u64..).map(|n| n.wrapping_mul(0xd6e8_feb8_6659_fd93));
        // All rings are full, and the log is: more is dropped, and no memory is added.
        for worker in std::iter::once(&rig.worker).chain(&rig.others) {
            for key_hash in hashes.by_ref().filter(|hash| rate.takes(*hash)).take(ring + 1) {
                let event = Event::Lookup { is_scan: false, held: None };
                worker.push(&Sample { at: now, key_hash, collection: FIRST, event });
            }
        }
        (0..=LOG_SAMPLES_MAX)
            .for_each(|_| rig.cache.note_gap(hotrow_types::source::SourceId::FIRST, now));
        rig.step();
        assert_eq!(rig.curve.published().dropped_total, workers as u64 + 1);
        assert_eq!(rig.predictor.queues_bytes(), queues);
        let history = history::tests::full(workers).memory_bytes();
        let log = if has_access_log { access_log::queues_bytes_max(workers) } else { 0 };
        let traces = crate::traces::MEMORY_BYTES_MAX;
        let all = MEMORY_BYTES_MAX as usize + queues + history + log + traces;
        println!(
            "{workers} workers: {all} B: queues {queues}, history {history}, log {log}, traces \
             {traces}"
        );
        assert!(all <= WATCHING_BYTES_MAX, "{all}");
    }
}

#[test]
fn the_curve_follows_from_requests() {
    let mut rig = Rig::new(64 * MIB);
    (0..1_000).for_each(|id| rig.request(id));
    assert_eq!(rig.step(), Report::Unknown(Unknown::FewLookups { sampled: 0 }));
    // A worker that starts while keys are sampled has room at once.
    assert!(rig.worker.admits() && rig.curve.worker().admits());
    let rate = rig.rate();
    assert!((0.055..0.065).contains(&rate), "{rate}");
    // The smallest copy has room for as many.
    for _ in 0..8 {
        (0..12_000).for_each(|id| rig.request(id));
        rig.step();
    }
    let Report::Known(curve) = rig.step() else { panic!("{:?}", rig.step()) };
    let expected = curve.measured;
    assert!((0.87..0.89).contains(&expected), "{expected}");
    let predicted = curve.current().hit_ratio.value;
    assert!((predicted - expected).abs() < 0.02, "{predicted} instead of {expected}");
    assert!(curve.points.iter().all(|point| (point.hit_ratio.value - predicted).abs() < 0.03));
    let published = rig.curve.published();
    assert!((published.replayed_total as f64 / (96_000.0 * rate) - 1.1).abs() < 0.15);
    assert_eq!(published.dropped_total, 0);
    assert_eq!(curve.collections.len(), 1);
}

#[test]
fn another_capacity_begins_the_observation_anew() {
    let mut rig = Rig::new(64 * MIB);
    (0..1_000).for_each(|id| rig.request(id));
    rig.step();
    (0..70_000).for_each(|id| rig.request(id % 20_000));
    let rate = rig.rate();
    let Report::Known(curve) = rig.step() else { panic!("{:?}", rig.step()) };
    assert_eq!(curve.current().capacity_bytes, rig.cache.capacity_bytes());
    while rig.cache.step_to_capacity(128 * MIB) {}
    assert!(matches!(rig.step(), Report::Unknown(Unknown::FewLookups { sampled: 0 })));
    assert!((rig.rate() / rate - 0.5).abs() < 0.01, "{} after {rate}", rig.rate());
    while rig.cache.step_to_capacity(8 * MIB) {}
    assert!(matches!(rig.step(), Report::Unknown(Unknown::TooSmall { .. })));
    assert_eq!(rig.rate(), 0.0);
}

#[test]
fn a_full_ring_drops_lookups_and_counts_them() {
    let mut rig = Rig::new(64 * MIB);
    (0..1_000).for_each(|id| rig.request(id));
    rig.step();
    // 8,192 fit.
    (0..200_000).for_each(|at| rig.request(at % 40_000));
    let Report::Known(curve) = rig.step() else { panic!("{:?}", rig.step()) };
    let dropped = rig.curve.published().dropped_total;
    assert!(dropped > 2_000 && curve.dropped >= dropped, "{dropped}");
    let lost = dropped as f64 / (dropped + curve.sampled_lookups) as f64;
    let point = curve.current().hit_ratio;
    assert!(point.high - point.value > 0.5 * lost || point.high == 1.0, "{point:?}");
    assert!(point.value - point.low > 0.5 * lost, "{point:?} {lost}");
}

#[test]
fn copies_that_need_too_much_memory_begin_anew_at_half_the_rate() {
    // A million entries of 1 kB would fit; what is requested is far smaller.
    let mut rig = Rig::new(1_100 * MIB);
    (0..1_000).for_each(|id| rig.request(id));
    rig.step();
    let rate = rig.rate();
    let tiny = Weighed { weight_bytes: 120, presence: Presence::Found };
    let takes = |hash: &u64| SamplingRate::from_share(rate).takes(*hash);
    let mut hashes = (1_u64..).map(|n| n.wrapping_mul(0xd6e8_feb8_6659_fd93)).filter(takes);
    let mut highest = 0;
    for round in 0.. {
        assert!(round < 20, "the bound is never met");
        for key_hash in hashes.by_ref().take(8_000) {
            let event = Event::Lookup { is_scan: false, held: Some(tiny) };
            rig.worker.push(&Sample { at: rig.now, key_hash, collection: FIRST, event });
        }
        rig.step();
        highest = highest.max(rig.curve.published().memory_bytes);
        if rig.rate() < rate {
            break;
        }
    }
    assert!((rig.rate() / rate - 0.5).abs() < 0.01);
    assert!((4 * MIB..10 * MIB).contains(&highest), "{highest}");
    assert!(rig.curve.published().memory_bytes < MIB);
    rig.step();
    assert!((rig.rate() / rate - 0.5).abs() < 0.01, "the lower rate stays");
}

#[test]
fn the_ring_of_a_worker_that_ended_is_forgotten() {
    let mut rig = Rig::with_workers(64 * MIB, 1);
    for _ in 0..10 {
        drop(rig.curve.worker());
    }
    assert_eq!(rig.curve.rings.lock().list.len(), 11);
    rig.step();
    assert_eq!(rig.curve.rings.lock().list.len(), 1);
}

#[test]
fn a_worker_that_replaces_the_only_one_has_room_at_once() {
    let mut rig = Rig::with_workers(64 * MIB, 1);
    (0..1_000).for_each(|id| rig.request(id));
    rig.step();
    assert!(rig.worker.admits(), "keys are sampled");
    // It ended, and its ring is forgotten before the next one starts.
    rig.worker = WorkerSamples(Arc::new(crate::miss_ratio_curve::ring::SampleRing::new(0)));
    rig.step();
    assert_eq!(rig.curve.rings.lock().list.len(), 0);
    assert!(rig.curve.worker().admits());
}
