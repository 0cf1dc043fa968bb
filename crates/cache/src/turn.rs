//! A turn at the database: one query after the other while keys of the collection wait.
//!
//! Merging needs no timer: the first cold key goes at once, alone; whatever is asked for while queries are under way
//! goes together in the next one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::FixedState;
use hotrow_measure::clock::Nanos;

use crate::cache::Cache;
use crate::config::Upkeep;
use crate::fixes::Fix;
use crate::flight::{Failure, Flight, Lease};
use crate::key::{CollectionId, Key};
use crate::record::{Draft, Presence, Record, Sight};
use crate::stats::Removal;
use crate::version::{Position, Version};

/// What one query brought.
#[derive(Debug)]
pub struct Answers<E> {
    /// What the read saw.
    pub version: Version,
    /// The log's end, read with the rows.
    pub position: Option<Position>,
    /// One per key of the query, in its order; missing ones at the end count as failed.
    pub rows: Vec<Fetched<E>>,
}

/// One key's answer.
#[derive(Debug)]
pub enum Fetched<E> {
    /// The record as JSON.
    Found(Vec<u8>),
    /// There is no such record.
    Missing,
    /// A record, or that there is none, under a name by which the feed would not report its change: given to those who
    /// wait, and not kept.
    Passing(Option<Vec<u8>>),
    /// This one could not be read; the others of the query are not harmed.
    Failed(E),
}

/// Whether an answer may be kept, as far as the source knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stay {
    Kept,
    Passing,
}

/// The right to send queries for a collection, one at a time. Dropping it in the middle of a query (a cancelled task, a
/// panic) hands the keys over to the next waiter.
pub struct Turn<E: Clone> {
    cache: Arc<Cache<E>>,
    collection: CollectionId,
    query: Vec<Arc<Flight<E>>>,
    /// Which row of the query answers which of its flights.
    row_of_flight: Vec<usize>,
    lease: Lease,
    /// Of the query under way, for the fence.
    number: u64,
    /// How long the one of the query who waited longest had waited.
    waited: Duration,
    over: bool,
}

impl<E: Clone> Turn<E> {
    pub(crate) fn new(cache: Arc<Cache<E>>, collection: CollectionId) -> Self {
        let lease = Lease { started_at: Nanos::ZERO, era: cache.collection(collection).0.era() };
        Self {
            cache,
            collection,
            query: Vec::new(),
            row_of_flight: Vec::new(),
            lease,
            number: 0,
            waited: Duration::ZERO,
            over: false,
        }
    }

    /// The collection whose keys these are.
    #[must_use]
    pub fn collection(&self) -> CollectionId {
        self.collection
    }

