//! Batch loader: sends one query after another while keys of a collection wait.
//!
//! Merging needs no timer. The first cold key is read at once and alone; keys requested while
//! queries are in flight go together into the next one.

mod build_records;
mod cancelled;
mod fills;
mod interest;
mod split;
mod standby;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::FixedState;
use hotrow_measure::clock::Nanos;

use self::fills::Fill;
use crate::cache::Cache;
use crate::flight::{Flight, Kind, Lease};
use crate::lookup_error::LookupError;
use crate::record::{Presence, Record, Visibility};
use crate::standby::{AnswerOrder, Order};
use crate::stats::Removal;
use hotrow_types::key::{CollectionId, Key};
use hotrow_types::version::{Position, Version};

pub use self::fills::Fills;
pub use self::interest::Interest;
pub use self::split::SPLIT_QUERIES_MAX;

/// Result of one query.
#[derive(Debug)]
pub struct Answers<E> {
    /// The snapshot that the query saw.
    pub version: Version,
    /// End of the log, read together with the rows.
    pub position: Option<Position>,
    /// One per key of the query, in its order; missing ones at the end count as failed.
    pub rows: Vec<Fetched<E>>,
}

/// Result for one key.
#[derive(Debug)]
pub enum Fetched<E> {
    /// The record as JSON, behind its tenant where the collection has tenants.
    Found(Vec<u8>),
    /// The record does not exist.
    Missing,
    /// A record, or its absence, read under a key for which the feed reports no change: answered to
    /// the waiters and not stored.
    Uncacheable(Option<Vec<u8>>),
    /// The query ended before it came to this key: it is queued again and read by the next one.
    NotRead,
    /// This row could not be read; the other rows of the query are valid.
    Failed(E),
}

/// Permission of the source to store an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stay {
    Kept,
    NoAdmit,
}

/// Result of a query on its way to the waiters.
struct QueryResult<E> {
    answers: Answers<E>,
    /// Per flight.
    visibilities: Vec<Visibility>,
    /// Per row, the last flight that it answers: after it the row is not needed.
    last_use: Vec<usize>,
    /// Flights whose keys the query did not reach.
    unread: Vec<Arc<Flight<E>>>,
    /// Flights that have been answered, failed or queued again.
    answered: usize,
    /// Those of them whose keys the query read.
    read: usize,
    fills: Fills,
    latency: Duration,
}

/// The right to send queries for a collection, one at a time. Dropping it during a query (a
/// cancelled task, a panic) hands its keys to the next waiter.
pub struct BatchLoader<E: Clone> {
    cache: Arc<Cache<E>>,
    collection: CollectionId,
    query: Vec<Arc<Flight<E>>>,
    /// Result of the query while waiters are being answered.
    taken: Option<QueryResult<E>>,
    /// See [`BatchLoader::limit_keys`].
    keys_max: usize,
    /// Index of the row that answers each flight.
    row_of_flight: Vec<usize>,
    lease: Lease,
    /// See [`BatchLoader::standby_floor`].
    standby_floor: Option<Position>,
    /// Longest wait among the flights of the query.
    waited: Duration,
    /// Of the last query whose waiters were answered.
    fills: Fills,
    /// Parts of failed queries, the next one last; see [`BatchLoader::split`].
    halves: Vec<Vec<Arc<Flight<E>>>>,
    split_queries_left: u8,
    over: bool,
}

impl<E: Clone> Cache<E> {
    /// Grants the right to send batches of the collection. `None` when no key waits, or when enough
    /// loaders are running; those continue until no key waits.
    #[must_use]
    pub fn batch_loader(self: &Arc<Self>, collection: CollectionId) -> Option<BatchLoader<E>> {
        let (fetches, _) = self.collection(collection);
        let taken =
            fetches.fetch_queue.lock().start_loader(fetches.source.settings.reads_in_flight);
        taken.then(|| BatchLoader::new(self.clone(), collection))
    }
}

