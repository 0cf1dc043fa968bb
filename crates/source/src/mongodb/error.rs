//! What keeps a deployment from being served, and what the driver's errors mean.

use std::time::Duration;

use mongodb::error::{Error, ErrorKind};

use super::target::TargetError;
use crate::background::ThreadError;
pub use crate::findings::{Finding, Findings};
use crate::{LossCause, ReadError};

/// Why a deployment cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The connection string is none, or none that can be used.
    #[error("`{setting}`: {error}")]
    Target {
        /// `url` or `feed_url`.
        setting: &'static str,
        /// What is wrong with it.
        error: TargetError,
    },
    /// Nothing answers.
    #[error("no server can be used: {detail}")]
    Unreachable {
        /// What the driver said, and what to look at.
        detail: String,
    },
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

impl OpenError {
    /// The driver's error while the checks ran.
    pub(crate) fn of(e: &Error) -> Self {
        if !matches!(*e.kind, ErrorKind::ServerSelection { .. }) {
            return Self::Failed { detail: text(e) };
        }
        let detail = text(e);
        let hint = if detail.contains("RsGhost") {
            "; the server was started with --replSet and waits for `rs.initiate()`"
        } else {
            "; is the address right, does a primary exist (rs.status()), do the members' names in rs.conf() resolve from here?"
        };
        Self::Unreachable { detail: detail + hint }
    }
}

/// The driver's error as a text for the log.
pub(crate) fn text(e: &Error) -> String {
    match e.kind.as_ref() {
        ErrorKind::Command(e) => format!("{} ({} {})", e.message, e.code, e.code_name),
        kind => kind.to_string(),
    }
}

/// The number of a server's refusal.
pub(crate) fn code(e: &Error) -> Option<i32> {
    match e.kind.as_ref() {
        ErrorKind::Command(e) => Some(e.code),
        _ => None,
    }
}

/// Not allowed.
pub(crate) const UNAUTHORIZED: i32 = 13;
const MAX_TIME_EXPIRED: i32 = 50;

/// `afterClusterTime` is ahead of what the server knows of: it has not heard of the newest operations yet.
const INVALID_OPTIONS: i32 = 72;

/// Whether another attempt may do: the server is not the primary any more, is about to go, or cannot reach a shard.
/// Source: MongoDB's specification "Retryable Reads", retryable errors.
fn is_passing(code: i32) -> bool {
    matches!(
        code,
        6 | 7
            | 89
            | 91
            | 134
            | 189
            | 262
            | 9001
            | 10_058
            | 10_107
            | 11_600
            | 11_602
            | 13_435
            | 13_436
            | INVALID_OPTIONS
    )
}

/// What a failed read means.
pub(crate) enum Fault {
    /// The connection or the primary is gone: another attempt may do.
    Again(ReadError),
    Final(ReadError),
}

/// What a failed read means, and what is told of it.
pub(crate) fn fault(e: &Error, limit: Duration) -> Fault {
    let detail = text(e);
    match (code(e), e.kind.as_ref()) {
        (Some(MAX_TIME_EXPIRED), _) => {
            let detail = format!("the query took longer than {} ms: {detail}", limit.as_millis());
            Fault::Final(ReadError::Timeout { detail })
        }
        (Some(code), _) if is_passing(code) => Fault::Again(ReadError::Unavailable { detail }),
        (Some(_), _) => Fault::Final(ReadError::Broken { detail }),
        (None, ErrorKind::Io(_) | ErrorKind::ConnectionPoolCleared { .. }) => {
            Fault::Again(ReadError::Unavailable { detail })
        }
        (None, _) => Fault::Final(ReadError::Unavailable { detail }),
    }
}

/// Why a session of the feed ended or could not begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The stream can be taken up where it ended; nothing is lost.
    Interrupted(String),
    /// Changes may have been missed.
    Lost(LossCause, String),
}

impl Ended {
    pub(crate) fn interrupted(what: impl Into<String>) -> Self {
        Self::Interrupted(what.into())
    }

    /// A part of the deployment did not answer.
    pub(crate) fn silent(what: &str, after: Duration) -> Self {
        Self::Interrupted(format!("{what} has not answered for {after:?}"))
    }

    /// What a failed command of the stream means.
    ///
    /// Source: MongoDB's specification "Change Streams", resumable errors, and its list of error codes:
    /// 136 CappedPositionLost, 222 CloseChangeStream, 260 InvalidResumeToken, 280 ChangeStreamFatalError,
    /// 286 ChangeStreamHistoryLost, 10334 BSONObjectTooLarge.
    pub(crate) fn stream(doing: &str, e: &Error) -> Self {
        let detail = format!("{doing}: {}", text(e));
        match code(e) {
            Some(136 | 260 | 280 | 286) => Self::Lost(LossCause::LogPruned, detail),
            // An event that cannot be sent would end every stream that comes to it.
            Some(222 | 10_334) => Self::Lost(LossCause::Unavailable, detail),
            Some(UNAUTHORIZED) => Self::Lost(LossCause::NotWatched, detail),
            _ => Self::Interrupted(detail),
        }
    }

    pub(crate) fn detail(&self) -> &str {
        match self {
            Self::Interrupted(detail) | Self::Lost(_, detail) => detail,
        }
    }
}

/// A finding about one collection.
pub(crate) fn finding(collection: &str, what: &str, mend: impl Into<String>) -> Finding {
    Finding::new(format!("collection `{collection}`: {what}"), mend)
}
