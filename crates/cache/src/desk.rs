//! One collection's desk: which keys are being read, which wait for the next query, which failed a moment ago.
//!
//! Everything here happens under one lock per collection. Hits never come here. The store's entries of a collection are
//! written only by who holds its desk, so that "is the lease alive?" and "put it in" are one step.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::FixedState;
use hotrow_admit::concurrency::queue::{Discipline, Order};
use hotrow_measure::clock::Nanos;

use crate::config::Config;
use crate::fence::Fence;
use crate::flight::{Ask, Failure, Flight, Kind, Lease};
use crate::key::Key;
use crate::stats::CollectionStats;

/// Failed keys that are remembered per collection; more are simply read again.
const FAILURES_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct Desk<E> {
    /// The flights that may be joined, if their lease still lives. A lease dies by leaving this table.
    pub(crate) current: HashMap<Key, Arc<Flight<E>>, FixedState>,
    /// Flights that were put back: read before all others, in whatever order those are, and not displaced.
    again: VecDeque<Arc<Flight<E>>>,
    /// Flights that wait for a query, oldest first.
    queue: VecDeque<Arc<Flight<E>>>,
    /// Turns that were given out: each sends one query after the other.
    turns: usize,
    pub(crate) discipline: Discipline,
    failures: HashMap<Key, (Nanos, Failure<E>), FixedState>,
    pub(crate) fence: Fence,
}

/// Why a read was not queued.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotQueued {
    Full,
    /// It would be answered after its deadline.
    TooLate,
}

/// What the next query takes.
#[derive(Debug)]
pub(crate) struct Taken<E> {
    pub(crate) query: Vec<Arc<Flight<E>>>,
    key_bytes: usize,
    /// To be told [`Failure::Overdue`] when the desk's lock is released.
    pub(crate) refused: Vec<Arc<Flight<E>>>,
    /// How long the one who waited longest has waited.
    pub(crate) waited: Duration,
}

impl<E: Clone> Desk<E> {
    pub(crate) fn new(config: &Config) -> Self {
        let hasher = FixedState::with_seed(config.seed);
        Self {
            current: HashMap::with_hasher(hasher.clone()),
            again: VecDeque::new(),
            queue: VecDeque::new(),
            turns: 0,
            discipline: Discipline::new(config.queue),
            failures: HashMap::with_hasher(hasher),
            fence: Fence::new(config.seed),
        }
    }