impl<E: Clone> BatchLoader<E> {
    pub(crate) fn new(cache: Arc<Cache<E>>, collection: CollectionId) -> Self {
        let epoch = cache.collection(collection).0.epoch();
        let lease = Lease { started_at: Nanos::ZERO, epoch, query: 0, is_of_standby: false };
        Self {
            cache,
            collection,
            query: Vec::new(),
            taken: None,
            keys_max: usize::MAX,
            row_of_flight: Vec::new(),
            lease,
            standby_floor: None,
            waited: Duration::ZERO,
            fills: Fills::default(),
            halves: Vec::new(),
            split_queries_left: SPLIT_QUERIES_MAX,
            over: false,
        }
    }

    /// Returns the collection of the keys.
    pub fn collection(&self) -> CollectionId {
        self.collection
    }

    /// Returns the longest wait among the flights of the query in flight, when it was put together.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Returns what became of the rows of the last query whose waiters were answered.
    pub fn fills(&self) -> Fills {
        self.fills
    }

    /// Limits further queries to `keys_max` keys, at least one, because rows of this collection are
    /// large.
    pub fn limit_keys(&mut self, keys_max: usize) {
        self.keys_max = keys_max;
    }

    /// Continues under the settings of `cache`, if it is the same cache.
    pub fn follow(&mut self, cache: Arc<Cache<E>>) {
        if cache.is_same(&self.cache) {
            self.cache = cache;
        }
    }

    /// Returns the interest in the query in flight.
    pub fn interest(&self) -> Interest<E> {
        Interest(self.query.clone())
    }

    /// Takes the leases of the next query and returns its keys, each once; send the query at once.
    /// Returns `None` when no key waits: the loader is done. A query that was not completed is
    /// handed over first, as after a cancellation.
    pub fn next_batch(&mut self, now: Nanos) -> Option<Vec<Key>> {
        if self.over {
            return None;
        }
        self.hand_over();
        self.fills = Fills::default();
        let cache = self.cache.clone();
        let (collection, stats) = cache.collection(self.collection);
        let mut fetches = collection.fetch_queue.lock();
        let (epoch, query) = (collection.epoch(), fetches.fence.query_sent());
        self.lease = Lease { started_at: now, epoch, query, is_of_standby: false };
        let mut refused = Vec::new();
        let taken = loop {
            let half = self.halves.pop();
            if half.is_none() {
                self.split_queries_left = SPLIT_QUERIES_MAX;
            }
            let settings = cache.settings_of(self.collection);
            let mut taken = fetches.next_batch(self.lease, self.keys_max, half, settings, stats);
            refused.append(&mut taken.refused);
            // Nothing may be left to read in one half.
            if !taken.query.is_empty() || self.halves.is_empty() {
                break taken;
            }
        };
        self.over = taken.query.is_empty();
        if self.over {
            fetches.end_loader();
            fetches.fence.query_ended(query);
        }
        self.choose_standby(collection, &mut fetches, &taken.query, now);
        drop(fetches);
        refused.iter().for_each(|flight| flight.finish(Err(LookupError::Overdue)));
        if self.over {
            return None;
        }
        (self.query, self.waited) = (taken.query, taken.waited);
        let keys = self.rows_of_query();
        stats.queries_in_flight.add(1);
        stats.query_sent(keys.len() as u64);
        Some(keys)
    }

    /// Returns the distinct keys of the query, and notes which row answers which flight. Two
    /// flights of one key meet in a query when one of them was put back, or when neither may be
    /// shared.
    fn rows_of_query(&mut self) -> Vec<Key> {
        let mut rows: HashMap<&Key, usize, FixedState> = HashMap::with_capacity_and_hasher(
            self.query.len(),
            FixedState::with_seed(self.cache.config.seed),
        );
        let mut keys = Vec::with_capacity(self.query.len());
        self.row_of_flight.clear();
        for flight in &self.query {
            let row = *rows.entry(&flight.key).or_insert_with(|| {
                keys.push(flight.key.clone());
                keys.len() - 1
            });
            self.row_of_flight.push(row);
        }
        keys
    }

    /// Applies the result of the query: stores the rows whose lease is alive, and answers all
    /// waiters.
    pub fn complete(&mut self, result: Result<Answers<E>, E>, now: Nanos) {
        self.arrived(result, now);
        while self.answer_some(usize::MAX, now) {}
    }

