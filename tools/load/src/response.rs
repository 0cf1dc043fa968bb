//! An incremental parser of HTTP/1.1 responses (RFC 9112) without I/O.
//!
//! Bodies are counted and dropped. Reading order: [`Parser`], [`head`] (status line and header
//! fields), [`chunked`].

pub mod chunked;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod head;
pub mod malformed;

use chunked::Chunked;
use head::{Framing, Head};
use malformed::HEAD_BYTES_MAX;
pub use malformed::{INTERIM_MAX, Malformed};

/// Parses the responses of one connection.
#[derive(Debug, Default)]
pub struct Parser {
    stage: ParserState,
    /// The beginning of a head that spans reads.
    partial: Vec<u8>,
    interim: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ParserState {
    /// Before or in a head.
    #[default]
    Head,
    Body {
        status: u16,
        keep: bool,
        body: Body,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    /// Remaining bytes; at least one.
    Fixed(u64),
    Chunked(Chunked),
    UntilClose,
}

/// A complete final response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status code, 200 to 999.
    pub status: u16,
    /// True if the connection may be reused.
    pub keep: bool,
}

/// The result of [`Parser::feed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedResult {
    /// Bytes that belong to this response; the others belong to the next.
    pub used: usize,
    /// The response, when complete. Without one all bytes are used.
    pub answer: Option<Response>,
}

/// The meaning of the end of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// It falls between responses.
    BetweenResponses,
    /// It completes this response, whose body lasts until the connection closes.
    Complete(Response),
    /// It truncates a response.
    Truncated,
}

impl Parser {
    /// Parses bytes of the response to one request. `has_body` is false after HEAD.
    ///
    /// # Errors
    /// Returns the defect; the connection cannot be used any more.
    #[inline]
    pub fn feed(&mut self, bytes: &[u8], has_body: bool) -> Result<FeedResult, Malformed> {
        let mut used = 0;
        loop {
            match &mut self.stage {
                ParserState::Head => {
                    let (head, taken) = match self.head(&bytes[used..])? {
                        Some(found) => found,
                        None => return Ok(FeedResult { used: bytes.len(), answer: None }),
                    };
                    used += taken;
                    if head.status < 200 {
                        self.pass_interim(head)?;
                    } else if let Some(answer) = self.begin_body(head, has_body) {
                        return Ok(FeedResult { used, answer: Some(answer) });
                    }
                }
                ParserState::Body { status, keep, body } => {
                    let (taken, complete) = body.feed(&bytes[used..])?;
                    used += taken;
                    let answer = complete.then_some(Response { status: *status, keep: *keep });
                    if complete {
                        self.stage = ParserState::Head;
                    }
                    return Ok(FeedResult { used, answer });
                }
            }
        }
    }

    /// Handles the end of the stream.
    #[must_use]
    pub fn end(&self) -> StreamEnd {
        match self.stage {
            ParserState::Head if self.partial.is_empty() && self.interim == 0 => {
                StreamEnd::BetweenResponses
            }
            ParserState::Body { status, body: Body::UntilClose, .. } => {
                StreamEnd::Complete(Response { status, keep: false })
            }
            _ => StreamEnd::Truncated,
        }
    }

    /// Resets the parser for a new connection and frees the memory of a long head.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Returns a complete head and its length; keeps the bytes of an incomplete one.
    fn head(&mut self, bytes: &[u8]) -> Result<Option<(Head, usize)>, Malformed> {
        if self.partial.is_empty() {
            let found = head::parse(bytes);
            if let Ok(Some(found)) = found {
                return Ok(Some(found));
            }
            // Defects are reported when the head is complete, so that they do not depend on how
            // reads split it.
            if whole(bytes, 0)? {
                return found;
            }
            self.partial.extend_from_slice(bytes);
            return Ok(None);
        }
        // A line break that ends the head may have begun in the kept bytes.
        let before = self.partial.len();
        let room = (HEAD_BYTES_MAX + 1).saturating_sub(before).min(bytes.len());
        self.partial.extend_from_slice(&bytes[..room]);
        let found = if whole(&self.partial, before.saturating_sub(3))? {
            head::parse(&self.partial)?
        } else {
            None
        };
        Ok(found.map(|(head, length)| {
            self.partial = Vec::new();
            (head, length - before)
        }))
    }

    fn pass_interim(&mut self, head: Head) -> Result<(), Malformed> {
        self.interim += 1;
        if head.status == 101 {
            return Err(Malformed::Switched);
        }
        if self.interim > INTERIM_MAX { Err(Malformed::TooManyInterim) } else { Ok(()) }
    }

    /// Returns the response when it consists of its head alone (RFC 9112 section 6.3).
    fn begin_body(&mut self, head: Head, has_body: bool) -> Option<Response> {
        self.interim = 0;
        let Head { status, keep, framing } = head;
        let bodyless = !has_body || status == 204 || status == 304;
        let body = match framing {
            _ if bodyless => return Some(Response { status, keep }),
            Framing::Fixed(0) => return Some(Response { status, keep }),
            Framing::Fixed(bytes) => Body::Fixed(bytes),
            Framing::Chunked => Body::Chunked(Chunked::default()),
            Framing::None => Body::UntilClose,
        };
        self.stage = ParserState::Body { status, keep, body };
        None
    }
}

impl Body {
    /// Returns the bytes used and whether the body is complete.
    fn feed(&mut self, bytes: &[u8]) -> Result<(usize, bool), Malformed> {
        match self {
            Self::Fixed(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= taken as u64;
                Ok((taken, *left == 0))
            }
            Self::Chunked(chunked) => chunked.feed(bytes),
            Self::UntilClose => Ok((bytes.len(), false)),
        }
    }
}

/// Returns whether `bytes` begin with a complete head. Searches for its end starting at `from`.
fn whole(bytes: &[u8], from: usize) -> Result<bool, Malformed> {
    head::check_beginning(bytes)?;
    let within = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
    match head::end(within, from) {
        Some(_) => Ok(true),
        None if bytes.len() > HEAD_BYTES_MAX => Err(Malformed::HeadTooLong),
        None => Ok(false),
    }
}

#[cfg(test)]
mod tests;
