//! Body of an answer: a record of the cache, bytes made for this answer, or segments of both.

mod segments;

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use hotrow_admission::byte_budget::Reservation;
use hotrow_representation::record_form::RecordForm;
use http_body::{Frame, SizeHint};

pub use self::segments::Segments;
use crate::activity::Activity;

/// Bytes from which a large answer hands over its segments. Records among them are freed one by one
/// when they are written. A record is never divided: it leaves with one system call if the socket
/// has room.
const PIECE_BYTES_MIN: usize = 64 << 10;

/// Body of an answer.
#[derive(Debug)]
pub enum Body {
    /// Nothing, or nothing more.
    Empty,
    /// A cached record's bytes, without a copy.
    Record(RecordForm),
    /// Bytes made for this answer.
    Bytes(Bytes),
    /// A large answer, which holds a reservation in the budget of all answers.
    Held(Box<HeldBody>),
    /// An answer without a known end.
    Endless(Box<dyn EndlessBody>),
}

/// Body whose frames are made while its client takes them.
pub trait EndlessBody: fmt::Debug {
    /// Returns the next frame; `None` after the last.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>>;

    /// Notes that its client has taken nothing for too long, and that it is dropped for that.
    fn note_stuck(&mut self);

    /// Sets what is called with the number of its bytes when it is dropped.
    fn at_end(&mut self, note: Box<dyn FnOnce(u64)>);
}

impl Body {
    /// Returns the length in bytes, as far as it is known.
    pub fn len(&self) -> usize {
        match self {
            Self::Empty | Self::Endless(_) => 0,
            Self::Record(form) => form.bytes().len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::Held(held) => held.segments.len(),
        }
    }

    /// Returns whether it has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && !matches!(self, Self::Endless(_))
    }

    /// Returns its bytes if they are in one piece.
    #[inline]
    pub fn whole(&self) -> Option<&[u8]> {
        match self {
            Self::Empty => Some(&[]),
            Self::Record(form) => Some(form.bytes()),
            Self::Bytes(bytes) => Some(bytes),
            Self::Held(_) | Self::Endless(_) => None,
        }
    }

    /// Creates a body of segments, with a reservation that lasts until they are sent over the
    /// connection.
    #[must_use]
    pub fn held(segments: Segments, reservation: Reservation, activity: &Rc<Activity>) -> Self {
        let activity = Rc::clone(activity);
        Self::Held(Box::new(HeldBody { segments, reservation: Some(reservation), activity }))
    }

    /// Appends bytes to a large answer. A small one is copied by its sender, with what follows it.
    #[must_use]
    pub fn followed_by(mut self, end: &'static [u8]) -> Self {
        if let Self::Held(held) = &mut self {
            held.segments.push_text(Bytes::from_static(end));
        }
        self
    }

    /// Returns the same bytes in segments.
    #[must_use]
    pub(crate) fn into_segments(self) -> Segments {
        let mut segments = Segments::default();
        match self {
            Self::Empty | Self::Endless(_) => {}
            Self::Record(form) => segments.push_record(form),
            Self::Bytes(bytes) => segments.push_text(bytes),
            Self::Held(mut held) => segments = std::mem::take(&mut held.segments),
        }
        segments
    }
}

/// Segments with their reservation. Dropped by the writer when the last piece has been handed over;
/// the reservation then stays with the connection until the kernel has that piece.
#[derive(Debug)]
pub struct HeldBody {
    segments: Segments,
    /// `None` only while it is dropped.
    reservation: Option<Reservation>,
    activity: Rc<Activity>,
}

impl Drop for HeldBody {
    fn drop(&mut self) {
        if let Some(reservation) = self.reservation.take() {
            self.activity.keep_until_sent(reservation);
        }
    }
}

impl http_body::Body for Body {
    type Data = Chunk;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Chunk>, Infallible>>> {
        if let Self::Held(held) = &mut *self {
            let piece = held.segments.take_front(PIECE_BYTES_MIN);
            return Poll::Ready(
                (!piece.is_empty()).then(|| Ok(Frame::data(Chunk::Segments(piece)))),
            );
        }
        if let Self::Endless(endless) = &mut *self {
            let frame = |bytes| Ok(Frame::data(Chunk::Bytes(bytes)));
            return endless.poll_frame(cx).map(|bytes| bytes.map(frame));
        }
        let chunk = match std::mem::replace(&mut *self, Self::Empty) {
            Self::Empty | Self::Held(_) | Self::Endless(_) => return Poll::Ready(None),
            Self::Record(form) => Chunk::Record { form, at: 0 },
            Self::Bytes(bytes) => Chunk::Bytes(bytes),
        };
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Endless(_) => SizeHint::default(),
            _ => SizeHint::with_exact(self.len() as u64),
        }
    }
}

/// Bytes on their way to the socket.
#[derive(Debug)]
pub enum Chunk {
    /// A record's bytes from byte `at` on.
    Record {
        /// The record.
        form: RecordForm,
        /// Bytes already written.
        at: usize,
    },
    /// The rest of these.
    Bytes(Bytes),
    /// A piece of a large answer.
    Segments(Segments),
}

impl Buf for Chunk {
    fn remaining(&self) -> usize {
        match self {
            Self::Record { form, at } => form.bytes().len() - at,
            Self::Bytes(bytes) => bytes.remaining(),
            Self::Segments(segments) => segments.remaining(),
        }
    }

    fn chunk(&self) -> &[u8] {
        match self {
            Self::Record { form, at } => &form.bytes()[*at..],
            Self::Bytes(bytes) => bytes.chunk(),
            Self::Segments(segments) => segments.chunk(),
        }
    }

    fn advance(&mut self, count: usize) {
        match self {
            // `count` is at most `remaining()`: the contract of `Buf`.
            Self::Record { at, .. } => *at += count,
            Self::Bytes(bytes) => bytes.advance(count),
            Self::Segments(segments) => segments.advance(count),
        }
    }
}

#[cfg(test)]
mod tests {
    use hotrow_admission::byte_budget::ByteBudget;

    use super::*;
    use crate::context::tests::connection;

    #[test]
    fn a_reservation_stays_with_its_connection_until_the_bytes_are_sent() {
        let budget = ByteBudget::new(100);
        let connection = connection();
        let held = || {
            let reservation = budget.reserve(10).expect("room");
            Body::held(Segments::default(), reservation, &connection.activity)
        };
        [held(), held()].into_iter().for_each(drop);
        assert_eq!(budget.used_bytes(), 20);
        connection.activity.all_sent();
        assert_eq!(budget.used_bytes(), 0);
        let unsent = held();
        assert_eq!(budget.used_bytes(), 10);
        drop(unsent);
        drop(connection);
        assert_eq!(budget.used_bytes(), 0, "the connection has ended");
    }
}
