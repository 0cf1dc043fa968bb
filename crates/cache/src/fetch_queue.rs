//! Fetch queue of one collection: keys being read, keys that wait for the next query, recent
//! failures.
//!
//! One lock per collection guards all of it; hits never take it. Entries of the collection are
//! written only under that lock, so that "is the lease alive?" and "store the entry" are one step.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::FixedState;
use hotrow_admission::concurrency::queue::{Order, QueuePolicy};
use hotrow_measure::clock::Nanos;

use crate::config::{Config, SourceSettings};
use crate::fence::Fence;
use crate::flight::{Ask, Flight, Kind, Lease};
use crate::lookup_error::LookupError;
use crate::marks::Marks;
use crate::standbys::Standbys;
use crate::stats::CollectionStats;
use hotrow_types::key::Key;

/// Most failed keys remembered per collection; others are read again.
const FAILURES_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct FetchQueue<E> {
    /// Flights that may be joined while their lease is alive. A lease dies by leaving this table.
    pub(crate) in_flight: HashMap<Key, Arc<Flight<E>>, FixedState>,
    /// Flights that were put back after a cancelled read: read first, in any order of the queue,
    /// and never dropped from it.
    retry_queue: VecDeque<Arc<Flight<E>>>,
    /// Flights that wait for a query, oldest first.
    queue: VecDeque<Arc<Flight<E>>>,
    /// Loaders at work; each sends one query after another.
    loaders: usize,
    pub(crate) policy: QueuePolicy,
    failures: HashMap<Key, (Nanos, LookupError<E>), FixedState>,
    pub(crate) fence: Fence,
    /// Keys of snapshot batches.
    pub(crate) marks: Marks,
    /// `None`: the primary alone is read.
    pub(crate) standbys: Option<Box<Standbys>>,
}

/// Reason for which a read was not queued.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotQueued {
    Full,
    /// The answer would come after the deadline.
    TooLate,
}

/// Flights of the next query, and flights that are rejected in its place.
#[derive(Debug)]
pub(crate) struct NextQuery<E> {
    pub(crate) query: Vec<Arc<Flight<E>>>,
    key_bytes: usize,
    /// Flights to finish with [`LookupError::Overdue`] after the lock is released.
    pub(crate) refused: Vec<Arc<Flight<E>>>,
    /// Longest wait among the flights of the query.
    pub(crate) waited: Duration,
}

impl<E: Clone> FetchQueue<E> {
    pub(crate) fn new(config: &Config) -> Self {
        let hasher = FixedState::with_seed(config.seed);
        Self {
            in_flight: HashMap::with_hasher(hasher.clone()),
            retry_queue: VecDeque::new(),
            queue: VecDeque::new(),
            loaders: 0,
            policy: QueuePolicy::new(config.queue),
            failures: HashMap::with_hasher(hasher.clone()),
            marks: Marks::new(hasher),
            fence: Fence::new(config.seed),
            standbys: None,
        }
    }

    /// Queues reads of `keys`; the keys of one call go into one query. Queues nothing when they do
    /// not all fit, or when the answer would come after the deadline.
    pub(crate) fn queue(
        &mut self,
        keys: &[&Key],
        kind: Kind,
        ask: Option<Ask>,
        config: &Config,
        stats: &CollectionStats,
    ) -> Result<Vec<Arc<Flight<E>>>, NotQueued> {
        let count = keys.len();
        // Without a loader nothing would drain the queue, so the request must be admitted in order
        // to lead.
        if count > 0 && self.loaders > 0 && ask.is_some_and(|ask| self.exceeds_deadline(ask)) {
            stats.deadline_rejected_total.add(count as u64);
            return Err(NotQueued::TooLate);
        }
        if self.loaders == 0 && self.waiting() + count > config.waiting_keys {
            self.drop_unwanted(stats);
        }
        if self.waiting() + count > config.waiting_keys {
            stats.refused_total.add(count as u64);
            return Err(NotQueued::Full);
        }
        stats.fills_total.add(count as u64);
        stats.waiting_keys.add(count as u64);
        let flights = keys.iter().enumerate().map(|(i, &key)| {
            let flight = Flight::new(key.clone(), kind, i == 0);
            if kind != Kind::Alone {
                self.in_flight.insert(key.clone(), flight.clone());
            }
            self.queue.push_back(flight.clone());
            flight
        });
        Ok(flights.collect())
    }

