//! Errors of reads as far as a client may know them. The cause is logged once per failed query.

use hotrow_cache::LookupError;
use hotrow_cache::flight::FlightError;
use hotrow_source::SourceError;

use crate::http_error::HttpError;

/// Class of a failed read; shared by all waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The database cannot be reached.
    Unavailable,
    /// The database did not answer in time.
    Timeout,
    /// The collection's table or columns are gone.
    Broken,
    /// This one record has no JSON form.
    Unreadable,
    /// Rows read earlier fill the budget of rows.
    NoRoom,
    /// The circuit breaker is open because the database failed too often; it probes again after a
    /// number of seconds.
    CircuitOpen {
        /// At least 1.
        retry_after_s: u32,
    },
}

impl From<&SourceError> for Trouble {
    fn from(error: &SourceError) -> Self {
        match error {
            SourceError::Unavailable { .. } => Self::Unavailable,
            SourceError::Timeout { .. } => Self::Timeout,
            SourceError::Broken { .. } => Self::Broken,
        }
    }
}

impl From<&FlightError<Trouble>> for HttpError {
    fn from(failure: &FlightError<Trouble>) -> Self {
        match failure {
            FlightError::Source(Trouble::Unavailable) => {
                Self::Unavailable("the database is not available")
            }
            FlightError::Source(Trouble::Timeout) => {
                Self::Timeout("the database did not answer in time")
            }
            FlightError::Source(Trouble::Broken) => {
                Self::Unavailable("this collection cannot be read now")
            }
            FlightError::Source(Trouble::Unreadable) => Self::Unreadable,
            FlightError::Source(Trouble::NoRoom) => Self::Overloaded(
                "rows in transit hold as many bytes as this server allows \
                 (limits.rows_bytes_total); try again later",
            ),
            FlightError::Source(Trouble::CircuitOpen { retry_after_s }) => {
                Self::CircuitOpen { retry_after_s: *retry_after_s }
            }
            FlightError::Overdue => Self::Overloaded(
                "the database is behind, and this read was dropped in favour of newer ones",
            ),
            FlightError::Abandoned => Self::Unavailable("the read was cancelled"),
        }
    }
}

impl From<&LookupError<Trouble>> for HttpError {
    fn from(refusal: &LookupError<Trouble>) -> Self {
        match refusal {
            LookupError::QueueFull => Self::Overloaded("too many ids are waiting for the database"),
            LookupError::TooLate => {
                Self::Overloaded("the database cannot answer before the deadline of this request")
            }
            LookupError::Behind => Self::Unavailable(
                "changes cannot be followed now, and stale answers are not allowed",
            ),
            LookupError::Failed(failure) => failure.into(),
        }
    }
}
