//! A problem with its remedy.

/// A problem with its remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The problem: the object, the rule and the value, as a sentence without a full stop.
    pub problem: String,
    /// The remedy: SQL to run, or a setting to change.
    pub remedy: String,
    /// The change feed lacks something. Without a feed it is no problem.
    pub is_of_feed: bool,
}

impl Finding {
    /// Creates a finding from a problem and its remedy.
    pub fn new(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { problem: problem.into(), remedy: remedy.into(), is_of_feed: false }
    }

    /// Makes it a finding about the change feed.
    #[must_use]
    pub fn of_feed(self) -> Self {
        Self { is_of_feed: true, ..self }
    }
}
