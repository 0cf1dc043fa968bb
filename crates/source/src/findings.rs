//! What keeps a database from being served, and what mends it.

use std::fmt;

use crate::background::ThreadError;

/// Why a server's database cannot be served. `Target` says what is wrong with a connection string, `Connect` why one host cannot
/// be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError<Target: fmt::Display, Connect: fmt::Display> {
    /// The connection string is none.
    #[error("`{setting}`: {error}")]
    Target {
        /// `url` or `feed_url`.
        setting: &'static str,
        /// What is wrong with it.
        error: Target,
    },
    /// No host of the connection string can be used; one error for each.
    #[error("no server can be used: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Unreachable(Vec<Connect>),
    /// Everything else, all of it at once.
    #[error("the database cannot be served as it is; to mend ({}):{}", .0.0.len(), .0)]
    Findings(Findings),
    /// The server or the system failed in the middle of the checks.
    #[error("the checks at the start failed: {detail}")]
    Failed {
        /// What was said.
        detail: String,
    },
}

impl<Target: fmt::Display, Connect: fmt::Display> From<ThreadError> for OpenError<Target, Connect> {
    fn from(e: ThreadError) -> Self {
        Self::Failed { detail: e.to_string() }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_findings_are_told_with_what_mends_them() {
        let findings = vec![
            Finding::new("`wal_level` is replica", "ALTER SYSTEM SET wal_level = logical;\nrestart"),
            Finding::new("b", "c"),
        ];
        let text = OpenError::<String, String>::Findings(Findings(findings)).to_string();
        assert_eq!(
            text,
            "the database cannot be served as it is; to mend (2):\n  1. `wal_level` is replica\n     -> ALTER SYSTEM SET wal_level = logical;\n     -> restart\n  2. b\n     -> c"
        );
    }
}
