//! What is refused, and the text for the client.

/// Reason for which a message cannot be accepted. Nothing after it may be read as a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The bytes are not a valid message.
    #[error("{}", .0.detail())]
    Malformed(Malformed),
    /// The head is larger than [`Limits::head_bytes`](crate::Limits).
    #[error("the head is too large")]
    HeadBytes,
    /// The head has more fields than [`Limits::fields`](crate::Limits).
    #[error("the head has too many fields")]
    HeadFields,
    /// The target is longer than [`Limits::target_bytes`](crate::Limits).
    #[error("the request target is too long")]
    TargetBytes,
    /// The body's declared length, or the sum of its chunks' sizes, is over
    /// [`Limits::body_bytes`](crate::Limits).
    #[error("the body is too large")]
    BodyBytes,
}

/// Error in a message. Each is a known way to make two parsers disagree about a message or its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The first line is not `METHOD target HTTP/1.x`.
    RequestLine,
    /// The target is not a path, not a URL, and not the method's own form, or has a byte that must
    /// be percent-encoded.
    Target,
    /// A version other than HTTP/1.0 and HTTP/1.1.
    Version,
    /// A header line without a name, with an invalid byte in it, or without a colon.
    Field,
    /// A header line that continues the one before it.
    Folding,
    /// White space between a field's name and its colon.
    SpaceBeforeColon,
    /// A control character in the head.
    ControlByte,
    /// No `Host`, more than one, or an invalid one.
    Host,
    /// `Content-Length` is not one plain number.
    Length,
    /// Two `Content-Length` fields that differ.
    LengthsDiffer,
    /// `Content-Length` and `Transfer-Encoding` in one message.
    LengthAndCoding,
    /// A `Transfer-Encoding` other than exactly `chunked`, or any in HTTP/1.0.
    Coding,
    /// A chunk's size line, its end, or the trailer section breaks the grammar or its bound.
    Chunk,
}

impl Malformed {
    /// Returns the text shown to the client.
    #[must_use]
    pub fn detail(self) -> &'static str {
        match self {
            Self::RequestLine => {
                "The first line must be a method, a target and a version with one space between \
                 them."
            }
            Self::Target => {
                "The target must be a path or a URL without bytes that need percent-encoding; * is \
                 for OPTIONS, a host with a port for CONNECT."
            }
            Self::Version => "This server supports HTTP/1.1 and HTTP/1.0.",
            Self::Field => "A header line must be a name, a colon and a value.",
            Self::Folding => {
                "Header lines must not begin with white space (obsolete line folding)."
            }
            Self::SpaceBeforeColon => {
                "There must be no white space between a header's name and its colon."
            }
            Self::ControlByte => {
                "The head must not contain NUL, a carriage return without a line feed, or another \
                 control character."
            }
            Self::Host => {
                "A request needs exactly one Host header (HTTP/1.0: at most one), a name or \
                 address with an optional port."
            }
            Self::Length => "Content-Length must be one decimal number.",
            Self::LengthsDiffer => "The request has two different Content-Length headers.",
            Self::LengthAndCoding => "Content-Length and Transfer-Encoding must not be combined.",
            Self::Coding => "The only Transfer-Encoding is chunked, once, and only in HTTP/1.1.",
            Self::Chunk => {
                "The chunked body breaks the rules for chunk sizes, extensions or trailers."
            }
        }
    }
}
