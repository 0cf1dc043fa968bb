//! Why a service does not start or continue.

use std::io;

use hotrow_source::preflight::OpenFailure;

/// A failure to start or to continue serving.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The system allows too few open files for any useful number of connections.
    #[error(
        "the limit on open files ({limit}) leaves no room for connections; raise it, for instance \
         with ulimit -n 20000"
    )]
    OpenFiles {
        /// The hard limit.
        limit: u64,
    },
    /// The thread that composes the subsystems panicked.
    #[error("the main thread panicked; this is a bug in Hotrow, please report it with the log")]
    Panic,
    /// The signal handlers could not be installed.
    #[error("cannot listen for signals: {0}")]
    Signals(io::Error),
    /// A database does not answer.
    #[error("{0}")]
    Unreachable(String),
    /// A subsystem failed; its message names the cause and the remedy.
    #[error("{0}")]
    Subsystem(String),
}

/// Returns the failure to open a database.
pub(crate) fn opening(error: impl OpenFailure) -> ServeError {
    match error.is_unreachable() {
        true => ServeError::Unreachable(error.to_string()),
        false => subsystem(error),
    }
}

pub(crate) fn subsystem(error: impl std::fmt::Display) -> ServeError {
    ServeError::Subsystem(error.to_string())
}
