//! Errors of connections.

use mysql_async::{DriverError, Error, IoError};

/// Reason that one host cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The connection failed or broke.
    #[error("{host} cannot be reached: {detail}")]
    Unreachable {
        /// Host as in the connection string.
        host: String,
        /// Message of the system or the driver.
        detail: String,
    },
    /// A step of connecting took too long.
    #[error("{host} cannot be reached: {doing} took longer than {timeout_ms} ms")]
    Timeout {
        /// Host as in the connection string.
        host: String,
        /// Step that took too long.
        doing: &'static str,
        /// Time limit.
        timeout_ms: u128,
    },
    /// The server refused the connection.
    #[error("{host} refuses: {detail} (error {code})")]
    Refused {
        /// Host as in the connection string.
        host: String,
        /// Error number of the server.
        code: u16,
        /// Message of the server and, where known, the fix.
        detail: String,
    },
    /// The server answers but does not meet the requirements.
    #[error("{host} cannot be used: {detail}")]
    Unusable {
        /// Host as in the connection string.
        host: String,
        /// Reason and fix.
        detail: String,
    },
}

impl hotrow_source::preflight::OpenFailure for ConnectError {
    fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Timeout { .. })
    }
}

impl ConnectError {
    /// Returns whether the server refused the credential: access denied, an expired password, a
    /// locked account.
    pub(crate) fn is_login(&self) -> bool {
        matches!(self, Self::Refused { code: 1044 | 1045 | 1698 | 1820 | 1862 | 3118 | 4151, .. })
    }
}

/// Returns an error of the driver as text.
pub(crate) fn full_text(e: &Error) -> String {
    match e {
        Error::Server(server) => format!("{} (error {})", server.message, server.code),
        // These print whole values or packets.
        Error::Driver(DriverError::FromValue { .. } | DriverError::FromRow { .. }) => {
            "the server's answer has an unexpected form".into()
        }
        Error::Driver(DriverError::UnexpectedPacket { .. }) => {
            "the server sent a packet out of place".into()
        }
        Error::Driver(driver) => driver.to_string(),
        Error::Io(IoError::Io(io)) => io.to_string(),
        Error::Io(IoError::Tls(tls)) => format!("TLS: {tls}"),
        Error::Other(own) => own.to_string(),
        other => other.to_string(),
    }
}
