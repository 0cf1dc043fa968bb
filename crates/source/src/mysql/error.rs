//! What keeps a MySQL or MariaDB server from being served, and what mends it.

use super::connect::ConnectError;
use super::target::TargetError;
use crate::background::ThreadError;
pub use crate::findings::{Finding, Findings};

/// Why a database cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The connection string is none.
    #[error("`{setting}`: {error}")]
    Target {
        /// `url` or `feed_url`.
        setting: &'static str,
        /// What is wrong with it.
        error: TargetError,
    },
    /// No host of the connection string can be used; one error for each.
    #[error("no server can be used: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Unreachable(Vec<ConnectError>),
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

impl From<ThreadError> for OpenError {
    fn from(e: ThreadError) -> Self {
        Self::Failed { detail: e.to_string() }
    }
}
