//! What ends a stream or a connection before its time.

/// Codes that a server sends (RFC 9113 section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ErrorCode {
    /// Nothing is wrong.
    NoError = 0,
    /// A rule of the protocol was broken.
    Protocol = 1,
    /// The server failed.
    Internal = 2,
    /// A window was exceeded.
    FlowControl = 3,
    /// A frame came on a stream that had ended.
    StreamClosed = 5,
    /// A frame has an impossible length.
    FrameSize = 6,
    /// The stream was not processed, and may be tried again.
    RefusedStream = 7,
    /// The stream is no longer wanted.
    Cancel = 8,
    /// A head could not be decoded.
    Compression = 9,
    /// The client does too much of what is of no use.
    EnhanceYourCalm = 11,
}

/// Reason for which nothing more is read of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionError {
    /// A rule of the protocol was broken.
    #[error("the client broke a rule of HTTP/2")]
    Protocol,
    /// A window was exceeded, or grew beyond its limit.
    #[error("the client broke the flow control of HTTP/2")]
    FlowControl,
    /// A frame came on a stream that had ended.
    #[error("a frame came on a stream that had ended")]
    StreamClosed,
    /// A frame has an impossible length.
    #[error("a frame has an impossible length")]
    FrameSize,
    /// A head could not be decoded, so no later one can.
    #[error("a head could not be decoded")]
    Compression,
    /// The client exceeded a bound on what it may repeat.
    #[error("too many control frames, resets or errors, or too long a head")]
    Flood,
}

impl ConnectionError {
    /// Returns the code that is sent.
    #[must_use]
    pub fn code(self) -> ErrorCode {
        match self {
            Self::Protocol => ErrorCode::Protocol,
            Self::FlowControl => ErrorCode::FlowControl,
            Self::StreamClosed => ErrorCode::StreamClosed,
            Self::FrameSize => ErrorCode::FrameSize,
            Self::Compression => ErrorCode::Compression,
            Self::Flood => ErrorCode::EnhanceYourCalm,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_standard() {
        let codes = [
            ConnectionError::Protocol,
            ConnectionError::FlowControl,
            ConnectionError::StreamClosed,
            ConnectionError::FrameSize,
            ConnectionError::Compression,
            ConnectionError::Flood,
        ];
        assert_eq!(codes.map(|error| error.code() as u32), [1, 3, 5, 6, 9, 11]);
    }
}
