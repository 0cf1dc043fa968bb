//! Errors of a replication session.

use std::{fmt, io};

/// Error that ends a replication session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    /// Error of the operating system.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// End of the stream.
    #[error("the server closed the connection")]
    Closed,
    /// No answer in time.
    #[error("the server did not answer in time ({0})")]
    Timeout(&'static str),
    /// Error reported by the server.
    #[error("{0}")]
    Server(Box<ServerError>),
    /// A message violates the protocol.
    #[error("the server broke the protocol: {0}")]
    Protocol(String),
    /// The server requires a proof that is not available, or fails to prove its identity.
    #[error("cannot log in: {0}")]
    Login(String),
}

impl WireError {
    /// Returns the SQLSTATE if the server reported one.
    pub(crate) fn code(&self) -> Option<&str> {
        match self {
            Self::Server(e) => Some(&e.code),
            _ => None,
        }
    }
}

/// Content of `ErrorResponse` and `NoticeResponse`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerError {
    /// SQLSTATE.
    pub(crate) code: String,
    pub(crate) severity: String,
    pub(crate) message: String,
    pub(crate) detail: Option<String>,
    pub(crate) hint: Option<String>,
}

impl ServerError {
    /// Parses the fields that are there: a broken report is still a report.
    pub(crate) fn parse(body: &[u8]) -> Self {
        let mut error = Self::default();
        let mut rest = body;
        while let Some((kind, after)) = rest.split_first() {
            let Some(end) = after.iter().position(|b| *b == 0) else { break };
            let text = String::from_utf8_lossy(&after[..end]).into_owned();
            match kind {
                b'C' => error.code = text,
                b'S' => error.severity = text,
                b'M' => error.message = text,
                b'D' => error.detail = Some(text),
                b'H' => error.hint = Some(text),
                _ => {}
            }
            rest = &after[end + 1..];
        }
        error
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} (SQLSTATE {})", self.severity, self.message, self.code)?;
        for (what, text) in [("detail", &self.detail), ("hint", &self.hint)] {
            if let Some(text) = text {
                write!(f, "; {what}: {text}")?;
            }
        }
        Ok(())
    }
}
