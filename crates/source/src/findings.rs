//! What keeps a database from being served, and what mends it.

use std::fmt;

/// One thing that is missing or in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The thing, the rule and the value, as a sentence without a full stop.
    pub what: String,
    /// What mends it: SQL to run, or a setting to change.
    pub mend: String,
}

impl Finding {
    /// A finding with what mends it.
    pub fn new(what: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { what: what.into(), mend: mend.into() }
    }
}

/// Everything that was found wrong; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Findings(pub Vec<Finding>);

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, finding) in self.0.iter().enumerate() {
            write!(f, "\n  {}. {}", i + 1, finding.what)?;
            for line in finding.mend.lines() {
                write!(f, "\n     -> {line}")?;
            }
        }
        Ok(())
    }
}
