//! The order of events is forced: nothing runs but the steps of the test.

use std::time::Duration;

use hotrow_cache::config::{CollectionPolicy, Config};
use hotrow_cache::{Answers, Fetched, Lookup, ReadMode};
use hotrow_measure::clock::Nanos;
use hotrow_types::key::{CollectionId, Key, KeySchema, KeyType};
use hotrow_types::source::SourceId;
use hotrow_types::version::{ChangeId, Position, Version};

use super::*;

const GZIP: ContentCoding = ContentCoding::Gzip;
const ID: CollectionId = CollectionId(0);

const DAY: Duration = Duration::from_secs(86_400);

fn config() -> Config {
    Config { isolate_scans: false, ..Config::small(1 << 20) }
}

struct Bench {
    cache: Arc<Cache<ReadFailure>>,
    schema: KeySchema,
    compressor: Compressor,
    now: Nanos,
}

impl Bench {
    fn new() -> Self {
        let policy =
            CollectionPolicy { ttl: DAY, negative_ttl: DAY, has_tenants: false, has_views: false };
        let cache = Cache::new(config(), vec![policy]);
        let schema = KeySchema::new(ID, vec![KeyType::Integer]);
        let now = Nanos::now();
        cache.advance(SourceId::FIRST, now, None);
        Self { cache, schema, compressor: Compressor::default(), now }
    }

    fn key(&self, id: u32) -> Key {
        self.schema.parse_url(&id.to_string()).unwrap()
    }

    /// Reads a record with this body into the cache.
    fn read(&self, id: u32, body: &[u8]) -> Record {
        let cache = &self.cache;
        let key = self.key(id);
        let at = ChangeId::Log(Position { incarnation: 1, at: 1 });
        let _ = cache.invalidate(&key, at);
        let lookup = cache.lookup(&key, ReadMode::Normal, self.now);
        assert!(matches!(lookup, Lookup::Miss(_)), "{lookup:?}");
        let mut loader = cache.batch_loader(ID).unwrap();
        assert_eq!(loader.next_batch(self.now), Some(vec![key]));
        let rows = vec![Fetched::Found(body.to_vec())];
        let version = Version::Log(Position { incarnation: 1, at: 1 });
        loader.complete(Ok(Answers { version, position: None, rows }), self.now);
        assert_eq!(loader.next_batch(self.now), None);
        self.entry(id).expect("stored")
    }

    fn entry(&self, id: u32) -> Option<Record> {
        self.cache.peek(&self.key(id), self.now).map(|(record, _)| record)
    }

    fn step(&self) -> bool {
        self.compressor.step(&self.cache)
    }

    fn count(&self, outcome: Compressed) -> u64 {
        self.compressor.counts()[outcome as usize].1
    }
}

fn text(word: &str) -> Vec<u8> {
    format!("\"{}\"", word.repeat(500)).into_bytes()
}

#[test]
fn a_variant_is_made_by_a_step() {
    let bench = Bench::new();
    let record = bench.read(1, &text("one "));
    bench.compressor.offer(&record, GZIP);
    assert_eq!(bench.compressor.queued_bytes(), record.body().len() as u64);
    assert!(bench.step() && !bench.step());
    let entry = bench.entry(1).unwrap();
    assert_eq!(entry.body(), record.body());
    assert!(entry.variant(GZIP).is_some_and(|variant| variant.len() < 200));
    assert_eq!(bench.compressor.queued_bytes(), 0);
    assert_eq!(bench.count(Compressed::Stored), 1);
}

#[test]
fn a_record_replaced_while_its_variant_waits_keeps_its_own_body() {
    let bench = Bench::new();
    let old = bench.read(1, &text("old "));
    bench.compressor.offer(&old, GZIP);
    let new = bench.read(1, &text("new "));
    assert!(bench.step());
    let entry = bench.entry(1).unwrap();
    assert_eq!((entry.body(), entry.variant(GZIP)), (new.body(), None));
    assert_eq!(bench.count(Compressed::Superseded), 1);
    // The new one is not affected: its own second request counts.
    assert!(!entry.ask_for_variant(GZIP));
    assert!(entry.ask_for_variant(GZIP));
}

#[test]
fn an_invalidated_record_does_not_come_back() {
    let bench = Bench::new();
    let old = bench.read(1, &text("old "));
    bench.compressor.offer(&old, GZIP);
    let _ = bench.cache.purge(&bench.key(1));
    assert!(bench.step());
    assert!(bench.entry(1).is_none());
    assert_eq!(bench.count(Compressed::Superseded), 1);
}

#[test]
fn what_does_not_fit_the_queue_is_dropped_and_may_be_asked_for_again() {
    let bench = Bench::new();
    let record = bench.read(1, &vec![b'x'; 300 << 10]);
    let fits = QUEUE_BYTES_MAX / record.body().len() as u64;
    for _ in 0..fits {
        bench.compressor.offer(&record, GZIP);
    }
    assert!(!record.ask_for_variant(GZIP));
    assert!(record.ask_for_variant(GZIP));
    bench.compressor.offer(&record, GZIP);
    assert_eq!(bench.count(Compressed::Dropped), 1);
    assert!(bench.compressor.queued_bytes() <= QUEUE_BYTES_MAX);
    assert!(record.ask_for_variant(GZIP), "the next request asks again");
    assert!(bench.step());
    bench.compressor.offer(&record, GZIP);
    assert_eq!(bench.count(Compressed::Dropped), 1, "there is room again");
    while bench.step() {}
    assert_eq!(bench.compressor.queued_bytes(), 0);
    assert_eq!(bench.count(Compressed::Stored), 1);
    assert_eq!(bench.count(Compressed::Superseded), fits, "the entry has it already");
}

#[test]
fn a_variant_that_saves_nothing_is_not_asked_for_again() {
    let bench = Bench::new();
    let record = bench.read(1, b"\"q8Zx3\"");
    assert!(!record.ask_for_variant(GZIP));
    assert!(record.ask_for_variant(GZIP));
    bench.compressor.offer(&record, GZIP);
    assert!(bench.step());
    assert_eq!(bench.count(Compressed::NotSmaller), 1);
    assert!(!record.ask_for_variant(GZIP) && bench.entry(1).unwrap().variant(GZIP).is_none());
}
