//! An incremental parser of HTTP/1.1 responses (RFC 9112): bytes in, whole answers out, no I/O.
//!
//! Bodies are counted and dropped. Reading order: [`Parser`], [`head`] (status line and header fields), [`chunked`].

pub mod chunked;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod head;

use chunked::Chunked;
use head::{Framing, Head};

/// Longest head of a response, in bytes.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Most interim (1xx) responses before the final one.
pub const INTERIM_MAX: u32 = 16;

/// Follows the responses of one connection.
#[derive(Debug, Default)]
pub struct Parser {
    stage: Stage,
    /// The beginning of a head that one read did not hold.
    partial: Vec<u8>,
    interim: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
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
    /// Bytes still to come; at least one.
    Fixed(u64),
    Chunked(Chunked),
    UntilClose,
}

/// A complete final response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code, 200 to 999.
    pub status: u16,
    /// Whether the connection may be used again.
    pub keep: bool,
}

/// What [`Parser::feed`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fed {
    /// Bytes that belong to this answer; the rest belongs to the next.
    pub used: usize,
    /// The answer, when it is complete. Without one all bytes are used.
    pub answer: Option<Answer>,
}

/// What the end of the stream means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It comes between answers.
    Between,
    /// It completes this answer, whose body lasts until the connection is closed.
    Complete(Answer),
    /// It cuts an answer off.
    Inside,
}

/// Why bytes are no HTTP/1.1 response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// No status line.
    #[error("the answer does not begin with an HTTP/1 status line: is this an HTTP server?")]
    StatusLine,
    /// A header line without a colon or a name.
    #[error("a header line of the answer is not valid")]
    HeaderLine,
    /// The head does not end.
    #[error("the head of the answer is longer than {HEAD_BYTES_MAX} bytes")]
    HeadTooLong,
    /// No number, or two that differ.
    #[error("the Content-Length of the answer is not valid")]
    ContentLength,
    /// Something else than `chunked`, or not at the end.
    #[error("the Transfer-Encoding of the answer is not chunked")]
    TransferEncoding,
    /// A chunk without a valid size, or without its end.
    #[error("the chunks of the answer are not valid")]
    Chunk,
    /// 101, which nobody asked for.
    #[error("the server switches protocols, which was not asked for")]
    Switched,
    /// More than [`INTERIM_MAX`].
    #[error("the server sends one interim (1xx) answer after another")]
    TooManyInterim,
}

impl Parser {
    /// Takes bytes of the answer to one request. `has_body` is false when that was a HEAD.
    ///
    /// # Errors
    /// What is wrong with the answer. The connection cannot be used any more.
    #[inline]
    pub fn feed(&mut self, bytes: &[u8], has_body: bool) -> Result<Fed, Malformed> {
        let mut used = 0;
        loop {
            match &mut self.stage {
                Stage::Head => {
                    let (head, taken) = match self.head(&bytes[used..])? {
                        Some(found) => found,
                        None => return Ok(Fed { used: bytes.len(), answer: None }),
                    };
                    used += taken;
                    if head.status < 200 {
                        self.pass_interim(head)?;
                    } else if let Some(answer) = self.begin_body(head, has_body) {
                        return Ok(Fed { used, answer: Some(answer) });
                    }
                }
                Stage::Body { status, keep, body } => {
                    let (taken, complete) = body.feed(&bytes[used..])?;
                    used += taken;
                    let answer = complete.then_some(Answer { status: *status, keep: *keep });
                    if complete {
                        self.stage = Stage::Head;
                    }
                    return Ok(Fed { used, answer });
                }
            }
        }
    }

    /// The stream has ended.
    #[must_use]
    pub fn end(&self) -> Ended {
        match self.stage {
            Stage::Head if self.partial.is_empty() && self.interim == 0 => Ended::Between,
            Stage::Body { status, body: Body::UntilClose, .. } => Ended::Complete(Answer { status, keep: false }),
            _ => Ended::Inside,
        }
    }

    /// Ready for a new connection. Keeps no memory of a long head.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// A whole head and its length, if there is one yet. Bytes of an incomplete one are kept.
    fn head(&mut self, bytes: &[u8]) -> Result<Option<(Head, usize)>, Malformed> {
        if self.partial.is_empty() {
            let found = head::parse(bytes);
            if let Ok(Some(found)) = found {
                return Ok(Some(found));
            }
            // What is wrong is told when the head is whole, so that it does not depend on how reads split it.
            if whole(bytes, 0)? {
                return found;
            }
            self.partial.extend_from_slice(bytes);
            return Ok(None);
        }
        // A line break that ends the head may have begun in what is kept already.
        let before = self.partial.len();
        let room = (HEAD_BYTES_MAX + 1).saturating_sub(before).min(bytes.len());
        self.partial.extend_from_slice(&bytes[..room]);
        let found = if whole(&self.partial, before.saturating_sub(3))? { head::parse(&self.partial)? } else { None };
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

    /// The answer, when its head is all of it (RFC 9112 section 6.3).
    fn begin_body(&mut self, head: Head, has_body: bool) -> Option<Answer> {
        self.interim = 0;
        let Head { status, keep, framing } = head;
        let bodyless = !has_body || status == 204 || status == 304;
        let body = match framing {
            _ if bodyless => return Some(Answer { status, keep }),
            Framing::Fixed(0) => return Some(Answer { status, keep }),
            Framing::Fixed(bytes) => Body::Fixed(bytes),
            Framing::Chunked => Body::Chunked(Chunked::default()),
            Framing::None => Body::UntilClose,
        };
        self.stage = Stage::Body { status, keep, body };
        None
    }
}

impl Body {
    /// Bytes used, and whether the body is complete.
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

/// Whether `bytes` begin with a whole head. Its end is looked for from `from` on.
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
