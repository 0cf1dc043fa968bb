//! The cache as the server sees it: lookups, reads of missing keys, changes.

mod join;
mod lookup;
mod sampled;
mod settings;
mod source;
mod variant;
mod warm_up;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::FixedState;
use hotrow_measure::clock::Nanos;

use crate::config::{CollectionPolicy, Config};
use crate::fetch_queue::{FetchQueue, NotQueued};
use crate::flight::{Ask, Kind, Lease, Waiter};
use crate::freshness::{Ages, Freshness, Verdict, judge, may_serve_stale};
use crate::lookup_error::LookupError;
use crate::miniature::sampling::SampleLog;
use crate::record::{ENTRY_OVERHEAD_BYTES, Epoch, Record};
use crate::safeguards::{Safeguard, Safeguards};
use crate::scan_filter::ScanFilter;
use crate::source_state::SourceState;
use crate::stats::{CollectionStats, Removal, Snapshot};
use crate::store::Store;
use crate::sync::{AtomicU64, Mutex, Ordering};
use hotrow_types::key::{CollectionId, Key};
use hotrow_types::source::SourceId;
use hotrow_types::version::ChangeId;

/// Outcome of a lookup, or the work that is left to do.
#[derive(Debug)]
pub enum Lookup<E> {
    /// The record.
    Hit(Record, Freshness),
    /// The knowledge that the record does not exist.
    Negative(Record, Freshness),
    /// Another request has queued or sent the read. The waiter resolves to
    /// [`crate::flight::Waited::Lead`] when no task is left to carry the read out.
    Coalesced(Waiter<E>),
    /// This request queued the read: call [`Cache::batch_loader`], carry out its batches, then
    /// wait.
    Miss(Waiter<E>),
    /// The cache is off: like `Miss`, but the answer is not shared with other requests.
    Bypass(Waiter<E>),
    /// The request gets no answer.
    Refused(LookupError<E>),
}

/// Constraint on the answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// Any answer that the contract allows.
    Normal,
    /// Like `Normal`, for a client that scans: a hit does not count as a use, and a record read for
    /// scanning clients alone is admitted only when one of them requested it recently, or while the
    /// cache has room.
    NoAdmit,
    /// Only an answer of a read that begins after the request arrived (`no-cache`).
    Revalidate,
    /// An answer that reflects every commit that had returned at that time; the feed has passed a
    /// look at the log's end that was sent then or later. A fresh entry, but not one by which a
    /// standby may have shown what the primary does not; else a read of the primary that was sent
    /// then or later.
    Strict(Nanos),
}

impl ReadMode {
    /// Returns whether no standby may answer a read in this mode.
    pub(crate) fn needs_primary(self) -> bool {
        matches!(self, Self::Revalidate | Self::Strict(_))
    }
}

/// The cache, under one set of settings. `E` is the error of the source; all waiters of a read
/// share it.
pub struct Cache<E> {
    pub(crate) config: Config,
    /// By collection.
    policies: Box<[CollectionPolicy]>,
    state: Arc<CacheState<E>>,
}

/// Entries, queues and progress, whatever the settings: those of [`Cache::with_settings`] share it.
pub struct CacheState<E> {
    pub(crate) store: Store,
    pub(crate) collections: Box<[Collection<E>]>,
    pub(crate) stats: Arc<[CollectionStats]>,
    pub(crate) scan_filter: ScanFilter,
    samples: SampleLog,
    pub(crate) sources: Box<[Arc<SourceState>]>,
    hasher: FixedState,
    pub(crate) safeguards: Safeguards,
}

impl<E> Deref for Cache<E> {
    type Target = CacheState<E>;

    fn deref(&self) -> &CacheState<E> {
        &self.state
    }
}

pub(crate) struct Collection<E> {
    pub(crate) source: Arc<SourceState>,
    pub(crate) fetch_queue: Mutex<FetchQueue<E>>,
    epoch: AtomicU64,
    /// See [`Cache::expect_aliases`].
    pub(crate) has_aliases: std::sync::atomic::AtomicBool,
    /// See [`Cache::open_gap`]; changes under the queue's lock.
    pub(crate) has_gap: std::sync::atomic::AtomicBool,
}

impl<E> Collection<E> {
    pub(crate) fn epoch(&self) -> Epoch {
        Epoch::unpack(self.epoch.load(Ordering::Acquire))
    }