    /// Queues reads of `keys`; those of one call go into one query. Nothing is queued when they do not all fit, or when who
    /// asks would be answered too late.
    pub(crate) fn queue(
        &mut self,
        keys: &[&Key],
        kind: Kind,
        ask: Option<Ask>,
        config: &Config,
        stats: &CollectionStats,
    ) -> Result<Vec<Arc<Flight<E>>>, NotQueued> {
        let count = keys.len();
        // Without a turn nothing would end this state: then somebody has to lead.
        if count > 0 && self.turns > 0 && ask.is_some_and(|ask| self.comes_too_late(ask)) {
            stats.overdue_total.add(count as u64);
            return Err(NotQueued::TooLate);
        }
        if self.turns == 0 && self.waiting() + count > config.waiting_keys {
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
        for queue in [&mut self.again, &mut self.queue] {
            for flight in std::mem::take(queue) {
                if flight.has_waiters() {
                    queue.push_back(flight);
                } else {
                    stats.waiting_keys.sub(1);
                    retire(&mut self.current, &flight);
                }
            }
        }
    }

    /// Flights that wait for a query.
    fn waiting(&self) -> usize {
        self.again.len() + self.queue.len()
    }

    /// Gives out a turn when there is work and a query may be sent.
    pub(crate) fn take_turn(&mut self, config: &Config) -> bool {
        let free = self.turns < config.reads_in_flight.max(1) && self.waiting() > 0;
        self.turns += usize::from(free);
        free
    }

    /// Whether somebody carries out what is queued.
    pub(crate) fn is_led(&self) -> bool {
        self.turns > 0
    }

    fn comes_too_late(&self, ask: Ask) -> bool {
        let wait = self.discipline.estimate(self.waiting(), ask.at);
        wait.is_some_and(|wait| ask.at.after(wait) > ask.deadline)
    }

    /// The flights of the next query, with their leases taken, and those that are refused instead; without a query the turn
    /// is over. A batch is not torn apart unless it is larger than a query may be.
    pub(crate) fn next_query(&mut self, lease: Lease, config: &Config, stats: &CollectionStats) -> Taken<E> {
        let now = lease.started_at;
        let order = self.discipline.order(now);
        let keys_aim = self.discipline.query_keys(config.query_keys);
        let mut taken = Taken { query: Vec::new(), key_bytes: 0, refused: Vec::new(), waited: Duration::ZERO };
        while let Some((batch, batch_bytes)) = self.next_batch(order) {
            let (keys, key_bytes) = (taken.query.len() + batch, taken.key_bytes + batch_bytes);
            let fits = keys <= config.query_keys.min(keys_aim) && key_bytes <= config.query_bytes;
            if !taken.query.is_empty() && !fits {
                break;
            }
            for _ in 0..batch {
                let Some(flight) = self.peek(order) else { break };
                let is_full = taken.query.len() >= config.query_keys
                    || taken.key_bytes + flight.key.as_bytes().len() > config.query_bytes;
                if !taken.query.is_empty() && is_full {
                    break;
                }
                self.take_next(order, lease, &mut taken, stats);
            }
        }
        // Told first: a queue that only refusals emptied still stands.
        self.discipline.taken(taken.query.len(), self.waiting(), now);
        if order == Order::NewestFirst {
            self.refuse_old(now, &mut taken, stats);
        }
        stats.newest_first.set(u64::from(self.discipline.order(now) == Order::NewestFirst));
        self.turns -= usize::from(taken.query.is_empty());
        taken
    }

    /// Number of keys, and their bytes, of the batch that is next.
    fn next_batch(&self, order: Order) -> Option<(usize, usize)> {
        let with = |(keys, bytes), flight: &Arc<Flight<E>>| (keys + 1, bytes + flight.key.as_bytes().len());
        let in_order = |queue: &VecDeque<Arc<Flight<E>>>| {
            let sum = with((0, 0), queue.front()?);
            Some(queue.iter().skip(1).take_while(|flight| !flight.is_first).fold(sum, with))
        };
        match order {
            _ if !self.again.is_empty() => in_order(&self.again),
            Order::OldestFirst => in_order(&self.queue),
            Order::NewestFirst => {
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
            _ if !self.again.is_empty() => self.again.front(),
            Order::OldestFirst => self.queue.front(),
            Order::NewestFirst => self.queue.back(),
        }
    }

    /// Moves the next flight into the query, or refuses it, or drops it because nobody wants it any more.
    fn take_next(&mut self, order: Order, lease: Lease, taken: &mut Taken<E>, stats: &CollectionStats) {
        let next = match order {
            _ if !self.again.is_empty() => self.again.pop_front(),
            Order::OldestFirst => self.queue.pop_front(),
            Order::NewestFirst => self.queue.pop_back(),
        };
        let Some(flight) = next else { return };
        stats.waiting_keys.sub(1);
        let asked = flight.asked();
        if asked.is_some_and(|asked| self.discipline.is_too_late(asked.deadline, lease.started_at)) {
            stats.overdue_total.add(1);
            self.retire(&flight);
            taken.refused.push(flight);
        } else if flight.start(lease) {
            let waited = asked.map_or(Duration::ZERO, |asked| lease.started_at.since(asked.first_at));
            taken.waited = taken.waited.max(waited);
            taken.key_bytes += flight.key.as_bytes().len();
            taken.query.push(flight);
        } else {
            self.retire(&flight);
            flight.finish(Err(Failure::Abandoned));
        }
    }

    /// Refuses those who have waited too long while newer ones go first. A key that was asked for again lately counts as new,
    /// with all who wait for it. What nobody waits for goes too: it is read when somebody asks.
    fn refuse_old(&mut self, now: Nanos, taken: &mut Taken<E>, stats: &CollectionStats) {
        let mut renewed = Vec::new();
        while let Some(flight) = self.queue.pop_front() {
            let asked = flight.asked();
            if asked.is_some_and(|asked| !self.discipline.is_too_old(asked.first_at, now)) {
                self.queue.push_front(flight);
                break;
            }
            if asked.is_some_and(|asked| !self.discipline.is_too_old(asked.last_at, now)) {
                renewed.push(flight);
                continue;
            }
            stats.waiting_keys.sub(1);
            stats.displaced_total.add(u64::from(asked.is_some()));
            self.retire(&flight);
            taken.refused.push(flight);
        }
        self.queue.extend(renewed);
    }

    /// Whether the flight still is the key's current one.
    pub(crate) fn is_current(&self, flight: &Arc<Flight<E>>) -> bool {
        self.current.get(&flight.key).is_some_and(|current| Arc::ptr_eq(current, flight))
    }

    /// Takes the flight off the table: nobody can join it any more.
    pub(crate) fn retire(&mut self, flight: &Arc<Flight<E>>) {
        retire(&mut self.current, flight);
    }

    /// Kills the lease of the key's read, if one has begun. A queued read stays: it will see the change.
    pub(crate) fn kill_lease(&mut self, key: &Key) {
        if self.current.get(key).is_some_and(|flight| !flight.is_queued()) {
            self.current.remove(key);
        }
    }

    /// Puts flights back, to be read next; their next reads begin later than now.
    pub(crate) fn put_back(&mut self, flights: impl Iterator<Item = Arc<Flight<E>>>, stats: &CollectionStats) {
        for flight in flights {
            if flight.kind != Kind::Alone {
                self.current.entry(flight.key.clone()).or_insert_with(|| flight.clone());
            }
            self.again.push_back(flight);
            stats.waiting_keys.add(1);
        }
    }

    /// Empties the queue: nobody can join what was in it any more, and the caller has to finish it, without this lock.
    pub(crate) fn give_up(&mut self, stats: &CollectionStats) -> Vec<Arc<Flight<E>>> {
        let queued: Vec<_> = self.again.drain(..).chain(self.queue.drain(..)).collect();
        stats.waiting_keys.sub(queued.len() as u64);
        self.discipline.cleared();
        stats.newest_first.set(0);
        queued.iter().for_each(|flight| self.retire(flight));
        queued
    }

    /// Ends a turn that was cancelled. Gives the flights whose waiters have to be called to lead: any of them may be the
    /// only one that still has a waiter.
    pub(crate) fn abandon_turn(&mut self) -> Vec<Arc<Flight<E>>> {
        self.turns -= 1;
        self.again.iter().chain(&self.queue).cloned().collect()
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

/// Takes the flight off the table if it still is the key's current one.
fn retire<E>(current: &mut HashMap<Key, Arc<Flight<E>>, FixedState>, flight: &Arc<Flight<E>>) {
    if current.get(&flight.key).is_some_and(|current| Arc::ptr_eq(current, flight)) {
        current.remove(&flight.key);
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
