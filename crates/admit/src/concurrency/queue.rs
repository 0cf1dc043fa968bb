//! What a collection's next query takes, and which keys are not read at all.
//!
//! First come, first served, while queries empty the queue now and then. A queue that no query has emptied for a while
//! *stands*: more comes than can be read, and in order everyone would wait longer and longer until all come too late.
//! Then the newest are read first, for their clients still wait, and those that have waited longer than a short target are
//! refused. This is adaptive LIFO with a controlled delay, after Ben Maurer, "Fail at Scale" (ACM Queue 13(8), 2015), and
//! Nichols and Jacobson, "Controlling Queue Delay" (ACM Queue 10(5), 2012). What differs: a query takes many keys, so that
//! the sign of overload is a queue that stands after queries have taken theirs, not one that holds something at times.

use std::time::Duration;

use hotrow_measure::clock::Nanos;

use super::cost::Cost;

/// Growth of queries per step: how much larger one may be than any of lately.
const EXPLORE: usize = 8;
/// Weight of the newest query in the mean duration.
const NEWEST: f64 = 0.2;

/// Settings of the queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// `false`: first come, first served, whatever happens; nothing is refused but at the queue's bound.
    pub adaptive: bool,
    /// How long a key may wait while the queue stands.
    pub target: Duration,
    /// How long queries must have left something behind before the queue stands.
    pub interval: Duration,
    /// A query takes no more keys than it reads in about this time.
    pub query_target: Duration,
}

/// Who is read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Who came first.
    OldestFirst,
    /// Who came last: the queue stands.
    NewestFirst,
}

/// Decides for one queue. Learns from what [`Discipline::taken`] and [`Discipline::ended`] tell.
#[derive(Clone, Debug)]
pub struct Discipline {
    config: Config,
    cost: Cost,
    /// Mean duration of a query, in seconds.
    query_s: f64,
    standing: Option<Standing>,
}

/// Since queries leave something behind.
#[derive(Clone, Copy, Debug)]
struct Standing {
    since: Nanos,
    /// Keys that were taken since then.
    keys: f64,
}

impl Discipline {
    /// Nothing learnt yet.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { config, cost: Cost::default(), query_s: 0.0, standing: None }
    }

    /// Who is read next.
    #[must_use]
    pub fn order(&self, now: Nanos) -> Order {
        let stands = self.standing.is_some_and(|standing| now.since(standing.since) >= self.config.interval);
        if self.config.adaptive && stands { Order::NewestFirst } else { Order::OldestFirst }
    }

    /// Most keys that the next query should take of at most `max`. Batches are not torn for this.
    #[must_use]
    pub fn query_keys(&self, max: usize) -> usize {
        let target = self.config.query_target;
        let short = |keys| self.cost.estimate(keys).is_none_or(|time| time <= target);
        if !self.config.adaptive || short(max) {
            return max;
        }
        // Perhaps a large query takes no longer than a small one: that is found out in steps.
        let most = (self.cost.largest().max(1) * EXPLORE).min(max);
        self.cost.keys_within(target).map_or(most, |keys| keys.clamp(1, most))
    }

    /// A query takes so many keys and leaves so many behind.
    pub fn taken(&mut self, keys: usize, left: usize, now: Nanos) {
        if left == 0 {
            self.standing = None;
            return;
        }
        let standing = self.standing.get_or_insert(Standing { since: now, keys: 0.0 });
        standing.keys += keys as f64;
    }

    /// All who waited were answered without a query: the queue is empty, and stands no more.
    pub fn cleared(&mut self) {
        self.standing = None;
    }

    /// A query of so many keys has brought its answers.
    pub fn ended(&mut self, keys: usize, latency: Duration) {
        self.cost.learn(keys, latency);
        let seconds = latency.as_secs_f64();
        self.query_s = if self.query_s == 0.0 { seconds } else { self.query_s + NEWEST * (seconds - self.query_s) };
    }

    /// Time until a key that comes now is answered, with `waiting` keys before it; `None` while nothing is known: the queue
    /// does not stand, or not for long.
    #[must_use]
    pub fn estimate(&self, waiting: usize, now: Nanos) -> Option<Duration> {
        let standing = self.standing.filter(|_| self.config.adaptive)?;
        let query = Duration::from_secs_f64(self.query_s);
        if self.order(now) == Order::NewestFirst {
            return Some(query);
        }
        let stood = now.since(standing.since);
        let known = stood >= self.config.interval / 4 && standing.keys > 0.0;
        // Times a million at most: no overflow.
        known.then(|| stood.mul_f64((waiting as f64 / standing.keys).min(1e6)).saturating_add(query))
    }

    /// Whether a read that begins now would end too late for a client that waits until `deadline`.
    #[must_use]
    pub fn is_too_late(&self, deadline: Nanos, now: Nanos) -> bool {
        let query_s = if self.standing.is_some() { self.query_s } else { 0.0 };
        self.config.adaptive && deadline <= now.after(Duration::from_secs_f64(query_s))
    }

    /// Whether whoever asked at `asked_at` has waited too long to be kept waiting.
    #[must_use]
    pub fn is_too_old(&self, asked_at: Nanos, now: Nanos) -> bool {
        self.order(now) == Order::NewestFirst && now.since(asked_at) > self.config.target
    }
}

#[cfg(test)]
mod tests;
