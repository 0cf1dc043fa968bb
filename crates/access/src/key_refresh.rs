//! When the issuer's keys are fetched, and when they are too old.
//!
//! They are fetched again at an interval, after a failure sooner and then less and less often, and
//! when a token names an unknown key: an issuer that has just replaced its key. The last is limited
//! to once per interval of its own, because any client can invent a `kid`.

use std::time::Duration;

use hotrow_measure::clock::Nanos;

/// Settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefreshConfig {
    /// Time between two fetches that succeed.
    pub interval: Duration,
    /// Pause after the first failure; doubled with each further one, up to `interval`.
    pub retry: Duration,
    /// Least time between two fetches for unknown keys.
    pub unknown_key_interval: Duration,
    /// Age from which keys are no longer used.
    pub age_max: Duration,
}

/// State of the fetches.
#[derive(Clone, Copy, Debug)]
pub struct KeyRefresh {
    config: RefreshConfig,
    due_at: Nanos,
    failures_in_a_row: u32,
    /// Last fetch for an unknown key.
    unknown_key_at: Option<Nanos>,
}

impl KeyRefresh {
    /// The first fetch is due at once.
    #[must_use]
    pub fn new(config: RefreshConfig) -> Self {
        Self { config, due_at: Nanos::ZERO, failures_in_a_row: 0, unknown_key_at: None }
    }

    /// Returns the time until the next fetch; zero: it is due.
    pub fn pause(&self, now: Nanos) -> Duration {
        self.due_at.since(now)
    }

    /// Records a fetch that succeeded.
    pub fn succeeded(&mut self, now: Nanos) {
        self.failures_in_a_row = 0;
        self.due_at = now.after(self.config.interval);
    }

    /// Records a fetch that failed. `jitter`, random from 0 to 1, spreads the retries of many
    /// instances over half of the pause.
    pub fn failed(&mut self, now: Nanos, jitter: f64) {
        let doubled = 2_u32.saturating_pow(self.failures_in_a_row);
        let pause = self.config.retry.saturating_mul(doubled).min(self.config.interval);
        self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
        let factor = 0.5 + 0.5 * jitter.clamp(0.0, 1.0);
        self.due_at = now.after(pause.mul_f64(factor));
    }

    /// Records a token with an unknown key. Returns whether that makes a fetch due.
    pub fn unknown_key(&mut self, now: Nanos) -> bool {
        let is_early =
            self.unknown_key_at.is_some_and(|at| now.since(at) < self.config.unknown_key_interval);
        if is_early {
            return false;
        }
        self.unknown_key_at = Some(now);
        self.due_at = self.due_at.min(now);
        true
    }

    /// Returns the failures since the last success.
    pub fn failures_in_a_row(&self) -> u32 {
        self.failures_in_a_row
    }
}

impl RefreshConfig {
    /// Returns whether keys that were confirmed at `confirmed_at` may be used.
    #[inline]
    pub fn allows(&self, confirmed_at: Nanos, now: Nanos) -> bool {
        now.since(confirmed_at) < self.age_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: RefreshConfig = RefreshConfig {
        interval: Duration::from_secs(300),
        retry: Duration::from_secs(1),
        unknown_key_interval: Duration::from_secs(30),
        age_max: Duration::from_secs(3_600),
    };

    fn s(seconds: u64) -> Nanos {
        Nanos::ZERO.after(Duration::from_secs(seconds))
    }

    #[test]
    fn failures_double_the_pause_up_to_the_interval() {
        let mut refresh = KeyRefresh::new(CONFIG);
        assert_eq!(refresh.pause(s(0)), Duration::ZERO, "the first is due");
        for pause in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            refresh.failed(s(1_000), 1.0);
            assert_eq!(refresh.pause(s(1_000)), Duration::from_secs(pause));
        }
        refresh.failed(s(1_000), 0.0);
        assert_eq!(refresh.pause(s(1_000)), Duration::from_secs(150), "the least jitter");
        (0..100).for_each(|_| refresh.failed(s(1_000), 1.0));
        assert_eq!(refresh.pause(s(1_000)), Duration::from_secs(300));
        refresh.succeeded(s(2_000));
        assert_eq!((refresh.failures_in_a_row(), refresh.pause(s(2_100)).as_secs()), (0, 200));
        assert_eq!(refresh.pause(s(9_000)), Duration::ZERO);
    }

    #[test]
    fn unknown_keys_cause_at_most_one_fetch_per_interval() {
        let mut refresh = KeyRefresh::new(CONFIG);
        refresh.succeeded(s(100));
        let causing = (100..200).filter(|at| refresh.unknown_key(s(*at))).collect::<Vec<_>>();
        assert_eq!(causing, [100, 130, 160, 190]);
        assert_eq!(refresh.pause(s(200)), Duration::ZERO);
        refresh.succeeded(s(200));
        assert!(!refresh.unknown_key(s(201)));
        assert_eq!(refresh.pause(s(201)), Duration::from_secs(299), "it stays where it was");
    }

    #[test]
    fn old_keys_are_not_used() {
        assert!(CONFIG.allows(s(100), s(100)) && CONFIG.allows(s(100), s(3_699)));
        assert!(!CONFIG.allows(s(100), s(3_700)));
    }
}
