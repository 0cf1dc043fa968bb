//! A problem with its remedy.

/// A problem with its remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The problem: the object, the rule and the value, as a sentence without a full stop.
    pub problem: String,
    /// The remedy: SQL to run, or a setting to change.
    pub remedy: String,
}

impl Finding {
    /// Creates a finding from a problem and its remedy.
    pub fn new(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { problem: problem.into(), remedy: remedy.into() }
    }
}
