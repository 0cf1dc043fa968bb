//! Boundaries of messages in a connection's input. No I/O: bytes in, a decision out.

use super::chunked::{Chunked, Progress};
use super::head::{Body, HeadScan};
use super::refusal::Rejection;
use crate::config::Limits;

/// Parser state that follows the requests of one connection.
#[derive(Debug, Default)]
pub(super) struct Framer {
    part: MessagePart,
}

#[derive(Debug)]
enum MessagePart {
    Head(HeadScan),
    Length(u64),
    Chunked(Chunked),
}

impl Default for MessagePart {
    fn default() -> Self {
        Self::Head(HeadScan::default())
    }
}

/// Bytes that may be forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Forwardable {
    /// Leading bytes that are valid and belong to one message. Never a part of a head: a head
    /// passes whole or not at all.
    pub(super) bytes: usize,
    /// Meaning of the last byte that passed.
    pub(super) state: MessageState,
}

/// State after the bytes that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageState {
    /// The message is incomplete.
    More,
    /// The message is complete; another follows.
    End,
    /// Nothing after this may be read.
    Refused(Rejection),
}

impl Framer {
    /// Returns whether the next byte belongs to a head.
    #[must_use]
    pub(super) fn at_head(&self) -> bool {
        matches!(self.part, MessagePart::Head(_))
    }

    /// Examines `bytes`, which continue the bytes that passed before, and stops at the end of a
    /// message.
    pub(super) fn advance(&mut self, bytes: &[u8], limits: &Limits) -> Forwardable {
        let mut head_bytes = 0;
        if let MessagePart::Head(scan) = &mut self.part {
            let head = match scan.scan(bytes, limits) {
                Ok(Some(head)) => head,
                Ok(None) => return Forwardable { bytes: 0, state: MessageState::More },
                Err(refusal) => {
                    return Forwardable { bytes: 0, state: MessageState::Refused(refusal) };
                }
            };
            head_bytes = head.bytes;
            self.part = match head.body {
                Body::Empty => MessagePart::default(),
                Body::Length(length) => MessagePart::Length(length),
                Body::Chunked => MessagePart::Chunked(Chunked::default()),
            };
            if head.body == Body::Empty {
                return Forwardable { bytes: head_bytes, state: MessageState::End };
            }
        }
        let body = self.body(&bytes[head_bytes..], limits);
        Forwardable { bytes: head_bytes + body.bytes, state: body.state }
    }

    fn body(&mut self, bytes: &[u8], limits: &Limits) -> Forwardable {
        let passed = match &mut self.part {
            MessagePart::Head(_) => Forwardable { bytes: 0, state: MessageState::More },
            MessagePart::Length(left) => {
                let here = (*left).min(bytes.len() as u64);
                *left -= here;
                Forwardable {
                    bytes: here as usize,
                    state: if *left == 0 { MessageState::End } else { MessageState::More },
                }
            }
            MessagePart::Chunked(chunked) => match chunked.advance(bytes, limits) {
                Progress::Open => Forwardable { bytes: bytes.len(), state: MessageState::More },
                Progress::End(here) => Forwardable { bytes: here, state: MessageState::End },
                Progress::Refused(here, refusal) => {
                    Forwardable { bytes: here, state: MessageState::Refused(refusal) }
                }
            },
        };
        if passed.state == MessageState::End {
            self.part = MessagePart::default();
        }
        passed
    }
}

/// Passes a connection's bytes to a framer, in any pieces. Returns the messages in `pieces`; the
/// last may be incomplete. Ends where the framer refuses.
#[cfg(any(test, fuzzing))]
pub(crate) fn follow<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    limits: &Limits,
) -> Vec<Vec<u8>> {
    let mut framer = Framer::default();
    let mut held = Vec::new();
    let mut messages = vec![Vec::new()];
    for piece in pieces {
        held.extend_from_slice(piece);
        while !held.is_empty() {
            let passed = framer.advance(&held, limits);
            assert!(passed.bytes <= held.len(), "more passed than there was");
            if let Some(open) = messages.last_mut() {
                open.extend(held.drain(..passed.bytes));
            }
            match passed.state {
                MessageState::More => break,
                MessageState::End => messages.push(Vec::new()),
                MessageState::Refused(_) => return messages,
            }
        }
    }
    messages
}

#[cfg(test)]
mod tests;
