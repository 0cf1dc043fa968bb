//! Problems that keep a database from being served, each with its remedy.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use hotrow_types::names::nearest;

use crate::background::ThreadError;
pub use crate::finding::Finding;
use crate::spec::ServerConfig;

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

/// A failure to serve a database, or to connect to one of its hosts.
pub trait OpenFailure: fmt::Display {
    /// Returns whether nothing answered, so that nothing is known about the database.
    fn is_unreachable(&self) -> bool;
}

impl<Target: fmt::Display, Connect: OpenFailure> OpenFailure for OpenError<Target, Connect> {
    fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable(hosts) if hosts.iter().all(OpenFailure::is_unreachable))
    }
}

/// The driver of MongoDB reports a text, of a deployment in which no server could be selected.
impl OpenFailure for String {
    fn is_unreachable(&self) -> bool {
        true
    }
}

/// Parses the connection strings of the readers and of the feed. Without a `feed_url` both are the
/// same.
///
/// # Errors
/// [`OpenError::Target`] with the first error of `parse`.
pub fn targets<T: Clone, Target: fmt::Display, Connect: fmt::Display>(
    server: &ServerConfig,
    parse: impl Fn(&str) -> Result<T, Target>,
) -> Result<(T, T), OpenError<Target, Connect>> {
    let target = |setting, url| parse(url).map_err(|error| OpenError::Target { setting, error });
    let readers = target("url", &server.url)?;
    let feed = match &server.feed_url {
        Some(feed_url) => target("feed_url", feed_url)?,
        None => readers.clone(),
    };
    Ok((readers, feed))
}

/// Awaits checks for at most `limit`.
///
/// # Errors
/// [`OpenError::Failed`] at the limit, and the errors of the checks.
pub async fn within<T, Target: fmt::Display, Connect: fmt::Display>(
    limit: Duration,
    checks: impl Future<Output = Result<T, OpenError<Target, Connect>>>,
) -> Result<T, OpenError<Target, Connect>> {
    let late = |_| OpenError::Failed { detail: format!("no result within {limit:?}") };
    tokio::time::timeout(limit, checks).await.map_err(late)?
}

/// Returns the tables that can be served; the findings about the others go to `findings`.
pub fn served<T>(inspected: Vec<Result<T, Vec<Finding>>>, findings: &mut Vec<Finding>) -> Vec<T> {
    inspected.into_iter().filter_map(|table| table.map_err(|f| findings.extend(f)).ok()).collect()
}

impl<Target: fmt::Display, Connect: fmt::Display> OpenError<Target, Connect> {
    /// Returns `value` if there are no findings.
    ///
    /// # Errors
    /// [`Self::PreflightErrors`] with all findings.
    pub fn unless_found<T>(findings: Vec<Finding>, value: T) -> Result<T, Self> {
        match findings.is_empty() {
            true => Ok(value),
            false => Err(Self::PreflightErrors(PreflightErrors(findings))),
        }
    }
}

impl<Target: fmt::Display, Connect: fmt::Display> From<ThreadError> for OpenError<Target, Connect> {
    fn from(e: ThreadError) -> Self {
        Self::Failed { detail: e.to_string() }
    }
}

/// Returns errors as one line.
pub fn joined<E: fmt::Display>(errors: &[E]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Returns findings as one line for a log.
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
pub fn listed<S: AsRef<str>>(names: &[S]) -> String {
    if names.is_empty() {
        return "none".into();
    }
    let shown: Vec<String> =
        names.iter().take(NAMES_LISTED_MAX).map(|n| format!("`{}`", n.as_ref())).collect();
    let more = names.len().saturating_sub(NAMES_LISTED_MAX);
    if more > 0 { format!("{} and {more} more", shown.join(", ")) } else { shown.join(", ") }
}

/// Returns the names that a misspelt one probably means, to be added to a message; empty without
/// any.
pub fn suggested<S: AsRef<str>>(wanted: &str, names: &[S]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    let near = nearest(wanted, &names);
    if near.is_empty() { String::new() } else { format!("; did you mean {}?", listed(&near)) }
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
