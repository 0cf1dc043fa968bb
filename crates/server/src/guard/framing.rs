//! Where messages begin and end in a connection's input. No I/O: bytes in, a decision out.

use super::chunked::{Chunked, Progress};
use super::head::{Body, HeadScan};
use super::refusal::Refusal;
use crate::config::Limits;

/// Follows the requests of one connection.
#[derive(Debug, Default)]
pub(super) struct Framer {
    place: Place,
}

#[derive(Debug)]
enum Place {
    Head(HeadScan),
    Length(u64),
    Chunked(Chunked),
}

impl Default for Place {
    fn default() -> Self {
        Self::Head(HeadScan::default())
    }
}

/// What may be passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Passed {
    /// Leading bytes that are sound and belong to one message. Never a part of a head: a head passes whole or not at all.
    pub(super) bytes: usize,
    /// What the last of them means.
    pub(super) then: Then,
}

/// What follows the bytes that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// The message goes on; more bytes are needed.
    More,
    /// The message is complete; what comes next begins another.
    End,
    /// Nothing that comes next may be read.
    Refused(Refusal),
}

impl Framer {
    /// Whether the next byte to pass belongs to a head.
    #[must_use]
    pub(super) fn at_head(&self) -> bool {
        matches!(self.place, Place::Head(_))
    }

    /// Looks at `bytes`, which begin where the bytes that passed before ended, and stops at the end of a message.
    pub(super) fn advance(&mut self, bytes: &[u8], limits: &Limits) -> Passed {
        let mut head_bytes = 0;
        if let Place::Head(scan) = &mut self.place {
            let head = match scan.scan(bytes, limits) {
                Ok(Some(head)) => head,
                Ok(None) => return Passed { bytes: 0, then: Then::More },
                Err(refusal) => return Passed { bytes: 0, then: Then::Refused(refusal) },
            };
            head_bytes = head.bytes;
            self.place = match head.body {
                Body::Empty => Place::default(),
                Body::Length(length) => Place::Length(length),
                Body::Chunked => Place::Chunked(Chunked::default()),
            };
            if head.body == Body::Empty {
                return Passed { bytes: head_bytes, then: Then::End };
            }
        }
        let body = self.body(&bytes[head_bytes..], limits);
        Passed { bytes: head_bytes + body.bytes, then: body.then }
    }

    fn body(&mut self, bytes: &[u8], limits: &Limits) -> Passed {
        let passed = match &mut self.place {
            Place::Head(_) => Passed { bytes: 0, then: Then::More },
            Place::Length(left) => {
                let here = (*left).min(bytes.len() as u64);
                *left -= here;
                Passed { bytes: here as usize, then: if *left == 0 { Then::End } else { Then::More } }
            }
            Place::Chunked(chunked) => match chunked.advance(bytes, limits.header_bytes) {
                Progress::Open => Passed { bytes: bytes.len(), then: Then::More },
                Progress::End(here) => Passed { bytes: here, then: Then::End },
                Progress::Refused(here, refusal) => Passed { bytes: here, then: Then::Refused(refusal) },
            },
        };
        if passed.then == Then::End {
            self.place = Place::default();
        }
        passed
    }
}

#[cfg(test)]
mod tests;
