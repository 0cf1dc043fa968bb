//! Decision whether the watchdog may be fed. Pure: time is an argument.

use std::time::Duration;

use hotrow_measure::clock::Nanos;

/// Least interval of feeding, whatever the manager asks for.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// Feeds the manager's watchdog only while every worker makes progress: a worker that hangs is
/// repaired by a restart.
#[derive(Debug)]
pub(super) struct Watchdog {
    /// `None`: the manager has no watchdog.
    timeout: Option<Duration>,
    /// Progress of the slowest worker when it was fed last.
    fed_at_progress: Nanos,
}

impl Watchdog {
    pub(super) fn new(timeout: Option<Duration>) -> Self {
        Self { timeout, fed_at_progress: Nanos(0) }
    }

    /// Returns the interval of asking: a third of the time-out, so that one late turn is harmless.
    pub(super) fn interval(&self) -> Duration {
        self.timeout.map_or(Duration::MAX, |timeout| (timeout / 3).max(INTERVAL_MIN))
    }

    /// Returns whether to feed it now: every worker has made progress since the last time.
    /// `progress` is the time up to which all have.
    pub(super) fn is_due(&mut self, progress: Nanos) -> bool {
        let is_due = self.timeout.is_some() && progress > self.fed_at_progress;
        if is_due {
            self.fed_at_progress = progress;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_fed_only_after_progress_of_all() {
        let mut watchdog = Watchdog::new(Some(Duration::from_secs(3)));
        assert_eq!(watchdog.interval(), Duration::from_secs(1));
        assert!(!watchdog.is_due(Nanos(0)), "a worker has no loop yet");
        assert!(watchdog.is_due(Nanos(5)));
        assert!(!watchdog.is_due(Nanos(5)), "the slowest worker hangs");
        assert!(!watchdog.is_due(Nanos(0)), "its loop has ended");
        assert!(watchdog.is_due(Nanos(6)));
    }

    #[test]
    fn without_a_watchdog_nothing_is_fed() {
        let mut watchdog = Watchdog::new(None);
        assert!(!watchdog.is_due(Nanos(5)));
        assert_eq!(watchdog.interval(), Duration::MAX);
        assert_eq!(Watchdog::new(Some(Duration::from_micros(1))).interval(), INTERVAL_MIN);
    }
}
