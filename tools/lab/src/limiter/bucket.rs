//! Token bucket with one owner and a full set of calls.
//!
//! It starts full and gains `quantum` tokens at the end of every `fill_interval` up to its
//! capacity; overflow is discarded. Nothing runs in the background: each call computes the gain
//! from the elapsed time. A caller that takes more than is available owes it and is given the wait:
//! an empty bucket is a leaky bucket at the fill rate. Calls and results are those of Go's
//! `juju/ratelimit`; changes at run time and warm-up are additions.

use std::time::Duration;

use hotrow_admission::rate::warm_up::{COLD_FACTOR, WarmUp};
use hotrow_measure::clock::Nanos;
use parking_lot::Mutex;

/// Most tokens in a bucket, and most taken by one call: sums then never overflow.
const TOKENS_MAX: u64 = 1 << 40;

/// A token bucket.
#[derive(Clone, Debug)]
pub(super) struct TokenBucket {
    capacity: u64,
    quantum: u64,
    interval_ns: u64,
    /// Start of the present count of intervals in counted nanoseconds, the elapsed part of the
    /// first interval at that time, and the intervals since.
    since_ns: u64,
    passed_ns: u64,
    intervals: u64,
    /// Negative: owed.
    tokens: i64,
    warm_up: WarmUp,
    used: Nanos,
}

impl TokenBucket {
    /// Creates a full bucket. `capacity` and `quantum` are 1 to [`TOKENS_MAX`] and `fill_interval`
    /// is at least a nanosecond; other values are clamped.
    #[must_use]
    pub(super) fn new(fill_interval: Duration, capacity: u64, quantum: u64, now: Nanos) -> Self {
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

    /// Makes the bucket cold: over the warm-up its rate grows linearly from a third to the whole.
    /// After no use for as long as the warm-up, it is cold again. A cold bucket holds a third of
    /// its capacity; otherwise its saved burst would leave at once, just when the system behind it
    /// is cold too.
    #[must_use]
    pub(super) fn with_warm_up(mut self, warm_up: Duration, now: Nanos) -> Self {
        self.warm_up = WarmUp::new(nanos(warm_up), now);
        (self.since_ns, self.passed_ns, self.intervals) = (0, 0, 0);
        self.cool(now);
        self
    }

    /// Takes `tokens` now. Returns the wait until they are available.
    pub(super) fn take(&mut self, now: Nanos, tokens: u64) -> Duration {
        // With this longest wait nothing is refused.
        self.take_max_wait(now, tokens, Duration::MAX).unwrap_or(Duration::MAX)
    }

    /// Takes `tokens` if their wait is at most `max_wait`, and returns the wait; otherwise takes
    /// nothing.
    pub(super) fn take_max_wait(
        &mut self,
        now: Nanos,
        tokens: u64,
        max_wait: Duration,
    ) -> Option<Duration> {
        self.settle(now);
        let left = self.tokens.saturating_sub(tokens.min(TOKENS_MAX) as i64);
        let wait = if left >= 0 { Duration::ZERO } else { self.wait_for(left.unsigned_abs(), now) };
        if wait > max_wait {
            return None;
        }
        self.tokens = left;
        Some(wait)
    }

    /// Takes at most `tokens` of those available. Returns their number.
    pub(super) fn take_available(&mut self, now: Nanos, tokens: u64) -> u64 {
        self.settle(now);
        let taken = (self.tokens.max(0) as u64).min(tokens);
        self.tokens -= taken as i64;
        taken
    }

    /// Returns the available tokens; negative: owed.
    pub(super) fn available(&mut self, now: Nanos) -> i64 {
        self.settle(now);
        self.tokens
    }

    /// Sets the fill rate. Tokens and debts stay; the elapsed part of the present interval stays
    /// elapsed.
    pub(super) fn set_fill(&mut self, now: Nanos, fill_interval: Duration, quantum: u64) {
        self.settle(now);
        let counted = self.warm_up.counted_ns(now);
        let passed = self.elapsed_ns(counted) % self.interval_ns;
        let interval_ns = nanos(fill_interval).max(1);
        let passed = u128::from(passed) * u128::from(interval_ns) / u128::from(self.interval_ns);
        // A part of the new interval, which fits a u64.
        (self.since_ns, self.passed_ns, self.intervals) = (counted, passed as u64, 0);
        (self.interval_ns, self.quantum) = (interval_ns, quantum.clamp(1, TOKENS_MAX));
    }

    /// Sets the capacity. A larger bucket keeps its content and fills in time; a smaller one loses
    /// what does not fit; debts stay.
    pub(super) fn set_capacity(&mut self, now: Nanos, capacity: u64) {
        self.settle(now);
        self.capacity = capacity.clamp(1, TOKENS_MAX);
        self.tokens = self.tokens.min(self.capacity as i64);
    }

    /// Adds the gain since the last call.
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
        // A clock reading may be older than the one before: no gain then.
        let new = intervals
            .saturating_sub(self.intervals)
            .saturating_mul(self.quantum)
            .min(i64::MAX as u64);
        self.tokens = self.tokens.saturating_add(new as i64).min(self.capacity as i64);
        self.intervals = self.intervals.max(intervals);
    }

    fn cool(&mut self, now: Nanos) {
        if self.warm_up.over_ns() > 0 {
            self.tokens = self.tokens.min((self.capacity / COLD_FACTOR).max(1) as i64);
            self.used = now;
        }
    }

    /// Returns the time until `tokens` more than the present ones will have come in.
    fn wait_for(&self, tokens: u64, now: Nanos) -> Duration {
        let intervals = self.intervals.saturating_add(tokens.div_ceil(self.quantum));
        let end = intervals.saturating_mul(self.interval_ns).saturating_sub(self.passed_ns);
        self.warm_up.moment(self.since_ns.saturating_add(end)).since(now)
    }

    /// Returns the time since the beginning of the first interval.
    fn elapsed_ns(&self, counted_ns: u64) -> u64 {
        counted_ns.saturating_sub(self.since_ns).saturating_add(self.passed_ns)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A clock with which a caller can wait.
pub(super) trait Clock {
    /// Returns the time.
    fn now(&self) -> Nanos;
    /// Sleeps for `duration`.
    fn sleep(&self, duration: Duration);
}

/// A token bucket shared by threads, with calls that wait. A lock is held for the decision, never
/// while waiting.
#[derive(Debug)]
pub(super) struct SharedBucket(Mutex<TokenBucket>);

impl SharedBucket {
    /// Shares a bucket.
    #[must_use]
    pub(super) fn new(bucket: TokenBucket) -> Self {
        Self(Mutex::new(bucket))
    }

    /// Calls any method of the bucket under the lock.
    pub(super) fn with<T>(&self, call: impl FnOnce(&mut TokenBucket) -> T) -> T {
        call(&mut self.0.lock())
    }

    /// Takes `tokens` and waits until they are available. Returns the wait.
    pub(super) fn wait(&self, clock: &impl Clock, tokens: u64) -> Duration {
        let wait = self.with(|bucket| bucket.take(clock.now(), tokens));
        clock.sleep(wait);
        wait
    }

    /// Takes `tokens` and waits for them if the wait is at most `max_wait`; otherwise takes nothing
    /// and returns at once.
    pub(super) fn wait_max(
        &self,
        clock: &impl Clock,
        tokens: u64,
        max_wait: Duration,
    ) -> Option<Duration> {
        let wait = self.with(|bucket| bucket.take_max_wait(clock.now(), tokens, max_wait))?;
        clock.sleep(wait);
        Some(wait)
    }
}

#[cfg(test)]
mod tests;
