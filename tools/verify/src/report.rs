//! Result of a run.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::capabilities::Capabilities;
use crate::checker::ReadCounts;
use crate::converge::ConvergenceResult;
use crate::follower::FollowerCounts;
use crate::near_cache::NearCacheCounts;
use crate::rules::Rule;
use crate::writer::WriteCounts;

/// Result of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its end.
    pub end: RunEnd,
    /// Time from the first write to the end.
    pub took: Duration,
    /// Write counts.
    pub writes: Writes,
    /// Read counts.
    pub reads: ReadCounts,
    /// Acknowledged purges.
    pub purges: u64,
    /// Requests without a response, by reason.
    pub unanswered: Vec<(&'static str, u64)>,
    /// The HTTP targets.
    pub targets: Vec<ReportedTarget>,
    /// Rules that were not to be checked.
    pub skipped: Vec<Rule>,
    /// What near caches did, and for each address of the Redis protocol whether it has `BCAST`.
    pub near_caches: NearCacheReport,
    /// What followers did, and for each instance whether its changes were followed.
    pub followers: FollowerReport,
    /// Feed losses counted by each instance during the run, if its admin API reported them.
    pub feed_losses: Vec<Option<u64>>,
    /// Queries of each instance that standbys answered during the run.
    pub standby_reads: Vec<Option<u64>>,
    /// Where the changes of each instance came from, such as `hub`.
    pub feeds: Vec<Option<String>>,
    /// Point 4.
    pub convergence: ConvergenceResult,
    /// The database's log began anew: from then on positions were not checked.
    pub log_went_back: bool,
    /// The first violated rule.
    pub first_rule: Option<Rule>,
    /// Its counterexample.
    pub counterexample: Option<String>,
    /// Problems of the check itself.
    pub problems: Vec<String>,
}

/// An HTTP target of a run.
#[derive(Clone, Debug)]
pub struct ReportedTarget {
    /// Its URL.
    pub url: String,
    /// Whether it is a balancer.
    pub is_balancer: bool,
    /// What it supports.
    pub capabilities: Capabilities,
}

/// What the followers of a run did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FollowerReport {
    /// URL of each instance; the reason for which its changes were not followed, if they were not.
    pub targets: Vec<(String, Option<String>)>,
    /// Counts of all of them.
    pub counts: FollowerCounts,
}

impl FollowerReport {
    /// Returns whether changes were followed, and none came.
    fn has_nothing(&self) -> bool {
        self.targets.iter().any(|(_, why)| why.is_none()) && self.counts.changes == 0
    }
}

/// What the near caches of a run did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NearCacheReport {
    /// URL of each address of the Redis protocol; the reason for which `BCAST` was not checked
    /// there, if it was not.
    pub targets: Vec<(String, Option<String>)>,
    /// Counts of all of them.
    pub counts: NearCacheCounts,
}

/// End of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// Its time was up.
    Complete,
    /// A violation was found.
    Violation,
    /// The user interrupted it.
    Interrupted,
    /// A writer failed permanently.
    WriterFailed,
}

/// Write counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    /// Transactions whose COMMIT returned.
    pub commits: u64,
    /// Keys changed by them.
    pub changes: u64,
    /// Keys deleted by them.
    pub deletes: u64,
    /// Transactions rolled back on purpose.
    pub rolled_back: u64,
    /// Transactions that failed without a change.
    pub failed: u64,
    /// Transactions of unknown outcome.
    pub unknown: u64,
    /// Keys of those that were read back.
    pub read_back: u64,
    /// Values of the alias that another record got, or none.
    pub values_moved: u64,
    /// Children that were inserted, updated, moved or deleted.
    pub children_changed: u64,
    /// Children that were moved to another record.
    pub children_moved: u64,
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
            values_moved: get(&counts.values_moved),
            children_changed: get(&counts.children_changed),
            children_moved: get(&counts.children_moved),
        }
    }
}

/// Conclusion of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunVerdict {
    /// No rule was violated, and enough was checked.
    Passed,
    /// A rule was violated.
    Violated,
    /// Too little was checked, or the check itself had problems.
    Inconclusive,
    /// The user interrupted it before a violation was found.
    Interrupted,
}

/// Smallest share of reads near a change for a meaningful run.
pub const NEAR_SHARE_MIN: f64 = 0.2;

impl Report {
    /// Returns the conclusion of the run.
    pub fn verdict(&self) -> RunVerdict {
        if self.reads.violations.values().any(|count| *count > 0) {
            return RunVerdict::Violated;
        }
        let nothing = self.writes.commits == 0
            || self.reads.applied.get(&Rule::Fresh).is_none_or(|count| *count == 0)
            || !self.near_caches.targets.is_empty() && self.near_caches.counts.copies_read == 0
            || self.followers.has_nothing()
            || self.unsupported().next().is_some();
        match (&self.end, &self.convergence) {
            (RunEnd::Interrupted, _) => RunVerdict::Interrupted,
            (RunEnd::Complete, ConvergenceResult::Checked { .. })
                if !nothing && self.problems.is_empty() =>
            {
                RunVerdict::Passed
            }
            _ => RunVerdict::Inconclusive,
        }
    }

    /// Returns the targets that refuse what a rule needs, with the rule, although it was not
    /// skipped.
    pub fn unsupported(&self) -> impl Iterator<Item = (&str, Rule)> {
        let rules_of = |target: &ReportedTarget| {
            let Capabilities { strict, snapshot, .. } = target.capabilities;
            [(Rule::Strict, strict), (Rule::Snapshot, snapshot)]
        };
        let missing = move |target| {
            let rules = rules_of(target).into_iter();
            let missing = rules.filter(|(rule, has)| !has && !self.skipped.contains(rule));
            missing.map(|(rule, _)| (target.url.as_str(), rule))
        };
        self.targets.iter().flat_map(missing)
    }

    /// Returns the number of values and keys that were looked up by the alias.
    pub fn lookups_by_alias(&self) -> u64 {
        let by_alias = self.reads.forms.iter().filter(|(form, _)| form.is_by_alias());
        by_alias.map(|(_, count)| count).sum()
    }

    /// Returns the share of reads within 10 ms of a change of their key; 0 without reads.
    pub fn near_share(&self) -> f64 {
        if self.reads.reads == 0 {
            0.0
        } else {
            self.reads.near_a_change as f64 / self.reads.reads as f64
        }
    }
}
