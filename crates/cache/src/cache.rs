//! The cache as the server sees it: look up, read what is missing, take in what changed.

mod lookup;

use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::FixedState;
use hotrow_measure::clock::Nanos;

use crate::config::{CollectionConfig, Config, Upkeep};
use crate::desk::{Desk, NotQueued};
use crate::fixes::{Fix, Fixes};
use crate::flight::{Ask, Failure, Kind, Lease, Waiter};
use crate::freshness::{Progress, Quality, Verdict, judge, stands_in};
use crate::key::{CollectionId, Key};
use crate::passing::Passing;
use crate::record::{ENTRY_OVERHEAD_BYTES, Era, Presence, Record};
use crate::stats::{CollectionStats, Removal, Snapshot};
use crate::store::Store;
use crate::sync::{AtomicU64, Mutex, Ordering};
use crate::turn::Turn;
use crate::version::{Mark, Position, Version};

/// What a lookup found, or what has to be done.
#[derive(Debug)]
pub enum Lookup<E> {
    /// The record.
    Hit(Record, Quality),
    /// The knowledge that there is no such record.
    Negative(Record, Quality),
    /// Someone reads it already, or has queued it. The waiter says so when nobody leads ([`crate::flight::Waited::Lead`]).
    Wait(Waiter<E>),
    /// This request queued the read: call [`Cache::turn`] and carry out what it gives, then wait.
    Fill(Waiter<E>),
    /// The cache is off: like `Fill`, and the answer is this request's alone.
    Bypass(Waiter<E>),
    /// Not answered.
    Refused(Refusal<E>),
}

/// Why a lookup is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal<E> {
    /// Too many keys of the collection wait for the database.
    QueueFull,
    /// The read would end after the request's deadline.
    TooLate,
    /// The feed is behind and the policy is to refuse.
    Behind,
    /// The key was read within `error_ttl`, in vain.
    Failed(Failure<E>),
}

/// Which answers a request accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Any that the contract allows.
    Any,
    /// Likewise, for someone who roams over everything: what he finds does not count as used, and what is read for him alone
    /// is kept only if he asked for it lately, or while there is room for all.
    Passing,
    /// Only of a read that begins after the request arrived (`no-cache`).
    New,
}

/// The cache. `E` is the source's error, shared among waiters.
pub struct Cache<E> {
    pub(crate) config: Config,
    pub(crate) store: Store,
    pub(crate) collections: Box<[Collection<E>]>,
    pub(crate) stats: Arc<[CollectionStats]>,
    pub(crate) passing: Passing,
    progress: Progress,
    hasher: FixedState,
    losses_total: std::sync::atomic::AtomicU64,
    pub(crate) fixes: Fixes,
}

pub(crate) struct Collection<E> {
    pub(crate) desk: Mutex<Desk<E>>,
    pub(crate) config: CollectionConfig,
    era: AtomicU64,
    /// See [`Cache::expect_aliases`].
    has_aliases: std::sync::atomic::AtomicBool,
}

impl<E> Collection<E> {
    pub(crate) fn era(&self) -> Era {
        Era::unpack(self.era.load(Ordering::Acquire))
    }

    fn raise(&self, by: Era) {
        self.era.fetch_add(by.pack(), Ordering::AcqRel);
    }
}

impl<E: Clone> Cache<E> {
    /// An empty cache. Collections are numbered in the order of `collections`.
    #[must_use]
    pub fn new(config: Config, collections: Vec<CollectionConfig>) -> Arc<Self> {
        let stats: Arc<[CollectionStats]> = collections.iter().map(|_| CollectionStats::default()).collect();
        let collection = |own| Collection {
            desk: Mutex::new(Desk::new(&config)),
            config: own,
            era: AtomicU64::new(0),
            has_aliases: std::sync::atomic::AtomicBool::new(false),
        };
        let entries = config.capacity_bytes / (config.entry_bytes_estimate + ENTRY_OVERHEAD_BYTES);
        Arc::new(Self {
            store: Store::new(&config, stats.clone()),
            passing: Passing::new(entries),
            collections: collections.into_iter().map(collection).collect(),
            stats,
            progress: Progress::new(),
            hasher: FixedState::with_seed(config.seed),
            losses_total: std::sync::atomic::AtomicU64::new(0),
            config,
            fixes: Fixes::default(),
        })
    }