    /// How long the one of the query under way who waited longest had waited when it was put together.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.waited
    }

    #[cfg(test)]
    #[cfg(not(feature = "shuttle"))]
    pub(crate) fn lease(&self) -> Lease {
        self.lease
    }

    /// Takes the leases of the next query and gives its keys, each once; send it now. `None`: nothing waits, the turn is
    /// over. A query that was not completed is handed over first, as if its reader had been cancelled.
    pub fn next_query(&mut self, now: Nanos) -> Option<Vec<Key>> {
        if self.over {
            return None;
        }
        self.hand_over();
        let cache = self.cache.clone();
        let (collection, stats) = cache.collection(self.collection);
        let mut desk = collection.desk.lock();
        self.lease = Lease { started_at: now, era: collection.era() };
        let taken = desk.next_query(self.lease, &cache.config, stats);
        self.over = taken.query.is_empty();
        if !self.over {
            self.number = desk.fence.query_sent();
        }
        drop(desk);
        taken.refused.iter().for_each(|flight| flight.finish(Err(Failure::Overdue)));
        if self.over {
            return None;
        }
        (self.query, self.waited) = (taken.query, taken.waited);
        let keys = self.rows_of_query();
        stats.queries_in_flight.add(1);
        stats.query_sent(keys.len() as u64);
        Some(keys)
    }

    /// The distinct keys of the query, and which of its rows answers which flight. Flights of one key meet in a query when
    /// one of them was put back, or when they are of requests that share nothing but the query.
    fn rows_of_query(&mut self) -> Vec<Key> {
        let mut rows: HashMap<&Key, usize, FixedState> =
            HashMap::with_capacity_and_hasher(self.query.len(), FixedState::with_seed(self.cache.config.seed));
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

    /// Takes in what the query brought: keeps what its lease still allows, and answers all who wait.
    pub fn complete(&mut self, result: Result<Answers<E>, E>, now: Nanos) {
        let query = std::mem::take(&mut self.query);
        if query.is_empty() {
            return;
        }
        self.cache.collection(self.collection).1.queries_in_flight.sub(1);
        let (keys, answered) = (query.len(), result.is_ok());
        match result {
            Ok(answers) => self.take_in(query, &answers, now),
            Err(error) => {
                query.iter().for_each(|flight| self.fail(flight, Failure::Source(error.clone()), now));
            }
        }
        let mut desk = self.cache.collection(self.collection).0.desk.lock();
        desk.fence.query_ended(self.number);
        if answered {
            desk.discipline.ended(keys, now.since(self.lease.started_at));
        }
    }

    fn take_in(&self, query: Vec<Arc<Flight<E>>>, answers: &Answers<E>, now: Nanos) {
        let mut again = Vec::new();
        let sight = self.sight(&query, &answers.version);
        for ((flight, &row), sight) in query.into_iter().zip(&self.row_of_flight).zip(sight) {
            let (body, stay) = match answers.rows.get(row) {
                Some(Fetched::Found(body)) => (Some(body.as_slice()), Stay::Kept),
                Some(Fetched::Missing) => (None, Stay::Kept),
                Some(Fetched::Passing(body)) => (body.as_deref(), Stay::Passing),
                Some(Fetched::Failed(error)) => {
                    self.fail(&flight, Failure::Source(error.clone()), now);
                    continue;
                }
                None => {
                    self.fail(&flight, Failure::Abandoned, now);
                    continue;
                }
            };
            let record = self.record(&flight.key, body, sight, answers, now);
            if !self.answer(&flight, record, &answers.version, stay) {
                again.push(flight);
            }
        }
        if !again.is_empty() {
            let (collection, stats) = self.cache.collection(self.collection);
            stats.rereads_total.add(again.len() as u64);
            collection.desk.lock().put_back(again.into_iter(), stats);
        }
    }

    /// Per flight, whether its answer sees what the feed delivered. Changes that are delivered from now on end leases.
    fn sight(&self, query: &[Arc<Flight<E>>], version: &Version) -> Vec<Sight> {
        let collection = self.cache.collection(self.collection).0;
        let mut desk = collection.desk.lock();
        let lost = self.lease.era.loss != collection.era().loss;
        let fenced = !desk.fence.is_open() && self.cache.fixes.has(Fix::Fence);
        let sight = |flight: &Arc<Flight<E>>| match lost || fenced && desk.fence.hides(&flight.key, version) {
            true => Sight::Behind,
            false => Sight::Whole,
        };
        let sights = query.iter().map(sight).collect();
        if !desk.fence.is_open() {
            desk.fence.seen(version);
        }
        sights
    }

    fn record(&self, key: &Key, body: Option<&[u8]>, sight: Sight, answers: &Answers<E>, now: Nanos) -> Record {
        let (collection, _) = self.cache.collection(self.collection);
        let ttl = if body.is_some() { collection.config.ttl } else { collection.config.negative_ttl };
        let config = &self.cache.config;
        let life = jittered(ttl, config.ttl_jitter, config.seed ^ self.cache.hash(key) ^ now.0);
        let Lease { started_at: read_at, era } = self.lease;
        let Answers { version, position, .. } = answers;
        Record::new(&Draft {
            key,
            body,
            read_at,
            expires_at: read_at.after(life),
            version,
            position: position.filter(|_| self.cache.config.upkeep == Upkeep::Feed),
            sight,
            era,
        })
    }

    /// Gives the answer to the flight's waiters; `false` when it must be read again because someone got a newer one.
    fn answer(&self, flight: &Arc<Flight<E>>, record: Record, version: &Version, stay: Stay) -> bool {
        let (collection, stats) = self.cache.collection(self.collection);
        let mut desk = collection.desk.lock();
        if !flight.accept(version) {
            return false;
        }
        let alive = desk.is_current(flight) && self.lease.era == collection.era() && !record.is_behind();
        desk.retire(flight);
        desk.forget_failure(&flight.key);
        let passes = record.presence() == Presence::Found && self.cache.passing.take(self.cache.hash(&flight.key));
        if alive && stay == Stay::Kept && !passes {
            self.cache.store.insert(&flight.key, &record);
        } else {
            // No later answer may be older than this one: an entry that might be goes, a read under way is held to it.
            stats.dead_leases_total.add(u64::from(self.cache.config.enabled && !alive));
            stats.passing_total.add(u64::from(passes));
            let older = |entry: Record| !entry.version().covers(version);
            if self.cache.store.peek(&flight.key).is_some_and(older) {
                self.cache.store.remove(&flight.key, Removal::Invalidated);
            }
            if let Some(other) = desk.current.get(&flight.key) {
                other.raise_floor(version);
            }
        }
        drop(desk);
        flight.finish(Ok(record));
        true
    }

    fn fail(&self, flight: &Arc<Flight<E>>, failure: Failure<E>, now: Nanos) {
        let (collection, stats) = self.cache.collection(self.collection);
        let mut desk = collection.desk.lock();
        if desk.is_current(flight) {
            desk.note_failure(&flight.key, &failure, now, &self.cache.config);
        }
        desk.retire(flight);
        stats.failed_keys_total.add(1);
        drop(desk);
        flight.finish(Err(failure));
    }
}

impl<E: Clone> Turn<E> {
    /// Gives up the query under way, if there is one: its flights are queued again, or come to their end.
    fn hand_over(&mut self) {
        let query = std::mem::take(&mut self.query);
        if query.is_empty() {
            return;
        }
        let (collection, stats) = self.cache.collection(self.collection);
        stats.queries_in_flight.sub(1);
        let mut desk = collection.desk.lock();
        desk.fence.query_ended(self.number);
        let (again, ended): (Vec<_>, Vec<_>) = query.into_iter().partition(|flight| flight.hand_over());
        ended.iter().for_each(|flight| desk.retire(flight));
        desk.put_back(again.into_iter(), stats);
        drop(desk);
        ended.iter().for_each(|flight| flight.finish(Err(Failure::Abandoned)));
    }
}

impl<E: Clone> Drop for Turn<E> {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        self.hand_over();
        let queued = self.cache.collection(self.collection).0.desk.lock().abandon_turn();
        queued.iter().for_each(|flight| flight.call_leader());
    }
}

/// A lifetime shortened by up to `jitter` of itself; `random` is a number without pattern.
fn jittered(ttl: Duration, jitter: f64, random: u64) -> Duration {
    // The upper bits of a multiplicative hash, as a fraction of 0 to 1.
    let unit = (random.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11) as f64 / (1_u64 << 53) as f64;
    let jitter = if jitter > 0.0 { jitter.min(1.0) } else { 0.0 };
    // `as` stops at 584 years, which is for ever.
    Duration::from_nanos((ttl.as_nanos() as f64 * (1.0 - jitter * unit)) as u64)
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
