//! One collection's desk: which keys are being read, which wait for the next query, which failed a moment ago.
//!
//! Everything here happens under one lock per collection. Hits never come here. The store's entries of a collection are
//! written only by who holds its desk, so that "is the lease alive?" and "put it in" are one step.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use foldhash::fast::FixedState;
use hotrow_measure::clock::Nanos;

use crate::config::Config;
use crate::fence::Fence;
use crate::flight::{Failure, Flight, Group, Kind, Lease};
use crate::key::Key;
use crate::stats::CollectionStats;

/// Failed keys that are remembered per collection; more are simply read again.
const FAILURES_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct Desk<E> {
    /// The flights that may be joined, if their lease still lives. A lease dies by leaving this table.
    pub(crate) current: HashMap<Key, Arc<Flight<E>>, FixedState>,
    /// Flights that wait for a query, oldest first.
    queue: VecDeque<Arc<Flight<E>>>,
    /// Turns that were given out: each sends one query after the other.
    turns: usize,
    failures: HashMap<Key, (Nanos, Failure<E>), FixedState>,
    pub(crate) fence: Fence,
}

/// Why a read could not be queued.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct QueueFull;

impl<E: Clone> Desk<E> {
    pub(crate) fn new(seed: u64) -> Self {
        let hasher = FixedState::with_seed(seed);
        Self {
            current: HashMap::with_hasher(hasher.clone()),
            queue: VecDeque::new(),
            turns: 0,
            failures: HashMap::with_hasher(hasher),
            fence: Fence::new(seed),
        }
    }

    /// Queues reads of `keys`; those of one call go into one query. Nothing is queued when they do not all fit.
    pub(crate) fn queue(
        &mut self,
        keys: &[&Key],
        kind: Kind,
        config: &Config,
        stats: &CollectionStats,
    ) -> Result<Vec<Arc<Flight<E>>>, QueueFull> {
        let count = keys.len();
        if self.turns == 0 && self.queue.len() + count > config.waiting_keys {
            self.drop_unwanted(stats);
        }
        if self.queue.len() + count > config.waiting_keys {
            stats.refused_total.add(count as u64);
            return Err(QueueFull);
        }
        stats.fills_total.add(count as u64);
        stats.waiting_keys.add(count as u64);
        let mut group = Group { keys: count, key_bytes: keys.iter().map(|key| key.as_bytes().len()).sum() };
        let flights = keys.iter().map(|&key| {
            let flight = Flight::new(key.clone(), kind, std::mem::take(&mut group));
            if kind != Kind::Alone {
                self.current.insert(key.clone(), flight.clone());
            }
            self.queue.push_back(flight.clone());
            flight
        });
        Ok(flights.collect())
    }

    /// Takes out what nobody waits for. Needed only when nobody has a turn, which would do it: after a turn was cancelled
    /// and all who waited have left, a full queue would refuse everyone for ever.
    fn drop_unwanted(&mut self, stats: &CollectionStats) {
        for flight in std::mem::take(&mut self.queue) {
            if flight.has_waiters() {
                self.queue.push_back(flight);
            } else {
                stats.waiting_keys.sub(1);
                self.retire(&flight);
            }
        }
    }

    /// Gives out a turn when there is work and a query may be sent.
    pub(crate) fn take_turn(&mut self, config: &Config) -> bool {
        let free = self.turns < config.reads_in_flight.max(1) && !self.queue.is_empty();
        self.turns += usize::from(free);
        free
    }

    /// The flights of the next query, with their leases taken; `None` ends the turn. A batch is not torn apart unless
    /// it is larger than a query may be.
    pub(crate) fn next_query(
        &mut self,
        lease: Lease,
        config: &Config,
        stats: &CollectionStats,
    ) -> Option<Vec<Arc<Flight<E>>>> {
        let mut query: Vec<Arc<Flight<E>>> = Vec::new();
        let mut key_bytes = 0;
        while let Some(next) = self.queue.front() {
            let size = next.key.as_bytes().len();
            let full = query.len() + next.group.keys.max(1) > config.query_keys
                || key_bytes + next.group.key_bytes.max(size) > config.query_bytes;
            if !query.is_empty() && full {
                break;
            }
            let Some(flight) = self.queue.pop_front() else { break };
            stats.waiting_keys.sub(1);
            if flight.start(lease) {
                key_bytes += size;
                query.push(flight);
            } else {
                self.retire(&flight);
                flight.finish(Err(Failure::Abandoned));
            }
        }
        if query.is_empty() {
            self.turns -= 1;
            return None;
        }
        Some(query)
    }

    /// Whether the flight still is the key's current one.
    pub(crate) fn is_current(&self, flight: &Arc<Flight<E>>) -> bool {
        self.current.get(&flight.key).is_some_and(|current| Arc::ptr_eq(current, flight))
    }

    /// Takes the flight off the table: nobody can join it any more.
    pub(crate) fn retire(&mut self, flight: &Arc<Flight<E>>) {
        if self.is_current(flight) {
            self.current.remove(&flight.key);
        }
    }

    /// Kills the lease of the key's read, if one has begun. A queued read stays: it will see the change.
    pub(crate) fn kill_lease(&mut self, key: &Key) {
        if self.current.get(key).is_some_and(|flight| !flight.is_queued()) {
            self.current.remove(key);
        }
    }

    /// Puts flights back at the head of the queue; their next reads begin later than now.
    pub(crate) fn put_back(
        &mut self,
        flights: impl DoubleEndedIterator<Item = Arc<Flight<E>>>,
        stats: &CollectionStats,
    ) {
        for flight in flights.rev() {
            if flight.kind != Kind::Alone {
                self.current.entry(flight.key.clone()).or_insert_with(|| flight.clone());
            }
            self.queue.push_front(flight);
            stats.waiting_keys.add(1);
        }
    }

    /// Empties the queue: nobody can join what was in it any more, and the caller has to finish it, without this lock.
    pub(crate) fn give_up(&mut self, stats: &CollectionStats) -> Vec<Arc<Flight<E>>> {
        let queued: Vec<_> = std::mem::take(&mut self.queue).into();
        stats.waiting_keys.sub(queued.len() as u64);
        queued.iter().for_each(|flight| self.retire(flight));
        queued
    }

    /// Ends a turn that was cancelled. Gives the flights whose waiters have to be called to lead: any of them may be the
    /// only one that still has a waiter.
    pub(crate) fn abandon_turn(&mut self) -> Vec<Arc<Flight<E>>> {
        self.turns -= 1;
        self.queue.iter().cloned().collect()
    }

    /// Remembers that reading the key failed, for `error_ttl`.
    pub(crate) fn note_failure(&mut self, key: &Key, failure: &Failure<E>, now: Nanos, config: &Config) {
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

    /// The failure that still answers for the key.
    pub(crate) fn recent_failure(&mut self, key: &Key, now: Nanos) -> Option<Failure<E>> {
        let (until, failure) = self.failures.get(key)?;
        if *until > now {
            return Some(failure.clone());
        }
        self.failures.remove(key);
        None
    }

    /// A read of the key succeeded, or the record changed: failures of the past say nothing.
    pub(crate) fn forget_failure(&mut self, key: &Key) {
        if !self.failures.is_empty() {
            self.failures.remove(key);
        }
    }
}