    /// A record of the collection may be asked for by several keys, and the feed names one of them only. What was read by
    /// another is given as [`crate::Fetched::Passing`], and a change does not end the lease of such a read.
    pub fn expect_aliases(&self, collection: CollectionId) {
        self.collection(collection).0.has_aliases.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// The entry, if it may be served at `now`; queues nothing and does not count as a use.
    #[must_use]
    pub fn peek(&self, key: &Key, now: Nanos) -> Option<(Record, Quality)> {
        // In this order for the reason given in `served`.
        let staleness = self.doubt(now);
        let record = self.store.peek(key)?;
        let (collection, _) = self.collection(key.collection());
        match judge(&record, collection.era(), staleness, now, &self.config) {
            Verdict::Serve(quality) => Some((record, quality)),
            Verdict::Read | Verdict::Gone | Verdict::Refuse => None,
        }
    }

    /// Queues a refresh of a record that was served with [`Quality::Expired`]. `true`: call [`Cache::turn`].
    #[must_use]
    pub fn refresh(&self, key: &Key) -> bool {
        let (collection, stats) = self.collection(key.collection());
        let mut desk = collection.desk.lock();
        if let Some(flight) = desk.current.get(key) {
            // Queued by a turn that was cancelled, perhaps, with nobody to lead.
            return flight.is_queued();
        }
        // Who served it was within the contract's bound: the watermark is the time, as far as failures need it.
        let failed = desk.recent_failure(key, self.progress.watermark()).is_some();
        !failed && desk.queue(&[key], Kind::Background, None, &self.config, stats).is_ok()
    }

    /// A turn at the database for the collection: `None` when nothing waits or enough queries are under way, which then
    /// go on until nothing waits.
    #[must_use]
    pub fn turn(self: &Arc<Self>, collection: CollectionId) -> Option<Turn<E>> {
        let (desk, _) = self.collection(collection);
        let taken = desk.desk.lock().take_turn(&self.config);
        taken.then(|| Turn::new(self.clone(), collection))
    }

    /// The entry that may be served although reading it failed (`stale_if_error`).
    #[must_use]
    pub fn stand_in(&self, key: &Key, now: Nanos) -> Option<Record> {
        let (collection, _) = self.collection(key.collection());
        self.store.peek(key).filter(|record| stands_in(record, collection.era(), now, &self.config))
    }

    /// The feed reports that the record changed: its lease dies, its entry goes, and what does not see the change yet is
    /// not kept. Reading it again is queued when it is hot, so that whoever asks next waits less; `true`: call
    /// [`Cache::turn`].
    pub fn invalidate(&self, key: &Key, mark: Mark) -> bool {
        let (collection, stats) = self.collection(key.collection());
        let mut desk = collection.desk.lock();
        if self.fixes.has(Fix::Lease) {
            desk.kill_lease(key);
        }
        desk.fence.delivered(mark, Some(key));
        desk.forget_failure(key);
        let is_hot = self.config.refresh_hot && self.store.peek(key).is_some_and(|record| record.is_hot());
        self.store.remove(key, Removal::Invalidated);
        stats.invalidations_total.add(1);
        is_hot && self.refresh_changed(key, &mut desk, stats)
    }

    /// Queues the read of a hot record that changed, while requests leave room for it.
    fn refresh_changed(&self, key: &Key, desk: &mut Desk<E>, stats: &CollectionStats) -> bool {
        let has_room = stats.waiting_keys.get() < self.config.waiting_keys as u64 / 2;
        let queued = has_room
            && !desk.current.contains_key(key)
            && desk.queue(&[key], Kind::Background, None, &self.config, stats).is_ok();
        stats.hot_refreshes_total.add(u64::from(queued));
        queued
    }

    /// Someone asks for the entry to go.
    pub fn purge(&self, key: &Key) -> bool {
        let (collection, _) = self.collection(key.collection());
        let mut desk = collection.desk.lock();
        desk.kill_lease(key);
        desk.forget_failure(key);
        self.store.remove(key, Removal::Purged)
    }

    /// Every record of the collection may have changed: all its entries and leases are worth nothing, in O(1). `mark` as in
    /// [`Cache::invalidate`]; `None` when every read sees the change already.
    pub fn flush(&self, collection: CollectionId, mark: Option<Mark>) {
        let (collection, stats) = self.collection(collection);
        // Under the desk's lock, so that no fill is judged by the era of before and kept after.
        let mut desk = collection.desk.lock();
        mark.into_iter().for_each(|mark| desk.fence.delivered(mark, None));
        collection.raise(Era { loss: 0, flush: 1 });
        stats.flushes_total.add(1);
    }

    /// The feed may have missed changes, or starts anew: everything is stale at once, in O(1) per collection.
    pub fn lose(&self, position: Option<Position>) {
        for collection in &self.collections {
            let mut desk = collection.desk.lock();
            if position.is_some() {
                // A feed starts only when every read sees what the one before delivered.
                desk.fence.clear();
            }
            collection.raise(Era { loss: u32::from(self.fixes.has(Fix::Epoch)), flush: 0 });
        }
        self.progress.lose(position);
        self.losses_total.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    /// Every change committed before `probe_sent_at` has been taken in, up to `position`.
    pub fn advance(&self, probe_sent_at: Nanos, position: Option<Position>) {
        self.progress.advance(probe_sent_at, position);
    }

    /// Reads sent from now on see at least `version`: changes that it sees need no fence any more.
    pub fn visible(&self, version: &Version) {
        for collection in &self.collections {
            let mut desk = collection.desk.lock();
            if !desk.fence.is_open() {
                desk.fence.seen(version);
            }
        }
    }

    /// Time for which a change may have gone unseen. Says nothing where no feed is wanted ([`Upkeep::TtlOnly`]).
    #[must_use]
    pub fn staleness(&self, now: Nanos) -> Duration {
        self.progress.staleness(now)
    }

    /// Time for which a change of an entry may have gone unseen, as far as the TTL does not answer for it.
    fn doubt(&self, now: Nanos) -> Duration {
        match self.config.upkeep {
            Upkeep::Feed => self.progress.doubt(now),
            Upkeep::TtlOnly => Duration::ZERO,
        }
    }

    /// Whether there is a feed and it is within the contract's bound, or none is wanted.
    #[must_use]
    pub fn is_current(&self, now: Nanos) -> bool {
        self.doubt(now) <= self.config.max_staleness
    }

    /// The point of the log up to which changes have been taken in; `None` before the feed started or without a log.
    #[must_use]
    pub fn applied(&self) -> Option<Position> {
        self.progress.applied()
    }

    /// How old the answer's knowledge is: the lesser of the feed's staleness and the time since it was read. The feed
    /// says nothing of a record that was read before a loss.
    #[must_use]
    pub fn age(&self, record: &Record, now: Nanos) -> Duration {
        let since_read = now.since(record.read_at());
        let (collection, _) = self.collection(record.collection());
        let followed = self.config.upkeep == Upkeep::Feed && record.era() == collection.era();
        if followed { self.staleness(now).min(since_read) } else { since_read }
    }

    /// A 64-bit hash of the key, for sketches.
    #[must_use]
    pub fn hash(&self, key: &Key) -> u64 {
        use std::hash::BuildHasher;
        self.hasher.hash_one(key)
    }

    /// Memory of the tables that find and rank the entries, in bytes; remembered evicted keys are in it, records not.
    #[must_use]
    pub fn policy_bytes(&self) -> u64 {
        self.store.policy_bytes()
    }

    /// The settings in force.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// One collection's counters.
    #[must_use]
    pub fn stats(&self, collection: CollectionId) -> Snapshot {
        self.collection(collection).1.snapshot()
    }

    /// Times that the feed was lost or started (the epoch).
    #[must_use]
    pub fn losses_total(&self) -> u64 {
        self.losses_total.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Test-only: takes a fix out for good.
    #[cfg(feature = "sabotage")]
    pub fn take_out(&self, fix: Fix) {
        self.fixes.take_out(fix);
    }

    /// Test-only: whether a fix is in place, for those whose place is elsewhere.
    #[cfg(feature = "sabotage")]
    #[must_use]
    pub fn has(&self, fix: Fix) -> bool {
        self.fixes.has(fix)
    }

    pub(crate) fn collection(&self, CollectionId(id): CollectionId) -> (&Collection<E>, &CollectionStats) {
        (&self.collections[usize::from(id)], &self.stats[usize::from(id)])
    }

    /// The hit path.
    fn served(&self, key: &Key, wish: Wish, now: Nanos) -> Served<E> {
        // Before the entry is looked up: the watermark vouches for the entries that are left after it, and a younger one
        // may have been set after the change that took just this entry out. The era after the watermark, for a feed
        // that starts anew raises it before it sets one.
        let staleness = self.doubt(now);
        let record = if wish == Wish::Passing { self.store.peek(key) } else { self.store.get(key) };
        let Some(record) = record else {
            return if self.refuses(now) { Served::Refuse } else { Served::No };
        };
        let (collection, _) = self.collection(key.collection());
        match judge(&record, collection.era(), staleness, now, &self.config) {
            Verdict::Serve(quality) => {
                if wish != Wish::Passing {
                    record.note_use();
                }
                Served::Answer(match record.presence() {
                    Presence::Found => Lookup::Hit(record, quality),
                    Presence::Missing => Lookup::Negative(record, quality),
                })
            }
            Verdict::Refuse => Served::Refuse,
            Verdict::Read | Verdict::Gone => Served::No,
        }
    }

    fn refuses(&self, now: Nanos) -> bool {
        self.config.when_stale == crate::config::WhenStale::Refuse && !self.is_current(now)
    }

    /// Joins reads under way, or queues new ones, for keys of one collection.
    fn join(&self, keys: &[&Key], wish: Wish, ask: Ask) -> Vec<Lookup<E>> {
        let Some(first) = keys.first() else { return Vec::new() };
        let (collection, stats) = self.collection(first.collection());
        let mut desk = collection.desk.lock();
        let mut answers: Vec<Option<Lookup<E>>> = Vec::with_capacity(keys.len());
        let mut unread: Vec<&Key> = Vec::new();
        for &key in keys {
            let known = self.config.enabled.then(|| self.join_known(key, wish, ask, collection, &mut desk)).flatten();
            if known.is_none() {
                unread.push(key);
            }
            let waits = matches!(known, Some(Lookup::Wait(_)));
            stats.waits_total.add(u64::from(waits));
            if waits && wish != Wish::Passing {
                self.passing.keep(self.hash(key));
            }
            answers.push(known);
        }
        self.note_readers(&unread, wish);
        let kind = if self.config.enabled { Kind::Shared } else { Kind::Alone };
        let (queued, refusal) = match desk.queue(&unread, kind, Some(ask), &self.config, stats) {
            Ok(queued) => (queued, Refusal::QueueFull),
            Err(NotQueued::Full) => (Vec::new(), Refusal::QueueFull),
            Err(NotQueued::TooLate) => (Vec::new(), Refusal::TooLate),
        };
        // Joined under the lock: a queued read that nobody waits for is not begun.
        let mut fills = queued.iter().map(|flight| match kind {
            Kind::Alone => Lookup::Bypass(flight.join_first(ask)),
            Kind::Shared | Kind::Background => Lookup::Fill(flight.join_first(ask)),
        });
        let mut new = || fills.next();
        let answer =
            |known: Option<Lookup<E>>| known.or_else(&mut new).unwrap_or_else(|| Lookup::Refused(refusal.clone()));
        answers.into_iter().map(answer).collect()
    }

    /// What the desk already has for the key: an entry that came meanwhile, a failure, or a flight to join.
    fn join_known(
        &self,
        key: &Key,
        wish: Wish,
        ask: Ask,
        collection: &Collection<E>,
        desk: &mut Desk<E>,
    ) -> Option<Lookup<E>> {
        let now = ask.at;
        if wish != Wish::New {
            match self.served(key, wish, now) {
                Served::Answer(lookup) => return Some(lookup),
                Served::Refuse => return Some(Lookup::Refused(Refusal::Behind)),
                Served::No => self.sweep(key, collection.era()),
            }
        }
        if let Some(failure) = desk.recent_failure(key, now) {
            return Some(Lookup::Refused(Refusal::Failed(failure)));
        }
        let flight = desk.current.get(key)?;
        let joinable = match flight.lease() {
            None => flight.is_queued(),
            Some(lease) => {
                let aliased = collection.has_aliases.load(std::sync::atomic::Ordering::Relaxed);
                wish != Wish::New && self.may_join(lease, collection.era(), now, aliased || desk.fence.concerns(key))
            }
        };
        if joinable {
            if !desk.is_led() {
                // Who queued it has left without leading, perhaps; with nobody there to tell, the one who comes now leads.
                flight.want_leader();
            }
            return Some(Lookup::Wait(flight.join(ask)));
        }
        desk.current.remove(key);
        None
    }

    /// Whether a read that has begun answers a request of now: its lease must be of this era; and while the feed is
    /// behind, or there may be a change that the read does not see and that will not end its lease (`untold`), the read
    /// must have begun within the contract's bound.
    fn may_join(&self, lease: Lease, era: Era, now: Nanos, untold: bool) -> bool {
        let is_young = now.since(lease.started_at) <= self.config.max_staleness;
        lease.era == era && (is_young || !untold && self.is_current(now))
    }

    /// Frees the room of a flushed entry that was asked for.
    fn sweep(&self, key: &Key, era: Era) {
        if self.store.peek(key).is_some_and(|record| record.era().flush != era.flush) {
            self.store.remove(key, Removal::Flushed);
        }
    }
}

enum Served<E> {
    Answer(Lookup<E>),
    Refuse,
    No,
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