    /// Takes the result of the query. Call [`BatchLoader::answer_some`] until all its keys are
    /// answered.
    pub fn arrived(&mut self, result: Result<Answers<E>, E>, now: Nanos) {
        if self.query.is_empty() {
            return;
        }
        let answers = match result {
            Ok(answers) => answers,
            Err(error) => {
                let query = std::mem::take(&mut self.query);
                query
                    .iter()
                    .for_each(|flight| self.fail(flight, LookupError::Source(error.clone()), now));
                return self.query_ended();
            }
        };
        let visibilities = self.visibilities(&self.query, &answers.version);
        let mut last_use = vec![0; answers.rows.len()];
        for (flight, &row) in self.row_of_flight.iter().enumerate() {
            last_use.iter_mut().skip(row).take(1).for_each(|last| *last = flight);
        }
        let latency = now.since(self.lease.started_at);
        self.taken = Some(QueryResult {
            answers,
            visibilities,
            last_use,
            unread: Vec::new(),
            answered: 0,
            read: 0,
            fills: Fills::default(),
            latency,
        });
    }

    /// Answers waiters of the query's keys until about `bytes_max` of records have been copied, and
    /// at least one. `true`: some are left, and other tasks of this thread may run first.
    pub fn answer_some(&mut self, bytes_max: usize, now: Nanos) -> bool {
        let Some(mut taken) = self.taken.take() else { return false };
        let mut bytes = 0_usize;
        while let Some(flight) = self.query.get(taken.answered).cloned() {
            if bytes >= bytes_max {
                self.taken = Some(taken);
                return true;
            }
            bytes = bytes.saturating_add(self.answer_flight(&mut taken, &flight, now));
            taken.answered += 1;
        }
        let query = std::mem::take(&mut self.query);
        self.put_back(&mut taken, query.len());
        self.fills = taken.fills;
        self.query_ended();
        // An incomplete query says nothing about the cost of its keys.
        if taken.read == query.len() {
            let mut fetches = self.cache.collection(self.collection).0.fetch_queue.lock();
            fetches.policy.ended(query.len(), taken.latency);
        }
        false
    }

    /// Answers one flight with its row. Returns the bytes of its record.
    fn answer_flight(
        &self,
        taken: &mut QueryResult<E>,
        flight: &Arc<Flight<E>>,
        now: Nanos,
    ) -> usize {
        let at = taken.answered;
        let row = self.row_of_flight[taken.answered];
        let (body, stay) = match taken.answers.rows.get(row) {
            Some(Fetched::Found(body)) => (Some(body.as_slice()), Stay::Kept),
            Some(Fetched::Missing) => (None, Stay::Kept),
            Some(Fetched::Uncacheable(body)) => (body.as_deref(), Stay::NoAdmit),
            Some(Fetched::NotRead) => {
                taken.unread.push(flight.clone());
                return 0;
            }
            Some(Fetched::Failed(error)) => {
                taken.read += 1;
                self.fail(flight, LookupError::Source(error.clone()), now);
                return 0;
            }
            None => {
                taken.read += 1;
                self.fail(flight, LookupError::Abandoned, now);
                return 0;
            }
        };
        let bytes = body.map_or(0, <[u8]>::len);
        let record = self.record(&flight.key, body, taken.visibilities[at], &taken.answers, now);
        taken.read += 1;
        let fill = self.answer(flight, record, &taken.answers.version, stay, now);
        taken.fills.count(fill);
        if matches!(fill, Fill::Repeated | Fill::Hidden) {
            self.put_back_one(flight);
        }
        if taken.last_use[row] == at {
            // The record is a copy: both are held for one row at a time only.
            taken.answers.rows[row] = Fetched::Missing;
        }
        bytes
    }

    /// Queues a read again because its answer is older than one already given to a client.
    fn put_back_one(&self, flight: &Arc<Flight<E>>) {
        let (collection, stats) = self.cache.collection(self.collection);
        stats.fill_retries_total.add(1);
        collection.fetch_queue.lock().put_back(std::iter::once(flight.clone()), stats);
    }

