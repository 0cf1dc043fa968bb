//! What went wrong with a read, as far as a client may know; the cause goes to the log, once per failed query.

use hotrow_cache::Refusal;
use hotrow_cache::flight::Failure;
use hotrow_source::ReadError;

use crate::problem::Problem;

/// The class of a failed read; shared by all who waited for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The database cannot be reached.
    Unavailable,
    /// It did not answer in time.
    Timeout,
    /// The collection's table or columns are gone.
    Broken,
    /// This one record has no JSON form.
    Unreadable,
    /// The database was not asked, for it failed too often lately; in so many seconds it is tried again.
    LeftAlone {
        /// At least 1.
        retry_after_s: u32,
    },
}

impl From<&ReadError> for Trouble {
    fn from(error: &ReadError) -> Self {
        match error {
            ReadError::Unavailable { .. } => Self::Unavailable,
            ReadError::Timeout { .. } => Self::Timeout,
            ReadError::Broken { .. } => Self::Broken,
        }
    }
}

impl From<&Failure<Trouble>> for Problem {
    fn from(failure: &Failure<Trouble>) -> Self {
        match failure {
            Failure::Source(Trouble::Unavailable) => Self::Unavailable("the database is not available"),
            Failure::Source(Trouble::Timeout) => Self::Timeout("the database did not answer in time"),
            Failure::Source(Trouble::Broken) => Self::Unavailable("this collection cannot be read at present"),
            Failure::Source(Trouble::Unreadable) => Self::Unreadable,
            Failure::Source(Trouble::LeftAlone { retry_after_s }) => Self::LeftAlone { retry_after_s: *retry_after_s },
            Failure::Overdue => Self::Overloaded("the database is behind, and this read was given up for newer ones"),
            Failure::Abandoned => Self::Unavailable("the read was given up"),
        }
    }
}

impl From<&Refusal<Trouble>> for Problem {
    fn from(refusal: &Refusal<Trouble>) -> Self {
        match refusal {
            Refusal::QueueFull => Self::Overloaded("too many ids wait for the database"),
            Refusal::TooLate => Self::Overloaded("the database cannot answer before the deadline of this request"),
            Refusal::Behind => {
                Self::Unavailable("changes cannot be followed at present, and stale answers are not allowed")
            }
            Refusal::Failed(failure) => failure.into(),
        }
    }
}
