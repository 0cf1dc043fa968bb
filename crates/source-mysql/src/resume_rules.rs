//! Rules by which a relay's feed goes on where an earlier one was, possibly that of another
//! process.

use super::rule_set::RuleSet;

/// Rule of a resumed feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResumeRule {
    /// The place is the one that the stream of the hub names, not where the server is now.
    PlaceOfStream,
    /// A place that the log does not have is a loss.
    PlaceInLog,
    /// The log's file was created at the time that the place names.
    FileCreated,
    /// The commit at the place has the GTID that the place names.
    SameCommit,
    /// The commit at the place ends where the place says.
    CommitEnd,
    /// A place is the end of a commit, never a point inside one.
    WholeCommit,
}

#[cfg(any(test, feature = "failpoints"))]
impl ResumeRule {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::PlaceOfStream,
        Self::PlaceInLog,
        Self::FileCreated,
        Self::SameCommit,
        Self::CommitEnd,
        Self::WholeCommit,
    ];

    /// Returns the rule of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|rule| format!("{rule:?}") == name)
    }
}

/// Rules of a resumed feed that are in force.
pub type ResumeRules = RuleSet<ResumeRule>;
