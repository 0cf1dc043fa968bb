//! Problems that keep a deployment from being served, and classification of the driver's errors.

use std::time::Duration;

use mongodb::error::{Error, ErrorKind};

use super::target::TargetError;
pub use hotrow_source::preflight::{Finding, PreflightErrors};
use hotrow_source::{LossCause, SourceError, preflight};

/// Failure to serve a deployment.
pub type OpenError = preflight::OpenError<TargetError, String>;

/// Converts a driver's error during the checks.
pub(crate) fn open_error(e: &Error) -> OpenError {
    if !matches!(*e.kind, ErrorKind::ServerSelection { .. }) {
        return OpenError::Failed { detail: text(e) };
    }
    let detail = text(e);
    let hint = if detail.contains("RsGhost") {
        "; the server was started with --replSet and waits for `rs.initiate()`"
    } else {
        "; is the address right, does a primary exist (rs.status()), do the members' names in \
         rs.conf() resolve from here?"
    };
    OpenError::Unreachable(vec![detail + hint])
}

/// Formats a driver's error for the log.
pub(crate) fn text(e: &Error) -> String {
    match e.kind.as_ref() {
        ErrorKind::Command(e) => format!("{} ({} {})", e.message, e.code, e.code_name),
        kind => kind.to_string(),
    }
}

/// Returns the error code of a server, if the error is from a server.
pub(crate) fn code(e: &Error) -> Option<i32> {
    match e.kind.as_ref() {
        ErrorKind::Command(e) => Some(e.code),
        _ => None,
    }
}

/// Code of a missing privilege.
pub(crate) const UNAUTHORIZED: i32 = 13;
const MAX_TIME_EXPIRED: i32 = 50;

/// Code for an `afterClusterTime` ahead of the server's knowledge: it has not received the newest
/// operations yet.
const INVALID_OPTIONS: i32 = 72;

/// Returns whether another attempt may succeed: the server is no longer the primary, is shutting
/// down, or cannot reach a shard.
///
/// Source: MongoDB's specification "Retryable Reads", retryable errors.
fn is_transient(code: i32) -> bool {
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

/// Returns whether a stored document is the cause, and not the query or the server: TypeMismatch,
/// Overflow, InvalidBSON, ConversionFailure, BSONObjectTooLarge.
///
/// Source: MongoDB's list of error codes.
fn is_of_data(code: i32) -> bool {
    matches!(code, 14 | 15 | 22 | 241 | 10_334)
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The connection or the primary is gone: another attempt may succeed.
    Retry(SourceError),
    /// The server refused the credential.
    Login(SourceError),
    Final(SourceError),
}

impl From<SourceError> for Fault {
    fn from(error: SourceError) -> Self {
        Self::Final(error)
    }
}

pub(crate) fn fault(e: &Error, limit: Duration) -> Fault {
    let detail = text(e);
    match (code(e), e.kind.as_ref()) {
        (_, ErrorKind::Authentication { .. }) => Fault::Login(SourceError::Unavailable { detail }),
        (Some(code), _) => answered(code, detail, limit),
        (None, ErrorKind::Io(_) | ErrorKind::ConnectionPoolCleared { .. }) => {
            Fault::Retry(SourceError::Unavailable { detail })
        }
        (None, _) => Fault::Final(SourceError::Unavailable { detail }),
    }
}

/// Classifies an error that the server answered.
fn answered(code: i32, detail: String, limit: Duration) -> Fault {
    match code {
        MAX_TIME_EXPIRED => {
            let detail = format!("the query took longer than {} ms: {detail}", limit.as_millis());
            Fault::Final(SourceError::Timeout { detail })
        }
        code if is_transient(code) => Fault::Retry(SourceError::Unavailable { detail }),
        code if is_of_data(code) => Fault::Final(SourceError::Data { detail }),
        _ => Fault::Final(SourceError::Broken { detail }),
    }
}

/// End of a session of the feed, or failure to begin one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The stream can be resumed where it ended; nothing is lost.
    Interrupted(String),
    /// The stream sent what cannot be parsed. It can be resumed once: a transfer may have failed.
    /// If the server sends the same again, changes may have been missed.
    Malformed(String),
    /// Changes may have been missed.
    Lost(LossCause, String),
}

impl Ended {
    pub(crate) fn interrupted(what: impl Into<String>) -> Self {
        Self::Interrupted(what.into())
    }

    /// Creates the end of a session in which a part of the deployment did not answer.
    pub(crate) fn silent(what: &str, after: Duration) -> Self {
        Self::Interrupted(format!("{what} has not answered for {after:?}"))
    }

    /// Classifies a failed command of the stream.
    ///
    /// Source: MongoDB's specification "Change Streams", resumable errors, and its list of error
    /// codes: 136 CappedPositionLost, 222 CloseChangeStream, 260 InvalidResumeToken, 280
    /// ChangeStreamFatalError, 286 ChangeStreamHistoryLost, 10334 BSONObjectTooLarge.
    pub(crate) fn stream(doing: &str, e: &Error) -> Self {
        let detail = format!("{doing}: {}", text(e));
        match code(e) {
            Some(136 | 260 | 280 | 286) => Self::Lost(LossCause::LogPruned, detail),
            // An event that is too large to send would end every stream that reaches it.
            Some(222 | 10_334) => Self::Lost(LossCause::Unavailable, detail),
            Some(UNAUTHORIZED) => Self::Lost(LossCause::NotWatched, detail),
            _ => Self::Interrupted(detail),
        }
    }

    pub(crate) fn detail(&self) -> &str {
        match self {
            Self::Interrupted(detail) | Self::Malformed(detail) | Self::Lost(_, detail) => detail,
        }
    }
}

pub(crate) fn finding(collection: &str, what: &str, remedy: impl Into<String>) -> Finding {
    Finding::new(format!("collection `{collection}`: {what}"), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_of_the_server_has_its_class() {
        let limit = Duration::from_secs(1);
        let of = |code| answered(code, "as the test says".to_owned(), limit);
        assert!(matches!(of(MAX_TIME_EXPIRED), Fault::Final(SourceError::Timeout { .. })));
        let transient =
            [6, 7, 89, 91, 134, 189, 262, 9001, 10_058, 10_107, 11_600, 11_602, 13_435, 13_436, 72];
        for code in transient {
            assert!(matches!(of(code), Fault::Retry(SourceError::Unavailable { .. })), "{code}");
        }
        for code in [14, 15, 22, 241, 10_334] {
            assert!(matches!(of(code), Fault::Final(SourceError::Data { .. })), "{code}");
        }
        // Not permitted, a bad value of the query, a code that is not known here.
        for code in [UNAUTHORIZED, 2, 99_999] {
            assert!(matches!(of(code), Fault::Final(SourceError::Broken { .. })), "{code}");
        }
    }
}
