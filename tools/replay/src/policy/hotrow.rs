//! The product's own cache, through its whole path: lookup, lease, fill. Every read answers at
//! once.

use std::sync::Arc;
use std::time::Duration;

use hotrow_cache::config::{CollectionPolicy, Config};
use hotrow_cache::miniature::Settings;
use hotrow_cache::miniature::sampling::{Sample, SamplingRate};
use hotrow_cache::{Answers, Cache, ENTRY_OVERHEAD_BYTES, Fetched, Lookup, ReadMode};
use hotrow_measure::clock::Nanos;
use hotrow_types::key::{CollectionId, Key, KeyPart, KeySchema, KeyType};
use hotrow_types::source::SourceId;
use hotrow_types::version::Version;

use super::Policy;

const COLLECTION: CollectionId = CollectionId(0);
/// An encoded integer key: collection, tag, eight bytes.
const KEY_BYTES: u64 = 11;
const BODY: &[u8] = b"{}";
const NOW: Nanos = Nanos(1_000_000_000);

/// `hotrow_cache` with a capacity in bytes that holds the given number of these entries.
pub struct Hotrow {
    cache: Arc<Cache<()>>,
    schema: KeySchema,
}

impl Hotrow {
    /// Creates a cache for `capacity` entries.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let body_bytes = BODY.len() as u64;
        Self::with_bytes(capacity as u64 * entry_bytes(body_bytes), KEY_BYTES + body_bytes)
    }

    /// Creates a cache of `capacity_bytes`, for entries estimated at `estimate_bytes` of key and
    /// body.
    #[must_use]
    pub fn with_bytes(capacity_bytes: u64, estimate_bytes: u64) -> Self {
        Self::with_seed(capacity_bytes, estimate_bytes, 1)
    }

    /// The same, with the seed of its hash functions.
    #[must_use]
    pub fn with_seed(capacity_bytes: u64, estimate_bytes: u64, seed: u64) -> Self {
        let config = Config {
            negative_share: 0.0,
            entry_bytes_estimate: estimate_bytes,
            query_keys: 1,
            query_bytes: 1 << 20,
            waiting_keys: 1,
            seed,
            ..Config::small(capacity_bytes)
        };
        let day = Duration::from_secs(86_400);
        let cache = Cache::new(
            config,
            vec![CollectionPolicy {
                ttl: day,
                negative_ttl: day,
                has_tenants: false,
                has_views: false,
            }],
        );
        cache.advance(SourceId::FIRST, NOW, None);
        Self { cache, schema: KeySchema::new(COLLECTION, vec![KeyType::Integer]) }
    }

    /// Looks up `key` and inserts a body of `body_bytes` after a miss. Returns true for a hit.
    pub fn get_or_insert_sized(&self, key: u32, body_bytes: usize) -> bool {
        let Ok(key): Result<Key, _> = self.schema.key(&[KeyPart::Integer(i64::from(key))]) else {
            return false;
        };
        match self.cache.lookup(&key, ReadMode::Normal, NOW) {
            Lookup::Hit(..) => true,
            Lookup::Miss(waiter) => {
                self.fill(body_bytes);
                drop(waiter);
                false
            }
            _ => false,
        }
    }

    /// Returns the hash of a key, by which keys are sampled.
    pub fn key_hash(&self, key: u32) -> Option<u64> {
        let key = self.schema.key(&[KeyPart::Integer(i64::from(key))]).ok()?;
        Some(self.cache.hash(&key))
    }

    /// Returns the event of a lookup of `key` at a sampling rate, if the key is sampled.
    pub fn sample(&self, key: u32, rate: SamplingRate) -> Option<Sample> {
        let key = self.schema.key(&[KeyPart::Integer(i64::from(key))]).ok()?;
        self.cache.samples().set_rate(rate);
        self.cache.sample_lookup(&key, self.cache.hash(&key), ReadMode::Normal, NOW)
    }

    /// Returns the settings of a simulation of this cache.
    pub fn miniature_settings(&self, rate: SamplingRate) -> Settings {
        self.cache.miniature_settings(rate)
    }

    fn fill(&self, body_bytes: usize) {
        let Some(mut loader) = self.cache.batch_loader(COLLECTION) else { return };
        while let Some(keys) = loader.next_batch(NOW) {
            let rows = keys.iter().map(|_| Fetched::Found(vec![b'x'; body_bytes])).collect();
            loader.complete(Ok(Answers { version: Version::Unknown, position: None, rows }), NOW);
        }
    }
}

/// Returns the weight of an entry with a body of `body_bytes`.
pub fn entry_bytes(body_bytes: u64) -> u64 {
    KEY_BYTES + body_bytes + ENTRY_OVERHEAD_BYTES
}

impl Policy for Hotrow {
    fn get_or_insert(&mut self, key: u32) -> bool {
        self.get_or_insert_sized(key, BODY.len())
    }

    fn entries(&self) -> usize {
        usize::try_from(self.cache.stats(COLLECTION).entries).unwrap_or(usize::MAX)
    }
}
