//! Restart decisions for failed threads. Pure: the time is passed in.

use std::time::Duration;

use hotrow_measure::clock::Nanos;

/// Failures in a row after which a thread counts as failing and the process as unhealthy.
pub const FAILURES_IN_A_ROW_MAX: u32 = 5;
/// Minimum length of a run that ends a row of failures.
pub const STEADY_AFTER: Duration = Duration::from_secs(30);
/// Pause before the first restart. It doubles with each further failure in a row.
pub const RESTART_PAUSE_FIRST: Duration = Duration::from_millis(50);
/// Longest pause before a restart.
pub const RESTART_PAUSE_MAX: Duration = Duration::from_secs(5);

/// Restart history of one thread.
#[derive(Debug)]
pub struct RestartPolicy {
    /// Start of the present run; `None` before the first run and between runs.
    running_since: Option<Nanos>,
    failures_in_a_row: u32,
}

impl RestartPolicy {
    /// Creates the history of a thread that has not run yet.
    #[must_use]
    pub fn new() -> Self {
        Self { running_since: None, failures_in_a_row: 0 }
    }

    /// Records the start of a run.
    pub fn started(&mut self, now: Nanos) {
        self.running_since = Some(now);
    }

    /// Records that the run failed, and returns the pause before the next run.
    pub fn failed(&mut self, now: Nanos) -> Duration {
        if self.is_steady(now) {
            self.failures_in_a_row = 0;
        }
        self.running_since = None;
        let doublings = self.failures_in_a_row;
        self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
        let pause = RESTART_PAUSE_FIRST.saturating_mul(2_u32.saturating_pow(doublings));
        pause.min(RESTART_PAUSE_MAX)
    }

    /// Returns the number of failures in a row, including the last one.
    pub fn failures_in_a_row(&self) -> u32 {
        self.failures_in_a_row
    }

    /// Returns whether restarts do not help: too many failures in a row, and no steady run since.
    pub fn is_failing(&self, now: Nanos) -> bool {
        self.failures_in_a_row >= FAILURES_IN_A_ROW_MAX && !self.is_steady(now)
    }

    /// Returns whether the present run is long enough to forget the earlier failures.
    fn is_steady(&self, now: Nanos) -> bool {
        self.running_since.is_some_and(|since| now.since(since) >= STEADY_AFTER)
    }
}

impl Default for RestartPolicy {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Nanos = Nanos(1_000_000_000);

    /// Simulates a thread that fails `runs` times, each after `lasting`. Returns the pauses and the
    /// time at the end.
    fn pauses(policy: &mut RestartPolicy, runs: u32, lasting: Duration) -> (Vec<Duration>, Nanos) {
        let mut now = START;
        let mut pauses = Vec::new();
        for _ in 0..runs {
            policy.started(now);
            now = now.after(lasting);
            let pause = policy.failed(now);
            now = now.after(pause);
            pauses.push(pause);
        }
        (pauses, now)
    }

    #[test]
    fn pauses_double_up_to_a_bound() {
        let (pauses, _) = pauses(&mut RestartPolicy::new(), 12, Duration::ZERO);
        let ms: Vec<u128> = pauses.iter().map(Duration::as_millis).collect();
        assert_eq!(ms[..8], [50, 100, 200, 400, 800, 1600, 3200, 5000]);
        assert!(ms[8..].iter().all(|ms| *ms == RESTART_PAUSE_MAX.as_millis()));
    }

    #[test]
    fn any_number_of_failures_keeps_the_longest_pause() {
        let mut policy = RestartPolicy { running_since: None, failures_in_a_row: u32::MAX };
        assert_eq!(policy.failed(START), RESTART_PAUSE_MAX);
        assert_eq!(policy.failures_in_a_row(), u32::MAX);
    }

    #[test]
    fn failures_in_a_row_make_it_failing_until_a_run_is_steady() {
        let mut policy = RestartPolicy::new();
        let (_, now) = pauses(&mut policy, FAILURES_IN_A_ROW_MAX - 1, Duration::from_secs(29));
        assert!(!policy.is_failing(now), "one fewer");
        let mut policy = RestartPolicy::new();
        let (_, now) = pauses(&mut policy, FAILURES_IN_A_ROW_MAX, Duration::from_secs(29));
        assert!(policy.is_failing(now));
        policy.started(now);
        assert!(policy.is_failing(now.after(STEADY_AFTER - Duration::from_nanos(1))));
        assert!(!policy.is_failing(now.after(STEADY_AFTER)), "it works again");
        assert_eq!(policy.failed(now.after(STEADY_AFTER)), RESTART_PAUSE_FIRST, "a new row begins");
        assert_eq!(policy.failures_in_a_row(), 1);
    }

    #[test]
    fn failures_far_apart_are_no_row() {
        let mut policy = RestartPolicy::new();
        let (pauses, now) = pauses(&mut policy, 20, STEADY_AFTER);
        assert!(pauses.iter().all(|pause| *pause == RESTART_PAUSE_FIRST));
        assert!(!policy.is_failing(now));
    }
}
