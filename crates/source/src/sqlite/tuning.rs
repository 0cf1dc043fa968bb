//! The engine's fixed numbers, in one place; tests run with smaller ones.

use std::time::Duration;

/// See each field.
#[derive(Clone, Debug)]
pub(crate) struct Tuning {
    /// Rows that the change log keeps at most, even when nobody prunes it.
    pub(crate) log_rows_max: u64,
    /// Every so many rows the log is cut to [`Self::log_rows_max`].
    pub(crate) log_bound_step: u64,
    /// More changed keys of one collection than this, found at once, are delivered as one flush.
    pub(crate) bulk_keys: usize,
    /// Log rows read and delivered at a time.
    pub(crate) chunk_rows: usize,
    /// How often the database is asked for changes while it is being written to, and always where the kernel cannot
    /// wake the feed.
    pub(crate) poll_every: Duration,
    /// The same when it has been quiet for [`Self::quiet_after`]: every commit touches the log file first, which wakes.
    pub(crate) poll_every_quiet: Duration,
    /// See there. Longer than a commit may take between touching the file and being visible.
    pub(crate) quiet_after: Duration,
    /// The same outside WAL mode, where asking takes a lock that a writer may meet.
    pub(crate) poll_every_rollback: Duration,
    /// How long the feed polls without a pause after the log file was touched: that happens before the commit can be
    /// seen.
    pub(crate) burst: Duration,
    /// How often the log is pruned.
    pub(crate) prune_every: Duration,
    /// Rows are kept for so long after they were delivered.
    pub(crate) prune_after: Duration,
    /// Rows deleted in one transaction, so that no writer waits long for the lock.
    pub(crate) prune_rows: u64,
    /// How long to wait for a lock when pruning; what fails is tried again in the next round.
    pub(crate) prune_busy: Duration,
    /// How long to wait for a lock when log and triggers are put in place.
    pub(crate) mend_busy: Duration,
    /// How long a file that was replaced or removed is left alone before the first attempt.
    pub(crate) replace_settle: Duration,
    /// The first pause between attempts to open the database again; it doubles.
    pub(crate) reopen_first: Duration,
    /// The longest pause between attempts to open the database again.
    pub(crate) reopen_max: Duration,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            log_rows_max: 1_000_000,
            log_bound_step: 1_000,
            bulk_keys: 10_000,
            chunk_rows: 1_000,
            poll_every: Duration::from_millis(1),
            poll_every_quiet: Duration::from_millis(10),
            quiet_after: Duration::from_millis(500),
            poll_every_rollback: Duration::from_millis(10),
            burst: Duration::from_micros(300),
            prune_every: Duration::from_secs(10),
            prune_after: Duration::from_secs(60),
            prune_rows: 2_000,
            prune_busy: Duration::from_millis(5),
            mend_busy: Duration::from_secs(2),
            replace_settle: Duration::from_millis(20),
            reopen_first: Duration::from_millis(5),
            reopen_max: Duration::from_millis(500),
        }
    }
}

impl Tuning {
    /// How long to wait before the next attempt, the first being 0. `random` spreads instances that lost the same
    /// database: between half and all of the pause.
    pub(crate) fn reopen_pause(&self, attempt: u32, random: u64) -> Duration {
        let full =
            self.reopen_first.saturating_mul(1_u32.checked_shl(attempt).unwrap_or(u32::MAX)).min(self.reopen_max);
        let share = 0.5 + 0.5 * (random >> 11) as f64 / (1_u64 << 53) as f64;
        full.mul_f64(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_spread() {
        let t = Tuning::default();
        assert_eq!(t.reopen_pause(0, 0), Duration::from_micros(2_500));
        assert!(t.reopen_pause(1, u64::MAX) <= Duration::from_millis(10));
        for attempt in [7, 31, 32, 1000] {
            assert_eq!(t.reopen_pause(attempt, 0), Duration::from_millis(250));
            assert!(t.reopen_pause(attempt, u64::MAX) <= t.reopen_max);
        }
    }
}