    pub(crate) fn raise(&self, by: Epoch) {
        self.epoch.fetch_add(by.pack(), Ordering::AcqRel);
    }
}

impl<E: Clone> Cache<E> {
    /// Creates an empty cache whose collections are all read from one source. They are numbered in
    /// the order of `collections`.
    #[must_use]
    pub fn new(config: Config, collections: Vec<CollectionPolicy>) -> Arc<Self> {
        let source = config.only_source();
        Self::of_sources(config, collections, &[source], |_| SourceId::FIRST)
    }

    fn assemble(
        config: Config,
        collections: Vec<CollectionPolicy>,
        sources: Box<[Arc<SourceState>]>,
        source_of: impl Fn(CollectionId) -> SourceId,
    ) -> Arc<Self> {
        let stats: Arc<[CollectionStats]> =
            collections.iter().map(|_| CollectionStats::default()).collect();
        let collection = |(id, _): (CollectionId, &CollectionPolicy)| Collection {
            source: Arc::clone(&sources[source_of(id).index()]),
            fetch_queue: Mutex::new(FetchQueue::new(&config)),
            epoch: AtomicU64::new(0),
            has_aliases: std::sync::atomic::AtomicBool::new(false),
            has_gap: std::sync::atomic::AtomicBool::new(false),
        };
        let entries = config.capacity_bytes / (config.entry_bytes_estimate + ENTRY_OVERHEAD_BYTES);
        let state = CacheState {
            store: Store::new(&config, stats.clone()),
            scan_filter: ScanFilter::new(entries),
            samples: SampleLog::new(),
            collections: (0..).map(CollectionId).zip(&collections).map(collection).collect(),
            stats,
            sources,
            hasher: FixedState::with_seed(config.seed),
            safeguards: Safeguards::default(),
        };
        let policies = collections.into_boxed_slice();
        Arc::new(Self { config, policies, state: Arc::new(state) })
    }