    /// Removes flights without waiters. Needed only while no loader runs: after a loader was
    /// cancelled and all waiters have left, a full queue would otherwise refuse every request for
    /// ever.
    fn drop_unwanted(&mut self, stats: &CollectionStats) {
        for queue in [&mut self.retry_queue, &mut self.queue] {
            for flight in std::mem::take(queue) {
                if flight.has_waiters() {
                    queue.push_back(flight);
                } else {
                    stats.waiting_keys.sub(1);
                    retire(&mut self.in_flight, &flight);
                }
            }
        }
    }

    /// Returns the number of flights that wait for a query.
    fn waiting(&self) -> usize {
        self.retry_queue.len() + self.queue.len()
    }

    /// Registers a loader when there is work and a query may be sent.
    pub(crate) fn start_loader(&mut self, reads_in_flight: usize) -> bool {
        let free = self.loaders < reads_in_flight.max(1) && self.waiting() > 0;
        self.loaders += usize::from(free);
        free
    }

    /// Returns whether a loader is at work.
    pub(crate) fn has_loader(&self) -> bool {
        self.loaders > 0
    }

    fn exceeds_deadline(&self, ask: Ask) -> bool {
        let wait = self.policy.estimate(self.waiting(), ask.at);
        wait.is_some_and(|wait| ask.at.after(wait) > ask.deadline)
    }

    /// Takes the flights of the next query with their leases, and the flights that are rejected.
    /// Without a query the loader is done. A batch is split only when it is larger than a query may
    /// be.
    ///
    /// `keys_max` bounds the keys of this one query further, but not below one. `half`: queued
    /// flights to take alone ([`FetchQueue::queue_again`]).
    pub(crate) fn next_batch(
        &mut self,
        lease: Lease,
        keys_max: usize,
        half: Option<Vec<Arc<Flight<E>>>>,
        source: &SourceSettings,
        stats: &CollectionStats,
    ) -> NextQuery<E> {
        let now = lease.started_at;
        let order = self.policy.order(now);
        let keys_max = half.as_ref().map_or(keys_max, |half| keys_max.min(half.len()));
        half.into_iter().flatten().rev().for_each(|flight| self.retry_queue.push_front(flight));
        let keys_max = keys_max.clamp(1, source.query_keys.max(1));
        let keys_aim = self.policy.query_keys(source.query_keys);
        let mut taken = NextQuery {
            query: Vec::new(),
            key_bytes: 0,
            refused: Vec::new(),
            waited: Duration::ZERO,
        };
        while let Some((batch, batch_bytes)) = self.pop_group(order) {
            let keys = taken.query.len() + batch;
            let key_bytes = taken.key_bytes + batch_bytes;
            let fits = keys <= keys_max.min(keys_aim) && key_bytes <= source.query_bytes;
            if !taken.query.is_empty() && !fits {
                break;
            }
            for _ in 0..batch {
                let Some(flight) = self.peek(order) else { break };
                let is_full = taken.query.len() >= keys_max
                    || taken.key_bytes + flight.key.as_bytes().len() > source.query_bytes;
                if !taken.query.is_empty() && is_full {
                    break;
                }
                self.take_next(order, lease, &mut taken, stats);
            }
        }
        // Reported before the query is checked: a queue that only rejections emptied is still a
        // standing queue.
        self.policy.taken(taken.query.len(), self.waiting(), now);
        if order == Order::Lifo {
            self.refuse_old(now, &mut taken, stats);
        }
        stats.lifo.set(u64::from(self.policy.order(now) == Order::Lifo));
        taken
    }

