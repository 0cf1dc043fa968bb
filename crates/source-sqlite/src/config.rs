//! Configuration of the SQLite engine.

use std::path::PathBuf;
use std::time::Duration;

pub use hotrow_source::spec::{CollectionConfig, KeyTypeName};

/// Method of change detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// Change log filled by triggers: single records are invalidated. Adds two tables and triggers
    /// to the database.
    Triggers,
    /// No additions to the database: any change anywhere in the file makes every entry stale.
    None,
}

impl Watch {
    /// Returns the value's name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Triggers => "triggers",
            Self::None => "none",
        }
    }
}

/// Settings of the engine.
#[derive(Clone, Debug)]
pub struct Config {
    /// Database file; it must exist.
    pub path: PathBuf,
    /// Method of change detection.
    pub watch: Watch,
    /// A trial of a start: what is added to the database is removed again.
    pub is_trial: bool,
    /// Number of reader threads, each with a connection of its own.
    pub reads_in_flight: usize,
    /// Time limit of one query, including waits for locks.
    pub read_timeout: Duration,
    /// Collections in the order of their `CollectionId`s.
    pub collections: Vec<CollectionConfig>,
}

/// Fixed numbers of the engine.
#[derive(Clone, Debug)]
pub(crate) struct Tuning {
    /// Maximum number of rows in the change log, even if no instance prunes it.
    pub(crate) log_rows_max: u64,
    /// Number of inserted rows after which the log is cut to [`Self::log_rows_max`].
    pub(crate) log_bound_step: u64,
    /// Number of changed keys of one collection in one poll above which a flush replaces the list.
    pub(crate) bulk_keys: usize,
    /// Log rows read and delivered at a time.
    pub(crate) chunk_rows: usize,
    /// Poll interval while the database is written to, and always if the kernel cannot wake the
    /// feed.
    pub(crate) poll_every: Duration,
    /// Poll interval after [`Self::quiet_after`] without writes. Every commit touches the log file
    /// first, which wakes the feed.
    pub(crate) poll_every_quiet: Duration,
    /// Time without writes after which the database counts as quiet. Longer than a commit takes
    /// from touching the file to being visible.
    pub(crate) quiet_after: Duration,
    /// Poll interval outside WAL mode, where a poll takes a lock that a writer may have to wait
    /// for.
    pub(crate) poll_every_rollback: Duration,
    /// Duration of polling without a pause after the log file was touched, which happens before the
    /// commit is visible.
    pub(crate) burst: Duration,
    /// Interval of pruning the log.
    pub(crate) prune_every: Duration,
    /// Age after delivery at which rows are pruned.
    pub(crate) prune_after: Duration,
    /// Rows deleted in one transaction; bounds the time that a writer waits for the lock.
    pub(crate) prune_rows: u64,
    /// Longest wait for a lock when pruning; the next round repeats what failed.
    pub(crate) prune_busy: Duration,
    /// Longest wait for a lock when log and triggers are installed.
    pub(crate) install_busy: Duration,
    /// Pause after a file was replaced or removed, before the first attempt to open it.
    pub(crate) replace_settle: Duration,
    /// First pause between attempts to reopen the database; it doubles.
    pub(crate) reopen_first: Duration,
    /// Longest pause between attempts to reopen the database.
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
            install_busy: Duration::from_secs(2),
            replace_settle: Duration::from_millis(20),
            reopen_first: Duration::from_millis(5),
            reopen_max: Duration::from_millis(500),
        }
    }
}

impl Tuning {
    /// Returns the pause before the next attempt; the first attempt is 0. `random` spreads
    /// instances that lost the same database: the pause is between half and all of its bound.
    pub(crate) fn reopen_pause(&self, attempt: u32, random: u64) -> Duration {
        let full = self
            .reopen_first
            .saturating_mul(1_u32.checked_shl(attempt).unwrap_or(u32::MAX))
            .min(self.reopen_max);
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
