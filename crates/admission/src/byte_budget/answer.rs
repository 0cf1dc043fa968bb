//! Reservation of one answer: its known size, and an estimate for the rows still to be read.

use std::sync::Arc;

use super::{ByteBudget, NoRoom, Reservation};

/// Reason for which an answer is refused for its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerRefused {
    /// It exceeds the limit on one answer.
    TooLarge {
        /// Known bytes; it may have more.
        bytes: u64,
        /// Most bytes of an answer.
        limit_bytes: u64,
    },
    /// Other answers hold the bytes that it needs now.
    NoRoom(NoRoom),
}

impl From<NoRoom> for AnswerRefused {
    fn from(refused: NoRoom) -> Self {
        Self::NoRoom(refused)
    }
}

/// Reservation that one answer holds while its rows are read and until its bytes are sent.
///
/// Unread rows are reserved at the collection's mean size, so that an answer is refused before the
/// database has worked for it. Only rows that have been read make an answer too large: an estimate
/// may be wrong, so it never reserves more than the limit on one answer.
#[derive(Debug)]
pub struct AnswerReservation {
    reservation: Reservation,
    limit_bytes: u64,
    known_bytes: u64,
    unread_rows: u64,
}

impl AnswerReservation {
    /// Creates the reservation of an answer of unknown size and at most `limit_bytes`.
    #[must_use]
    pub fn new(budget: &Arc<ByteBudget>, limit_bytes: u64) -> Self {
        Self { reservation: budget.empty(), limit_bytes, known_bytes: 0, unread_rows: 0 }
    }

    /// Returns the bytes of the present rows.
    pub fn known_bytes(&self) -> u64 {
        self.known_bytes
    }

    /// Returns the reserved bytes.
    pub fn reserved_bytes(&self) -> u64 {
        self.reservation.bytes()
    }

    /// Expects `rows` more rows of about `row_bytes` each.
    ///
    /// # Errors
    /// [`AnswerRefused`]; the answer must then be abandoned.
    pub fn expect_rows(&mut self, rows: u64, row_bytes: u64) -> Result<(), AnswerRefused> {
        self.unread_rows += rows;
        self.fit(row_bytes)
    }

    /// Adds an unexpected row of `bytes` from memory.
    ///
    /// # Errors
    /// [`AnswerRefused`]
    pub fn add_known(&mut self, bytes: u64, row_bytes: u64) -> Result<(), AnswerRefused> {
        self.known_bytes += bytes;
        self.fit(row_bytes)
    }

    /// Adds an expected row of `bytes`. The others are expected to have about `row_bytes` each.
    ///
    /// # Errors
    /// [`AnswerRefused`]
    pub fn add_row(&mut self, bytes: u64, row_bytes: u64) -> Result<(), AnswerRefused> {
        self.unread_rows = self.unread_rows.saturating_sub(1);
        self.add_known(bytes, row_bytes)
    }

    /// Forgets the rows, for a new attempt; the reservation stays.
    pub fn restart(&mut self) {
        self.known_bytes = 0;
        self.unread_rows = 0;
    }

    /// Completes an answer that is too small to need a reservation.
    ///
    /// # Errors
    /// None; the type is that of [`AnswerReservation::finish`].
    pub fn none(mut self) -> Result<Reservation, AnswerRefused> {
        self.reservation.shrink_to(0);
        Ok(self.reservation)
    }

    /// Completes the answer and keeps exactly its `bytes`.
    ///
    /// # Errors
    /// [`AnswerRefused`]
    pub fn finish(mut self, bytes: u64) -> Result<Reservation, AnswerRefused> {
        self.known_bytes = bytes;
        self.unread_rows = 0;
        self.fit(0)?;
        self.reservation.shrink_to(bytes);
        Ok(self.reservation)
    }

    fn fit(&mut self, row_bytes: u64) -> Result<(), AnswerRefused> {
        let Self { limit_bytes, known_bytes, unread_rows, .. } = *self;
        if known_bytes > limit_bytes {
            return Err(AnswerRefused::TooLarge { bytes: known_bytes, limit_bytes });
        }
        let expected = known_bytes.saturating_add(unread_rows.saturating_mul(row_bytes));
        Ok(self.reservation.grow_to(expected.min(limit_bytes))?)
    }
}
