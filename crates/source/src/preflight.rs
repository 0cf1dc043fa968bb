//! Problems that keep a database from being served, each with its remedy.

use std::fmt;

use crate::background::ThreadError;

/// Failure to serve a server's database. `Target` is the error of a connection string, `Connect`
/// the error of one host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError<Target: fmt::Display, Connect: fmt::Display> {
    /// The connection string is invalid.
    #[error("`{setting}`: {error}")]
    Target {
        /// `url` or `feed_url`.
        setting: &'static str,
        /// Error of the connection string.
        error: Target,
    },
    /// No host of the connection string can be used; one error per host.
    #[error("no server can be used: {}", joined(.0))]
    Unreachable(Vec<Connect>),
    /// All other problems, reported together.
    #[error("the database cannot be served as it is; to fix ({}):{}", .0.0.len(), .0)]
    PreflightErrors(PreflightErrors),
    /// The server or the system failed during the checks.
    #[error("the checks at the start failed: {detail}")]
    Failed {
        /// Message of the server or the system.
        detail: String,
    },
}

/// Parses the connection strings of the readers and of the feed. Without a `feed_url` both are the
/// same.
///
/// # Errors
/// [`OpenError::Target`] with the first error of `parse`.
pub fn targets<T: Clone, Target: fmt::Display, Connect: fmt::Display>(
    url: &str,
    feed_url: Option<&str>,
    parse: impl Fn(&str) -> Result<T, Target>,
) -> Result<(T, T), OpenError<Target, Connect>> {
    let target = |setting, url| parse(url).map_err(|error| OpenError::Target { setting, error });
    let readers = target("url", url)?;
    let feed = match feed_url {
        Some(feed_url) => target("feed_url", feed_url)?,
        None => readers.clone(),
    };
    Ok((readers, feed))
}

impl<Target: fmt::Display, Connect: fmt::Display> From<ThreadError> for OpenError<Target, Connect> {
    fn from(e: ThreadError) -> Self {
        Self::Failed { detail: e.to_string() }
    }
}

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

/// Returns errors as one line.
#[must_use]
pub fn joined<E: fmt::Display>(errors: &[E]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Returns findings as one line for a log.
#[must_use]
pub fn one_line(findings: &[Finding]) -> String {
    let lines: Vec<String> =
        findings.iter().map(|f| format!("{} ({})", f.problem, f.remedy)).collect();
    lines.join("; ")
}

/// Returns tables in the form for readers, with the problems of each as one line.
#[must_use]
pub fn readable<T: Clone>(tables: &[Result<T, Vec<Finding>>]) -> Vec<Result<T, String>> {
    let problems = |findings: Vec<Finding>| {
        joined(&findings.into_iter().map(|finding| finding.problem).collect::<Vec<_>>())
    };
    tables.iter().map(|table| table.clone().map_err(problems)).collect()
}

/// Most names that a message lists.
const NAMES_LISTED_MAX: usize = 20;

/// Returns names for a message, cut off at a bound of 20.
#[must_use]
pub fn listed<S: AsRef<str>>(names: &[S]) -> String {
    if names.is_empty() {
        return "none".into();
    }
    let shown: Vec<String> =
        names.iter().take(NAMES_LISTED_MAX).map(|n| format!("`{}`", n.as_ref())).collect();
    let more = names.len().saturating_sub(NAMES_LISTED_MAX);
    if more > 0 { format!("{} and {more} more", shown.join(", ")) } else { shown.join(", ") }
}

/// All problems found; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreflightErrors(pub Vec<Finding>);

impl fmt::Display for PreflightErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, finding) in self.0.iter().enumerate() {
            write!(f, "\n  {}. {}", i + 1, finding.problem)?;
            for line in finding.remedy.lines() {
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
    fn all_findings_are_listed_with_their_remedies() {
        let findings = vec![
            Finding::new(
                "`wal_level` is replica",
                "ALTER SYSTEM SET wal_level = logical;\nrestart",
            ),
            Finding::new("b", "c"),
        ];
        let text =
            OpenError::<String, String>::PreflightErrors(PreflightErrors(findings)).to_string();
        assert_eq!(
            text,
            "the database cannot be served as it is; to fix (2):\n  \
             1. `wal_level` is replica\n     \
             -> ALTER SYSTEM SET wal_level = logical;\n     -> restart\n  2. b\n     -> c"
        );
    }
}