    /// Unregisters a loader that has nothing to read.
    pub(crate) fn end_loader(&mut self) {
        self.loaders -= 1;
    }

    /// Returns the number of keys, and their bytes, of the batch that is next.
    fn pop_group(&self, order: Order) -> Option<(usize, usize)> {
        let with = |(keys, bytes), flight: &Arc<Flight<E>>| {
            (keys + 1, bytes + flight.key.as_bytes().len())
        };
        let in_order = |queue: &VecDeque<Arc<Flight<E>>>| {
            let sum = with((0, 0), queue.front()?);
            Some(queue.iter().skip(1).take_while(|flight| !flight.is_first).fold(sum, with))
        };
        match order {
            _ if !self.retry_queue.is_empty() => in_order(&self.retry_queue),
            Order::OldestFirst => in_order(&self.queue),
            Order::Lifo => {
                let mut sum = (0, 0);
                for flight in self.queue.iter().rev() {
                    sum = with(sum, flight);
                    if flight.is_first {
                        break;
                    }
                }
                (sum.0 > 0).then_some(sum)
            }
        }
    }

    fn peek(&self, order: Order) -> Option<&Arc<Flight<E>>> {
        match order {
            _ if !self.retry_queue.is_empty() => self.retry_queue.front(),
            Order::OldestFirst => self.queue.front(),
            Order::Lifo => self.queue.back(),
        }
    }

    /// Moves the next flight into the query, rejects it, or drops it because it has no waiters.
    fn take_next(
        &mut self,
        order: Order,
        lease: Lease,
        taken: &mut NextQuery<E>,
        stats: &CollectionStats,
    ) {
        let next = match order {
            _ if !self.retry_queue.is_empty() => self.retry_queue.pop_front(),
            Order::OldestFirst => self.queue.pop_front(),
            Order::Lifo => self.queue.pop_back(),
        };
        let Some(flight) = next else { return };
        stats.waiting_keys.sub(1);
        let times = flight.waiter_times();
        if times.is_some_and(|times| self.policy.is_too_late(times.deadline, lease.started_at)) {
            stats.deadline_rejected_total.add(1);
            self.retire(&flight);
            taken.refused.push(flight);
        } else if flight.start(lease) {
            let waited =
                times.map_or(Duration::ZERO, |times| lease.started_at.since(times.first_at));
            taken.waited = taken.waited.max(waited);
            taken.key_bytes += flight.key.as_bytes().len();
            taken.query.push(flight);
        } else {
            self.retire(&flight);
            flight.finish(Err(LookupError::Abandoned));
        }
    }

    /// Rejects flights that have waited too long while the newest go first. A key that was
    /// requested again recently counts as new, with all its waiters. A flight without waiters is
    /// removed as well and read on the next request.
    fn refuse_old(&mut self, now: Nanos, taken: &mut NextQuery<E>, stats: &CollectionStats) {
        let mut renewed = Vec::new();
        while let Some(flight) = self.queue.pop_front() {
            let times = flight.waiter_times();
            if times.is_some_and(|times| !self.policy.is_too_old(times.first_at, now)) {
                self.queue.push_front(flight);
                break;
            }
            if times.is_some_and(|times| !self.policy.is_too_old(times.last_at, now)) {
                renewed.push(flight);
                continue;
            }
            stats.waiting_keys.sub(1);
            stats.queue_dropped_total.add(u64::from(times.is_some()));
            self.retire(&flight);
            taken.refused.push(flight);
        }
        self.queue.extend(renewed);
    }

    /// Returns whether the flight is the current one of its key.
    pub(crate) fn is_current(&self, flight: &Arc<Flight<E>>) -> bool {
        self.in_flight.get(&flight.key).is_some_and(|current| Arc::ptr_eq(current, flight))
    }