    /// Declares that several keys may name one record of the collection while the feed reports only
    /// one of them. A record read by another key arrives as [`crate::Fetched::Uncacheable`], and a
    /// change does not end the lease of such a read.
    pub fn expect_aliases(&self, collection: CollectionId) {
        self.collection(collection).0.has_aliases.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// Returns the entry if it may be served at `now`. Queues nothing and does not count as a use.
    pub fn peek(&self, key: &Key, now: Nanos) -> Option<(Record, Freshness)> {
        // The order matters; `served` gives the reason.
        let staleness = self.effective_staleness(key.collection(), now);
        let record = self.store.peek(key)?;
        let (collection, _) = self.collection(key.collection());
        match judge(&record, collection.epoch(), staleness, now, &self.config) {
            Verdict::Serve(freshness) => Some((record, freshness)),
            Verdict::Read | Verdict::Flushed | Verdict::Refuse => None,
        }
    }

    /// Returns the time up to which a copy of `record` may be kept by who is informed of changes:
    /// its expiry, if memory holds this very record and would answer with it. Otherwise the record
    /// may lack a change that was delivered before. Counts as no use.
    pub fn keeps_until(&self, key: &Key, record: &Record, now: Nanos) -> Option<Nanos> {
        let (held, freshness) = self.peek(key, now)?;
        let (collection, _) = self.collection(key.collection());
        // Past the bound an answer is shared for a time, and no change would end that.
        let is_current = self.is_collection_current(collection, now);
        let is_held = freshness == Freshness::Fresh && held.is_same(record);
        (is_current && is_held).then(|| record.expires_at())
    }

    /// Queues a refresh of a record that was served with [`Freshness::Expired`]. On `true`, call
    /// [`Cache::batch_loader`].
    pub fn refresh(&self, key: &Key) -> bool {
        let (collection, stats) = self.collection(key.collection());
        let mut fetches = collection.fetch_queue.lock();
        if let Some(flight) = fetches.in_flight.get(key) {
            // A cancelled loader may have left it queued with no task to lead it.
            return flight.is_queued();
        }
        // The record was served within the contract's bound, so for failures the watermark is
        // precise enough as the time.
        let failed = fetches.recent_failure(key, collection.source.progress.watermark()).is_some();
        !failed && fetches.queue(&[key], Kind::Background, None, &self.config, stats).is_ok()
    }

    /// Returns the entry that may be served because its read failed (`stale_if_error`).
    pub fn stale_if_error(&self, key: &Key, now: Nanos) -> Option<Record> {
        let (collection, _) = self.collection(key.collection());
        self.store
            .peek(key)
            .filter(|record| may_serve_stale(record, collection.epoch(), now, &self.config))
    }

    /// Applies a change that the feed reports: ends the lease of the key, removes its entry, and
    /// keeps reads that do not see the change from being stored. A hot record is queued for a new
    /// read so that the next request waits less; on `true`, call [`Cache::batch_loader`].
    pub fn invalidate(&self, key: &Key, mark: ChangeId) -> bool {
        let (collection, stats) = self.collection(key.collection());
        let mut fetches = collection.fetch_queue.lock();
        if self.safeguards.has(Safeguard::Lease) {
            fetches.kill_lease(key);
        }
        fetches.fence.delivered(mark, Some(key));
        fetches.marks.changed(key);
        fetches.forget_failure(key);
        let is_hot = self.config.prefetch_on_change
            && self.store.peek(key).is_some_and(|record| record.is_hot());
        self.store.remove(key, Removal::Invalidated);
        stats.invalidations_total.add(1);
        is_hot && self.refresh_changed(key, &mut fetches, stats)
    }

    /// Queues the read of a hot record that changed, unless requests need the room in the queue.
    fn refresh_changed(
        &self,
        key: &Key,
        fetches: &mut FetchQueue<E>,
        stats: &CollectionStats,
    ) -> bool {
        let has_room = stats.waiting_keys.get() < self.config.waiting_keys as u64 / 2;
        let queued = has_room
            && !fetches.in_flight.contains_key(key)
            && fetches.queue(&[key], Kind::Background, None, &self.config, stats).is_ok();
        stats.hot_refreshes_total.add(u64::from(queued));
        queued
    }

    /// Removes the entry at an operator's request.
    pub fn purge(&self, key: &Key) -> bool {
        let (collection, _) = self.collection(key.collection());
        let mut fetches = collection.fetch_queue.lock();
        fetches.kill_lease(key);
        // Of other spellings of the key as well.
        fetches.fence.shown();
        fetches.forget_failure(key);
        // A standby may be behind what the purge is for.
        fetches.standbys.iter_mut().for_each(|standbys| standbys.hold());
        self.store.remove(key, Removal::Purged)
    }

    /// Marks every record of the collection as changed: all its entries and leases become invalid,
    /// in O(1). `mark` as in [`Cache::invalidate`]; `None` when every read already sees the change.
    pub fn flush(&self, collection: CollectionId, mark: Option<ChangeId>) {
        let (collection, stats) = self.collection(collection);
        // Under the queue's lock: otherwise a fill could be judged by the old epoch and stored
        // after the flush.
        let mut fetches = collection.fetch_queue.lock();
        match mark {
            Some(mark) => fetches.fence.delivered(mark, None),
            None => fetches.standbys.iter_mut().for_each(|standbys| standbys.hold()),
        }
        fetches.marks.all_changed();
        collection.raise(Epoch { feed: 0, flush: 1 });
        stats.flushes_total.add(1);
    }

    /// Returns the age of the answer: the lesser of the feed's staleness and the time since the
    /// read. The feed does not vouch for a record that was read before a gap.
    #[inline]
    pub fn age(&self, record: &Record, now: Nanos) -> Duration {
        self.ages(record.collection(), now).of(record)
    }

    /// Returns what makes the ages of a collection's answers at one moment: [`Cache::age`] of many.
    #[inline]
    pub fn ages(&self, id: CollectionId, now: Nanos) -> Ages {
        let (collection, _) = self.collection(id);
        let followed = self.is_followed(collection.source.id).then(|| {
            // The watermark first: a feed that restarts raises the epoch before it sets it.
            let watermark = collection.source.progress.watermark();
            (watermark, collection.epoch())
        });
        Ages { now, followed, max_staleness: self.config.max_staleness }
    }

    /// Returns whether a row that a source read, or its absence, is what the record says.
    pub fn equals_row(&self, record: &Record, row: Option<&[u8]>) -> bool {
        record.equals_row(self.policy(record.collection()), row)
    }

    /// Returns the hash by which the key is stored, for sketches and samples.
    pub fn hash(&self, key: &Key) -> u64 {
        use std::hash::BuildHasher;
        self.hasher.hash_one(key)
    }

    /// Returns what makes [`Cache::hash`], for callers that hold keys with their hashes.
    pub fn hasher(&self) -> &FixedState {
        &self.hasher
    }

    /// Returns the memory of the tables that find and rank the entries, in bytes. Includes
    /// remembered evicted keys, excludes the records.
    pub fn policy_bytes(&self) -> u64 {
        self.store.policy_bytes()
    }

    /// Takes one step towards another capacity, and returns whether more are needed. A larger one
    /// holds after one step of each shard. Towards a smaller one each step evicts a bounded number
    /// of entries, so that readers wait microseconds for it; the entries never exceed
    /// [`Cache::capacity_bytes`]. The number of shards stays: a record larger than 85 % of a
    /// shard's part of the capacity is no longer stored.
    pub fn step_to_capacity(&self, capacity_bytes: u64) -> bool {
        self.store.step_to_capacity(&self.config, capacity_bytes)
    }

    /// Returns the capacity in force, in bytes; less than was configured by what does not divide
    /// among the shards.
    pub fn capacity_bytes(&self) -> u64 {
        self.store.capacity_bytes()
    }

    /// Returns the settings; the capacity may have changed since the start
    /// ([`Cache::capacity_bytes`]).
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the counters of one collection.
    pub fn stats(&self, collection: CollectionId) -> Snapshot {
        self.collection(collection).1.snapshot()
    }

    /// Disables a safeguard for the life of the process; for tests.
    #[cfg(feature = "failpoints")]
    pub fn disable(&self, safeguard: Safeguard) {
        self.safeguards.disable(safeguard);
    }

    /// Returns whether a safeguard is in place, for safeguards outside this crate; for tests.
    #[cfg(feature = "failpoints")]
    pub fn has(&self, safeguard: Safeguard) -> bool {
        self.safeguards.has(safeguard)
    }

    /// Returns the settings of one collection.
    pub(crate) fn policy(&self, CollectionId(id): CollectionId) -> &CollectionPolicy {
        &self.policies[usize::from(id)]
    }

    pub(crate) fn collection(
        &self,
        CollectionId(id): CollectionId,
    ) -> (&Collection<E>, &CollectionStats) {
        (&self.collections[usize::from(id)], &self.stats[usize::from(id)])
    }

    /// Answers from memory: the hit path. `staleness` is the effective one, read before.
    ///
    /// The watermark is read before the entry is looked up. It vouches for entries that are present
    /// after it was read; a later watermark may follow the very change that removed this entry. The
    /// epoch is read after the watermark, because a feed that restarts raises the epoch before it
    /// sets the watermark.
    #[inline]
    fn served(&self, key: &Key, mode: ReadMode, now: Nanos, staleness: Duration) -> Served {
        let peek = mode == ReadMode::NoAdmit;
        let record = if peek { self.store.peek(key) } else { self.store.get(key) };
        self.judged(key, record, mode, now, staleness)
    }

    /// Decides whether an entry answers.
    #[inline]
    fn judged(
        &self,
        key: &Key,
        record: Option<Record>,
        mode: ReadMode,
        now: Nanos,
        staleness: Duration,
    ) -> Served {
        let is_strict = matches!(mode, ReadMode::Strict(_));
        let Some(record) = record else {
            let is_refused = !is_strict && self.refuses(key.collection(), now);
            return if is_refused { Served::Refuse } else { Served::No };
        };
        let (collection, _) = self.collection(key.collection());
        match judge(&record, collection.epoch(), staleness, now, &self.config) {
            Verdict::Serve(freshness) => {
                if is_strict && !self.is_strict(key, &record, freshness) {
                    return Served::No;
                }
                if mode != ReadMode::NoAdmit {
                    record.note_use();
                }
                Served::Answer(record, freshness)
            }
            Verdict::Refuse if !is_strict => Served::Refuse,
            Verdict::Refuse | Verdict::Read | Verdict::Flushed => Served::No,
        }
    }

    fn refuses(&self, collection: CollectionId, now: Nanos) -> bool {
        self.config.when_stale == crate::config::WhenStale::Refuse
            && !self.is_collection_current(self.collection(collection).0, now)
    }
}

/// Answer of memory to one lookup.
enum Served {
    Answer(Record, Freshness),
    /// The policy refuses to answer.
    Refuse,
    /// Memory has no usable entry.
    No,
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
