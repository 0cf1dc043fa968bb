//! HTTP/1.1 for a server, without I/O: bytes in, requests and refusals out (RFC 9110, RFC 9112).
//!
//! Reading order: [`head`] parses a request's head in one pass over its bytes, which may arrive in
//! any pieces; [`fields`] are its header fields; [`body`] decodes what follows; [`write`] writes
//! the heads of answers. [`error`] lists what is refused: everything that two parsers could read in
//! two ways. [`authority`] and [`target`] hold the grammar of hosts and request targets.
//!
//! Reference `http`: Wire format
//!
//! - `HEAD`: gets no body, except on a connection beyond a limit.
//! - targets: a target is a path or a URL, whose host is ignored. One with a fragment (`#`) gets
//!   400. HTTP/1.2 to 1.9 are 505.
//! - `400`, and closed: `Content-Length` beside `Transfer-Encoding`, two different lengths,
//!   `Transfer-Encoding` other than one `chunked` or in HTTP/1.0, folded lines, white space before
//!   the colon, NUL, bare CR and other forbidden bytes, no `Host`, two or an invalid one, an empty
//!   `:authority`, malformed chunks or trailers. A bare LF ends a line of the head, not of a
//!   chunked body.

pub mod authority;
pub mod body;
mod chunked;
pub mod error;
pub mod fields;
pub mod head;
mod search;
pub mod target;
pub mod write;

/// Limits on a request. A value at the limit is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of a head, with its empty line; also most bytes of a trailer section.
    pub head_bytes: usize,
    /// Most header fields.
    pub fields: usize,
    /// Most bytes of a request target.
    pub target_bytes: usize,
    /// Most bytes of a body, without the framing of its chunks.
    pub body_bytes: usize,
}

/// Returns whether names may contain the byte (RFC 9110 section 5.6.2). The load generator has its
/// own version, so that an error of one shows in the other.
pub fn is_token(byte: u8) -> bool {
    search::TOKEN[usize::from(byte)]
}
