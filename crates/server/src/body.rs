//! The body of an answer: a record straight out of the cache, or bytes made for this answer.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use hotrow_cache::Record;
use http_body::{Frame, SizeHint};

/// An answer's body; one chunk at most.
#[derive(Debug)]
pub enum Body {
    /// Nothing, or nothing more.
    Empty,
    /// A cached record's bytes, without a copy.
    Record(Record),
    /// Bytes made for this answer.
    Bytes(Bytes),
}

impl Body {
    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::Record(record) => record.body().len(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl http_body::Body for Body {
    type Data = Chunk;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Chunk>, Infallible>>> {
        let chunk = match std::mem::replace(&mut *self, Self::Empty) {
            Self::Empty => return Poll::Ready(None),
            Self::Record(record) => Chunk::Record { record, at: 0 },
            Self::Bytes(bytes) => Chunk::Bytes(bytes),
        };
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len() as u64)
    }
}

/// Bytes on their way to the socket.
#[derive(Debug)]
pub enum Chunk {
    /// A record's body from `at` on.
    Record {
        /// Whose body.
        record: Record,
        /// Bytes already written.
        at: usize,
    },
    /// What is left of these.
    Bytes(Bytes),
}

impl Buf for Chunk {
    fn remaining(&self) -> usize {
        match self {
            Self::Record { record, at } => record.body().len() - at,
            Self::Bytes(bytes) => bytes.remaining(),
        }
    }

    fn chunk(&self) -> &[u8] {
        match self {
            Self::Record { record, at } => &record.body()[*at..],
            Self::Bytes(bytes) => bytes.chunk(),
        }
    }

    fn advance(&mut self, count: usize) {
        match self {
            // `count` is at most `remaining()`: the contract of `Buf`.
            Self::Record { at, .. } => *at += count,
            Self::Bytes(bytes) => bytes.advance(count),
        }
    }
}
