//! A token bucket with one owner, and every call that one can wish for.
//!
//! It starts full, gains `quantum` tokens at the end of every `fill_interval` up to its capacity, and what overflows is lost. Nothing
//! runs in the background: each call works out from the time that has passed what has come in. Who takes more than there is
//! owes it and is told how long to wait: an empty bucket is a leaky bucket at the fill rate. The calls and their results are
//! those of Go's `juju/ratelimit`, which our users know; changes while it runs, and warm-up, it does not have.

use std::time::Duration;

use hotrow_measure::clock::Nanos;

use super::sync::Mutex;
use super::warm_up::{COLD_FACTOR, WarmUp};

/// Most tokens that a bucket holds, and most that one call takes: sums then never overflow.
pub const TOKENS_MAX: u64 = 1 << 40;

/// Tokens that come in over time.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    capacity: u64,
    quantum: u64,
    interval_ns: u64,
    /// When the present intervals began to be counted, in nanoseconds that count, how much of the first had passed by then, and
    /// how many have come in since.
    since_ns: u64,
    passed_ns: u64,
    intervals: u64,
    /// Negative: owed.
    tokens: i64,
    warm_up: WarmUp,
    used: Nanos,
}

impl TokenBucket {
    /// A full bucket. `capacity` and `quantum` are 1 to [`TOKENS_MAX`] and `fill_interval` is at least a nanosecond: other
    /// values are taken as the nearest of these.
    #[must_use]
    pub fn new(fill_interval: Duration, capacity: u64, quantum: u64, now: Nanos) -> Self {
        let capacity = capacity.clamp(1, TOKENS_MAX);
        Self {
            capacity,
            quantum: quantum.clamp(1, TOKENS_MAX),
            interval_ns: nanos(fill_interval).max(1),
            since_ns: 0,
            passed_ns: 0,
            intervals: 0,
            tokens: capacity as i64,
            warm_up: WarmUp::new(0, now),
            used: now,
        }
    }

    /// The same bucket, cold: over the warm-up its rate grows linearly from a third of its own to the whole. When nothing was asked
    /// of it for as long as the warm-up lasts, it is cold again. A cold bucket holds a third of its capacity, or else the burst
    /// that it has saved up would go out at once, just when what stands behind it is cold too.
    #[must_use]
    pub fn with_warm_up(mut self, warm_up: Duration, now: Nanos) -> Self {
        self.warm_up = WarmUp::new(nanos(warm_up), now);
        (self.since_ns, self.passed_ns, self.intervals) = (0, 0, 0);
        self.cool(now);
        self
    }

    /// Takes `tokens` now, and tells how long to wait until they are really there.
    pub fn take(&mut self, now: Nanos, tokens: u64) -> Duration {
        // With so long a wait allowed nothing is refused.
        self.take_max_wait(now, tokens, Duration::MAX).unwrap_or(Duration::MAX)
    }

    /// Takes `tokens` if the wait for them is not longer than `max_wait`, and tells the wait; else takes nothing.
    pub fn take_max_wait(&mut self, now: Nanos, tokens: u64, max_wait: Duration) -> Option<Duration> {
        self.settle(now);
        let left = self.tokens.saturating_sub(tokens.min(TOKENS_MAX) as i64);
        let wait = if left >= 0 { Duration::ZERO } else { self.wait_for(left.unsigned_abs(), now) };
        if wait > max_wait {
            return None;
        }
        self.tokens = left;
        Some(wait)
    }

    /// Takes as many of `tokens` as are there, and tells how many.
    pub fn take_available(&mut self, now: Nanos, tokens: u64) -> u64 {
        self.settle(now);
        let taken = (self.tokens.max(0) as u64).min(tokens);
        self.tokens -= taken as i64;
        taken
    }

    /// Tokens that are there; negative: owed.
    pub fn available(&mut self, now: Nanos) -> i64 {
        self.settle(now);
        self.tokens
    }

