//! Settings of the cache. Every bound of this crate is listed here.

use std::time::Duration;

/// Settings of the queue of keys that wait for a query.
pub use hotrow_admission::concurrency::queue;

/// Policy for entries while the feed is further behind than [`Config::max_staleness`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenStale {
    /// Read the database; the answer may be shared for `max_staleness` from the start of its read.
    Bypass,
    /// Serve the entry, marked as stale.
    Stale,
    /// Refuse with 503.
    Refuse,
}

/// Mechanism that keeps entries up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidationMode {
    /// A change feed: the consistency contract holds.
    Feed,
    /// The TTL alone: an answer may be that old, and carries no position.
    TtlOnly,
}

/// Settings of the whole cache. Those that are also in [`SourceSettings`] are of the only source;
/// several sources have their own ([`Cache::of_sources`](crate::Cache::of_sources)).
#[derive(Clone, Debug)]
pub struct Config {
    /// `false`: nothing is stored or shared; every request is a read of its own.
    pub enabled: bool,
    /// Bound on keys, bodies and bookkeeping together, in bytes.
    pub capacity_bytes: u64,
    /// Share of the capacity for negative entries ("no such record"); at most 0.1.
    pub negative_share: f64,
    /// Estimate of the mean entry size in bytes; sets the number of shards and of keys that the
    /// scan filter remembers.
    pub entry_bytes_estimate: u64,
    /// See [`InvalidationMode`].
    pub invalidation_mode: InvalidationMode,
    /// Staleness of the feed from which [`WhenStale`] applies.
    pub max_staleness: Duration,
    /// See [`WhenStale`].
    pub when_stale: WhenStale,
    /// Share of a TTL by which an entry may expire early, 0 to 1, so that entries do not expire
    /// together.
    pub ttl_jitter: f64,
    /// `true`: a frequently read record is read again as soon as the feed reports its change.
    pub prefetch_on_change: bool,
    /// `true`: [`ReadMode::NoAdmit`](crate::ReadMode) differs from `Normal`.
    pub isolate_scans: bool,
    /// Time for which a failed read answers for its key.
    pub error_ttl: Duration,
    /// Time past its TTL for which an entry is served while it is refreshed. Never for invalidated
    /// entries.
    pub stale_while_revalidate: Duration,
    /// Time past its TTL for which an entry is served when reading fails. Never for invalidated
    /// entries.
    pub stale_if_error: Duration,
    /// Most queries of one collection at the database at once.
    pub reads_in_flight: usize,
    /// Most keys in one query; at least the largest batch.
    pub query_keys: usize,
    /// Most bytes of keys in one query.
    pub query_bytes: usize,
    /// Most keys of one collection that may wait for a query.
    pub waiting_keys: usize,
    /// Order of the queue, and which keys are rejected unread.
    pub queue: queue::Config,
    /// Seed of the hash functions and of the jitter.
    pub seed: u64,
}

/// Settings of one source: of the database that some of the collections are read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceSettings {
    /// See [`InvalidationMode`].
    pub invalidation_mode: InvalidationMode,
    /// See [`Config::reads_in_flight`].
    pub reads_in_flight: usize,
    /// See [`Config::query_keys`].
    pub query_keys: usize,
    /// See [`Config::query_bytes`].
    pub query_bytes: usize,
}

/// Settings that may change while the cache is used. Each is that of the same name in [`Config`].
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Policy while the feed is behind.
    pub when_stale: WhenStale,
    /// Jitter of lifetimes.
    pub ttl_jitter: f64,
    /// Time for which a failed read answers for its key.
    pub error_ttl: Duration,
    /// Time past its TTL for which an entry is served while it is refreshed.
    pub stale_while_revalidate: Duration,
    /// Time past its TTL for which an entry is served when reading fails.
    pub stale_if_error: Duration,
    /// Most keys of one collection that may wait for a query.
    pub waiting_keys: usize,
}

impl Config {
    /// Returns settings of a small cache for simulations, benchmarks and tests: a feed, nothing
    /// served past its time, no jitter, one query at a time. A service sets each by itself.
    #[must_use]
    pub fn small(capacity_bytes: u64) -> Self {
        Self {
            enabled: true,
            capacity_bytes,
            negative_share: 0.1,
            entry_bytes_estimate: 100,
            invalidation_mode: InvalidationMode::Feed,
            max_staleness: Duration::from_secs(1),
            when_stale: WhenStale::Bypass,
            ttl_jitter: 0.0,
            prefetch_on_change: false,
            isolate_scans: true,
            error_ttl: Duration::ZERO,
            stale_while_revalidate: Duration::ZERO,
            stale_if_error: Duration::ZERO,
            reads_in_flight: 1,
            query_keys: 10,
            query_bytes: 1024,
            waiting_keys: 20,
            queue: queue::Config {
                adaptive: false,
                target: Duration::ZERO,
                interval: Duration::ZERO,
                query_target: Duration::ZERO,
            },
            seed: 1,
        }
    }

    /// Returns the settings of a source where there is only one.
    pub fn only_source(&self) -> SourceSettings {
        SourceSettings {
            invalidation_mode: self.invalidation_mode,
            reads_in_flight: self.reads_in_flight,
            query_keys: self.query_keys,
            query_bytes: self.query_bytes,
        }
    }

    /// Returns the settings that may change.
    pub fn settings(&self) -> Settings {
        Settings {
            when_stale: self.when_stale,
            ttl_jitter: self.ttl_jitter,
            error_ttl: self.error_ttl,
            stale_while_revalidate: self.stale_while_revalidate,
            stale_if_error: self.stale_if_error,
            waiting_keys: self.waiting_keys,
        }
    }
}

/// Settings of one collection.
#[derive(Clone, Debug)]
pub struct CollectionPolicy {
    /// Lifetime of an entry that nothing invalidates.
    pub ttl: Duration,
    /// Lifetime of a negative entry.
    pub negative_ttl: Duration,
    /// `true`: a row has the form of [`TenantRow`](hotrow_types::tenant::TenantRow), and its record
    /// keeps its tenant.
    pub has_tenants: bool,
    /// `true`: a record keeps the ends of its members, so that views of it can be cut.
    pub has_views: bool,
}
