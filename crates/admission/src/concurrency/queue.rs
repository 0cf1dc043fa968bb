//! Order of a collection's queue, and keys that are rejected unread.
//!
//! First in, first out, while queries empty the queue now and then. A queue that no query has
//! emptied for a while is a *standing queue*: more arrives than can be read, and in order every
//! wait would grow until all answers come too late. Then the newest keys are read first, because
//! their clients still wait, and keys that waited longer than a short target are rejected. This is
//! adaptive LIFO with controlled delay, after Ben Maurer, "Fail at Scale" (ACM Queue 13(8), 2015),
//! and Nichols and Jacobson, "Controlling Queue Delay" (ACM Queue 10(5), 2012). One difference: a
//! query takes many keys, so the sign of overload is a queue that is not empty after queries have
//! taken theirs.

use std::time::Duration;

use hotrow_measure::clock::Nanos;

use super::cost::Cost;

/// Growth of queries per step: largest ratio to the largest recent one.
const EXPLORE: usize = 8;
/// Weight of the newest query in the mean duration.
const NEWEST: f64 = 0.2;

/// Settings of the queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// `false`: always first in, first out; keys are rejected only at the queue's bound.
    pub adaptive: bool,
    /// Longest wait of a key in a standing queue.
    pub target: Duration,
    /// Time for which queries must have left keys behind until the queue counts as standing.
    pub interval: Duration,
    /// A query takes no more keys than it reads in about this time.
    pub query_target: Duration,
}

/// Order of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The oldest key first.
    OldestFirst,
    /// The newest key first: a standing queue.
    Lifo,
}

/// Policy of one queue. Learns from [`QueuePolicy::taken`] and [`QueuePolicy::ended`].
#[derive(Clone, Debug)]
pub struct QueuePolicy {
    config: Config,
    cost: Cost,
    /// Mean duration of a query, in seconds.
    query_s: f64,
    standing: Option<StandingQueue>,
}

/// A period in which queries leave keys behind.
#[derive(Clone, Copy, Debug)]
struct StandingQueue {
    since: Nanos,
    /// Keys that were taken since then.
    keys: f64,
}

impl QueuePolicy {
    /// Creates a policy that has learnt nothing.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { config, cost: Cost::default(), query_s: 0.0, standing: None }
    }

    /// Returns the order in force.
    pub fn order(&self, now: Nanos) -> Order {
        let stands =
            self.standing.is_some_and(|standing| now.since(standing.since) >= self.config.interval);
        if self.config.adaptive && stands { Order::Lifo } else { Order::OldestFirst }
    }

    /// Returns how many keys the next query should take, at most `max`. Batches are not split for
    /// this.
    pub fn query_keys(&self, max: usize) -> usize {
        let target = self.config.query_target;
        let short = |keys| self.cost.estimate(keys).is_none_or(|time| time <= target);
        if !self.config.adaptive || short(max) {
            return max;
        }
        // A large query may take no longer than a small one: found out in steps.
        let most = (self.cost.largest().max(1) * EXPLORE).min(max);
        self.cost.keys_within(target).map_or(most, |keys| keys.clamp(1, most))
    }

    /// Records that a query took `keys` keys and left `left` behind.
    pub fn taken(&mut self, keys: usize, left: usize, now: Nanos) {
        if left == 0 {
            self.standing = None;
            return;
        }
        let standing = self.standing.get_or_insert(StandingQueue { since: now, keys: 0.0 });
        standing.keys += keys as f64;
    }

    /// Records that all waiting keys were answered without a query: the queue is empty.
    pub fn cleared(&mut self) {
        self.standing = None;
    }

    /// Records the latency of a query of `keys` keys.
    pub fn ended(&mut self, keys: usize, latency: Duration) {
        self.cost.learn(keys, latency);
        let seconds = latency.as_secs_f64();
        self.query_s = if self.query_s == 0.0 {
            seconds
        } else {
            self.query_s + NEWEST * (seconds - self.query_s)
        };
    }

    /// Returns the time until a key that arrives now is answered, with `waiting` keys before it;
    /// `None` while unknown: there is no standing queue, or not for long enough.
    pub fn estimate(&self, waiting: usize, now: Nanos) -> Option<Duration> {
        let standing = self.standing.filter(|_| self.config.adaptive)?;
        let query = Duration::from_secs_f64(self.query_s);
        if self.order(now) == Order::Lifo {
            return Some(query);
        }
        let stood = now.since(standing.since);
        let known = stood >= self.config.interval / 4 && standing.keys > 0.0;
        // At most a million times: no overflow.
        known
            .then(|| stood.mul_f64((waiting as f64 / standing.keys).min(1e6)).saturating_add(query))
    }

    /// Returns whether a read that begins now would end after `deadline`.
    pub fn is_too_late(&self, deadline: Nanos, now: Nanos) -> bool {
        let query_s = if self.standing.is_some() { self.query_s } else { 0.0 };
        self.config.adaptive && deadline <= now.after(Duration::from_secs_f64(query_s))
    }

    /// Returns whether a request made at `asked_at` has waited too long.
    pub fn is_too_old(&self, asked_at: Nanos, now: Nanos) -> bool {
        self.order(now) == Order::Lifo && now.since(asked_at) > self.config.target
    }
}

#[cfg(test)]
mod tests;
