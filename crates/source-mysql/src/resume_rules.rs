//! Rules by which a relay's feed goes on where an earlier one was, possibly that of another
//! process. Each has a switch for tests of processes: with a rule disabled, they must find the
//! fault. In a build of the program without the feature `failpoints` there are no switches.

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

/// Rules in force: all of them, but for tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResumeRules {
    #[cfg(any(test, feature = "failpoints"))]
    disabled: &'static [ResumeRule],
}

impl ResumeRules {
    /// Returns whether a rule is in force.
    #[cfg(not(any(test, feature = "failpoints")))]
    #[must_use]
    #[allow(clippy::unused_self, reason = "the form of the tests has a switch")]
    pub const fn has(self, _: ResumeRule) -> bool {
        true
    }

    /// Returns whether a rule is in force.
    #[cfg(any(test, feature = "failpoints"))]
    #[must_use]
    pub fn has(self, rule: ResumeRule) -> bool {
        !self.disabled.contains(&rule)
    }

    /// Returns all rules but these.
    #[cfg(any(test, feature = "failpoints"))]
    #[must_use]
    pub fn without(disabled: &'static [ResumeRule]) -> Self {
        Self { disabled }
    }
}