    /// Sets how fast tokens come in. Tokens and debts stay; of the interval that has begun, the part that has passed stays passed.
    pub fn set_fill(&mut self, now: Nanos, fill_interval: Duration, quantum: u64) {
        self.settle(now);
        let counted = self.warm_up.counted_ns(now);
        let passed = self.elapsed_ns(counted) % self.interval_ns;
        let interval_ns = nanos(fill_interval).max(1);
        let passed = u128::from(passed) * u128::from(interval_ns) / u128::from(self.interval_ns);
        // A part of the new interval, which is a u64.
        (self.since_ns, self.passed_ns, self.intervals) = (counted, passed as u64, 0);
        (self.interval_ns, self.quantum) = (interval_ns, quantum.clamp(1, TOKENS_MAX));
    }

    /// Sets the capacity. A larger bucket holds what it held and fills up in time; a smaller one loses what does not fit; debts
    /// stay.
    pub fn set_capacity(&mut self, now: Nanos, capacity: u64) {
        self.settle(now);
        self.capacity = capacity.clamp(1, TOKENS_MAX);
        self.tokens = self.tokens.min(self.capacity as i64);
    }

    /// Takes in what has come since the last call.
    fn settle(&mut self, now: Nanos) {
        self.take_in(now);
        let over_ns = self.warm_up.over_ns();
        if over_ns > 0 && now.0.saturating_sub(self.used.0) >= over_ns {
            self.warm_up.begin_again(now);
            self.cool(now);
        }
        self.used = self.used.max(now);
    }

    fn take_in(&mut self, now: Nanos) {
        let intervals = self.elapsed_ns(self.warm_up.counted_ns(now)) / self.interval_ns;
        // A clock reading may be older than the one before: then nothing has come.
        let new = intervals.saturating_sub(self.intervals).saturating_mul(self.quantum).min(i64::MAX as u64);
        self.tokens = self.tokens.saturating_add(new as i64).min(self.capacity as i64);
        self.intervals = self.intervals.max(intervals);
    }

    fn cool(&mut self, now: Nanos) {
        if self.warm_up.over_ns() > 0 {
            self.tokens = self.tokens.min((self.capacity / COLD_FACTOR).max(1) as i64);
            self.used = now;
        }
    }

    /// Until so many more tokens than there are will have come in.
    fn wait_for(&self, tokens: u64, now: Nanos) -> Duration {
        let intervals = self.intervals.saturating_add(tokens.div_ceil(self.quantum));
        let end = intervals.saturating_mul(self.interval_ns).saturating_sub(self.passed_ns);
        self.warm_up.moment(self.since_ns.saturating_add(end)).since(now)
    }

    /// Since the beginning of the first interval.
    fn elapsed_ns(&self, counted_ns: u64) -> u64 {
        counted_ns.saturating_sub(self.since_ns).saturating_add(self.passed_ns)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A clock by which one can wait. The process's own is not in this crate.
pub trait Clock {
    /// The time.
    fn now(&self) -> Nanos;
    /// Comes back after this time.
    fn sleep(&self, duration: Duration);
}

/// A token bucket that threads share, with the calls that wait. A lock is taken for the decision, never while waiting.
#[derive(Debug)]
pub struct SharedBucket(Mutex<TokenBucket>);

impl SharedBucket {
    /// Shares a bucket.
    #[must_use]
    pub fn new(bucket: TokenBucket) -> Self {
        Self(Mutex::new(bucket))
    }

    /// Any call of the bucket's own, under the lock.
    pub fn with<T>(&self, call: impl FnOnce(&mut TokenBucket) -> T) -> T {
        call(&mut self.0.lock())
    }

    /// Takes `tokens` and waits until they are there; tells how long that was.
    pub fn wait(&self, clock: &impl Clock, tokens: u64) -> Duration {
        let wait = self.with(|bucket| bucket.take(clock.now(), tokens));
        clock.sleep(wait);
        wait
    }

    /// Takes `tokens` and waits until they are there, if that is not longer than `max_wait`; else takes nothing and returns at
    /// once.
    pub fn wait_max(&self, clock: &impl Clock, tokens: u64, max_wait: Duration) -> Option<Duration> {
        let wait = self.with(|bucket| bucket.take_max_wait(clock.now(), tokens, max_wait))?;
        clock.sleep(wait);
        Some(wait)
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