    /// Queues again the keys that the query did not reach. A flight that is never reached is
    /// abandoned after some attempts.
    fn put_back(&self, taken: &mut QueryResult<E>, keys: usize) {
        let unread = std::mem::take(&mut taken.unread);
        if unread.is_empty() {
            return;
        }
        let (collection, stats) = self.cache.collection(self.collection);
        // Under the lock, so that no request joins a flight that is about to be abandoned.
        let mut fetches = collection.fetch_queue.lock();
        let (unread, ended): (Vec<_>, Vec<_>) = if unread.len() < keys {
            unread.iter().for_each(|flight| flight.requeue());
            unread.into_iter().partition(|flight| flight.is_wanted())
        } else {
            unread.into_iter().partition(|flight| flight.hand_over())
        };
        ended.iter().for_each(|flight| fetches.retire(flight));
        fetches.put_back(unread.into_iter(), stats);
        drop(fetches);
        ended.iter().for_each(|flight| flight.finish(Err(LookupError::Abandoned)));
    }

    fn query_ended(&self) {
        let (collection, stats) = self.cache.collection(self.collection);
        stats.queries_in_flight.sub(1);
        collection.fetch_queue.lock().fence.query_ended(self.lease.query);
    }

    /// Answers the waiters of the flight, unless another request received a newer answer.
    fn answer(
        &self,
        flight: &Arc<Flight<E>>,
        record: Record,
        version: &Version,
        stay: Stay,
        now: Nanos,
    ) -> Fill {
        let (collection, stats) = self.cache.collection(self.collection);
        let mut fetches = collection.fetch_queue.lock();
        if !flight.accept(version) {
            return Fill::Repeated;
        }
        let is_lost = self.lease.epoch.feed != collection.epoch().feed;
        let hash = self.cache.hash(&flight.key);
        let answer = AnswerOrder {
            key: &flight.key,
            hash,
            version,
            position: record.position(),
            applied: self.cache.source_state(self.collection).progress.applied(),
            is_lost,
        };
        if fetches.order(&answer, &self.cache.safeguards) == Order::TooOld {
            return self.too_old(flight, fetches);
        }
        let alive = fetches.is_current(flight)
            && self.lease.epoch == collection.epoch()
            && !record.is_behind();
        fetches.retire(flight);
        fetches.forget_failure(&flight.key);
        let passes = record.presence() == Presence::Found && self.cache.scan_filter.take(hash);
        let is_kept = stay == Stay::Kept
            && !(flight.kind == Kind::WarmUp && record.presence() == Presence::Missing);
        let fill = if alive && is_kept && !passes && !collection.has_gap() {
            self.cache.store.insert(&flight.key, &record);
            self.cache.note_stored(&flight.key, &record, flight.kind, now);
            Fill::Kept
        } else {
            // No later answer may be older than this one: an entry that may be older is removed,
            // and a read in flight gets this version as its floor.
            stats.fills_discarded_total.add(u64::from(self.cache.config.enabled && !alive));
            stats.fills_not_admitted_total.add(u64::from(passes));
            let older = |entry: Record| !entry.version().dominates(version);
            if self.cache.store.peek(&flight.key).is_some_and(older) {
                self.cache.store.remove(&flight.key, Removal::Invalidated);
            }
            if let Some(other) = fetches.in_flight.get(&flight.key) {
                other.raise_floor(version);
            }
            // What only passes has a lease that lives, as an entry would.
            if !(alive && is_kept && passes) || collection.has_gap() {
                record.note_unproven();
            }
            if passes { Fill::NotAdmitted } else { Fill::Discarded }
        };
        drop(fetches);
        flight.finish(Ok(record));
        fill
    }

    fn fail(&self, flight: &Arc<Flight<E>>, failure: LookupError<E>, now: Nanos) {
        let (collection, stats) = self.cache.collection(self.collection);
        let mut fetches = collection.fetch_queue.lock();
        if fetches.is_current(flight) {
            fetches.note_failure(&flight.key, &failure, now, &self.cache.config);
        }
        fetches.retire(flight);
        stats.failed_keys_total.add(1);
        drop(fetches);
        flight.finish(Err(failure));
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod parts;
#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