    /// Removes the flight from the table, so that no request can join it.
    pub(crate) fn retire(&mut self, flight: &Arc<Flight<E>>) {
        retire(&mut self.in_flight, flight);
    }

    /// Ends the lease of the key's read, if it has begun. A queued read stays, because it will see
    /// the change.
    pub(crate) fn kill_lease(&mut self, key: &Key) {
        if self.in_flight.get(key).is_some_and(|flight| !flight.is_queued()) {
            self.in_flight.remove(key);
        }
    }

    /// Queues flights again, to be read next. Their next reads begin later than now.
    pub(crate) fn put_back(
        &mut self,
        flights: impl Iterator<Item = Arc<Flight<E>>>,
        stats: &CollectionStats,
    ) {
        for flight in flights {
            self.queue_again(&flight, stats);
            self.retry_queue.push_back(flight);
        }
    }

    /// Counts a flight as queued and lets requests join it. Its loader holds it until its query.
    pub(crate) fn queue_again(&mut self, flight: &Arc<Flight<E>>, stats: &CollectionStats) {
        if flight.kind != Kind::Alone {
            self.in_flight.entry(flight.key.clone()).or_insert_with(|| flight.clone());
        }
        stats.waiting_keys.add(1);
    }

    /// Empties the queue. No request can join the returned flights; the caller finishes them after
    /// releasing the lock.
    pub(crate) fn give_up(&mut self, stats: &CollectionStats) -> Vec<Arc<Flight<E>>> {
        let queued: Vec<_> = self.retry_queue.drain(..).chain(self.queue.drain(..)).collect();
        stats.waiting_keys.sub(queued.len() as u64);
        self.policy.cleared();
        stats.lifo.set(0);
        queued.iter().for_each(|flight| self.retire(flight));
        queued
    }

    /// Unregisters a cancelled loader. Returns the flights whose waiters must be asked to lead; any
    /// one of them may be the only one with a waiter.
    ///
    /// `held`: flights that the loader has queued again and holds.
    pub(crate) fn abandon_loader(
        &mut self,
        held: impl Iterator<Item = Arc<Flight<E>>>,
    ) -> Vec<Arc<Flight<E>>> {
        self.end_loader();
        self.retry_queue.extend(held);
        self.retry_queue.iter().chain(&self.queue).cloned().collect()
    }

    /// Remembers for `error_ttl` that reading the key failed.
    pub(crate) fn note_failure(
        &mut self,
        key: &Key,
        failure: &LookupError<E>,
        now: Nanos,
        config: &Config,
    ) {
        if config.error_ttl.is_zero() {
            return;
        }
        if self.failures.len() >= FAILURES_MAX {
            self.failures.retain(|_, (until, _)| *until > now);
        }
        if self.failures.len() < FAILURES_MAX {
            self.failures.insert(key.clone(), (now.after(config.error_ttl), failure.clone()));
        }
    }

    /// Returns the failure that still answers for the key.
    pub(crate) fn recent_failure(&mut self, key: &Key, now: Nanos) -> Option<LookupError<E>> {
        let (until, failure) = self.failures.get(key)?;
        if *until > now {
            return Some(failure.clone());
        }
        self.failures.remove(key);
        None
    }

    /// Forgets failures of the key, because a read succeeded or the record changed.
    pub(crate) fn forget_failure(&mut self, key: &Key) {
        if !self.failures.is_empty() {
            self.failures.remove(key);
        }
    }
}

/// Removes the flight from the table if it is the current one of its key.
fn retire<E>(current: &mut HashMap<Key, Arc<Flight<E>>, FixedState>, flight: &Arc<Flight<E>>) {
    if current.get(&flight.key).is_some_and(|current| Arc::ptr_eq(current, flight)) {
        current.remove(&flight.key);
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
