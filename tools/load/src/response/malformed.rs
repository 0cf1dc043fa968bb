//! Responses that are not HTTP/1.1.

/// Longest response head, in bytes.
pub const HEAD_BYTES_MAX: usize = 256 * 1024;
/// Most interim (1xx) responses before the final one. Clients must take any number of them (RFC
/// 9110, section 15.2), and some servers send one per second of work.
pub const INTERIM_MAX: u32 = 10_000;

/// Reasons why bytes are no valid HTTP/1.1 response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Invalid status line.
    #[error("the answer does not begin with an HTTP/1 status line: is this an HTTP server?")]
    StatusLine,
    /// A header line without a colon or a name.
    #[error("a header line of the answer is not valid")]
    HeaderLine,
    /// The head exceeds the limit.
    #[error("the head of the answer is longer than {HEAD_BYTES_MAX} bytes")]
    HeadTooLong,
    /// `Content-Length` is no number, or has contradictory values.
    #[error("the Content-Length of the answer is not valid")]
    ContentLength,
    /// `Transfer-Encoding` is not just a final `chunked`.
    #[error("the Transfer-Encoding of the answer is not chunked")]
    TransferEncoding,
    /// A chunk without a valid size or end.
    #[error("the chunks of the answer are not valid")]
    Chunk,
    /// 101 without a request to upgrade.
    #[error("the server switches protocols, which was not asked for")]
    Switched,
    /// More than [`INTERIM_MAX`].
    #[error("more than {INTERIM_MAX} interim (1xx) answers came before the final one")]
    TooManyInterim,
}
