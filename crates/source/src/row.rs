//! One row of an answer.

use crate::row_budget::Room;

/// Result of a query for one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Row {
    /// The record as JSON: an object. In a collection with a tenant column that column's value as
    /// JSON stands before it, as in [`hotrow_types::tenant::TenantRow`].
    Found(Vec<u8>),
    /// No such row exists.
    Missing,
    /// The row, or its absence, for a key spelling whose changes the feed does not report. It may
    /// be answered, but not cached.
    Uncacheable(Option<Vec<u8>>),
    /// Not read: the query reached its own byte limit before this key. The key may be read again.
    NotRead,
    /// Not read: all queries together reached their byte limit before this key.
    NoRoom,
    /// The row exists but cannot be converted to JSON; other rows of the query are unaffected. The
    /// text is for the log.
    Unreadable(String),
}

impl Row {
    /// Returns the bytes of the record; 0 without one.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Found(body) | Self::Uncacheable(Some(body)) => body.len(),
            Self::Missing
            | Self::Uncacheable(None)
            | Self::NotRead
            | Self::NoRoom
            | Self::Unreadable(_) => 0,
        }
    }
}

/// Marks the rows that an ended query did not reach, by the limit that ended it. `absent` is the
/// value of a row that the database has not sent yet.
pub fn mark_unread(rows: &mut [Row], absent: &Row, ended: Room) {
    let reason = match ended {
        Room::Taken => return,
        Room::QueryFull => Row::NotRead,
        Room::NoRoom => Row::NoRoom,
    };
    rows.iter_mut().filter(|row| *row == absent).for_each(|row| *row = reason.clone());
}
