//! What a run came to.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::converge::Converged;
use crate::granted::Granted;
use crate::judge::ReadCounts;
use crate::rules::Rule;
use crate::writer::WriteCounts;

/// A run's result.
#[derive(Clone, Debug)]
pub struct Report {
    /// How it ended.
    pub end: End,
    /// From the first write to the end.
    pub took: Duration,
    /// What was written.
    pub writes: Writes,
    /// What was read.
    pub reads: ReadCounts,
    /// Purges that were answered.
    pub purges: u64,
    /// Requests without an answer, by why.
    pub unanswered: Vec<(&'static str, u64)>,
    /// What each target grants; the flag says whether it is a balancer.
    pub granted: Vec<(String, bool, Granted)>,
    /// Losses of the feed that each instance counted during the run, where its admin API told.
    pub feed_losses: Vec<Option<u64>>,
    /// Point 4.
    pub converged: Converged,
    /// The rule that was broken first.
    pub first_rule: Option<Rule>,
    /// How.
    pub story: Option<String>,
    /// What went wrong with the check itself.
    pub trouble: Vec<String>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its time was over.
    Complete,
    /// A violation was found.
    Violation,
    /// The user broke it off.
    Interrupted,
    /// A writer gave up.
    WriterGone,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    /// Transactions whose COMMIT returned.
    pub commits: u64,
    /// Keys that they changed.
    pub changes: u64,
    /// Those that were deleted.
    pub deletes: u64,
    /// Transactions that were rolled back on purpose.
    pub rolled_back: u64,
    /// Transactions that failed and changed nothing.
    pub failed: u64,
    /// Transactions whose outcome was not told.
    pub unknown: u64,
    /// Keys of these that were read back.
    pub read_back: u64,
}

impl Writes {
    pub(crate) fn of(counts: &WriteCounts) -> Self {
        let get = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        Self {
            commits: get(&counts.commits),
            changes: get(&counts.changes),
            deletes: get(&counts.deletes),
            rolled_back: get(&counts.rolled_back),
            failed: get(&counts.failed),
            unknown: get(&counts.unknown),
            read_back: get(&counts.read_back),
        }
    }
}

/// What a run proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing was broken, and enough was checked to say so.
    Kept,
    /// A rule was broken.
    Broken,
    /// Not enough was checked, or the check itself had trouble.
    Unproven,
    /// The user broke it off before a violation was found.
    Interrupted,
}

/// Least share of reads near a change for a run that means much.
pub const NEAR_SHARE_MIN: f64 = 0.2;

impl Report {
    /// What the run proves.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if self.reads.violations.values().any(|count| *count > 0) {
            return Verdict::Broken;
        }
        let nothing = self.writes.commits == 0 || self.reads.applied.get(&Rule::Fresh).is_none_or(|count| *count == 0);
        match (&self.end, &self.converged) {
            (End::Interrupted, _) => Verdict::Interrupted,
            (End::Complete, Converged::Checked { .. }) if !nothing && self.trouble.is_empty() => Verdict::Kept,
            _ => Verdict::Unproven,
        }
    }

    /// Share of the reads within 10 ms of a change of their key; 0 without reads.
    #[must_use]
    pub fn near_share(&self) -> f64 {
        if self.reads.reads == 0 { 0.0 } else { self.reads.near_a_change as f64 / self.reads.reads as f64 }
    }
}
