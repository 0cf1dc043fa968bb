//! What the cache is told at start. Every bound of this crate stands here.

use std::time::Duration;

/// Settings of the queue of those who wait for a query.
pub use hotrow_admit::concurrency::queue;

/// What to do with an entry when the feed is further behind than [`Config::max_staleness`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenStale {
    /// Read the database; the answer may be shared for `max_staleness` from the start of its read.
    Bypass,
    /// Serve the entry, marked as stale.
    Stale,
    /// Refuse with 503.
    Refuse,
}

/// What keeps entries from being older than the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upkeep {
    /// A change feed: the consistency contract holds.
    Feed,
    /// Nothing but their TTL: an answer may be as old as that, and carries no position.
    TtlOnly,
}

/// Settings of the whole cache.
#[derive(Clone, Debug)]
pub struct Config {
    /// `false`: nothing is kept or shared, every request is a read of its own.
    pub enabled: bool,
    /// Bound on keys, bodies and bookkeeping together, in bytes.
    pub capacity_bytes: u64,
    /// Share of the capacity for entries that say "there is no such record"; at most 0.1.
    pub negative_share: f64,
    /// Guess of the mean size of an entry in bytes; sets the number of shards and of remembered evicted keys.
    pub entry_bytes_estimate: u64,
    /// See there.
    pub upkeep: Upkeep,
    /// How far behind the feed may be before [`WhenStale`] acts.
    pub max_staleness: Duration,
    /// See there.
    pub when_stale: WhenStale,
    /// Share of a TTL by which single entries may expire earlier, 0 to 1, so that they do not expire together.
    pub ttl_jitter: f64,
    /// Whether a record that is read often is read again as soon as the feed reports its change.
    pub refresh_hot: bool,
    /// Whether [`Wish::Passing`](crate::Wish) differs from `Any`.
    pub isolate_scans: bool,
    /// How long a failed read answers for its key.
    pub error_ttl: Duration,
    /// How long after its TTL an entry is still served while it is refreshed. Never for invalidated entries.
    pub stale_while_revalidate: Duration,
    /// How long after its TTL an entry is still served when reading fails. Never for invalidated entries.
    pub stale_if_error: Duration,
    /// Queries of one collection at the database at once.
    pub reads_in_flight: usize,
    /// Most keys in one query; at least the largest batch.
    pub query_keys: usize,
    /// Most bytes of keys in one query.
    pub query_bytes: usize,
    /// Most keys of one collection that may wait for a query.
    pub waiting_keys: usize,
    /// Who of them is read next, and who is not read at all.
    pub queue: queue::Config,
    /// Seed of the hash functions and of the jitter.
    pub seed: u64,
}

/// Settings of one collection.
#[derive(Clone, Debug)]
pub struct CollectionConfig {
    /// How long an entry lives when nothing invalidates it.
    pub ttl: Duration,
    /// The same for "there is no such record".
    pub negative_ttl: Duration,
}
