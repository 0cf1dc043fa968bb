//! Attempts of one read: the failures after which another attempt may succeed.

use crate::SourceError;
use crate::pool::Age;

/// Attempts of one read: the first, one after a connection died unnoticed, one after the table
/// changed, and one after a change of the server.
pub const ATTEMPTS_MAX: usize = 4;

/// Consequence of a driver's error for a read.
#[derive(Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection cannot be used any more.
    Gone(SourceError),
    /// The statement no longer fits the table, which must be inspected again.
    Stale(SourceError),
    /// Only this query failed.
    Query(SourceError),
}

/// Failure of one attempt.
#[derive(Debug, PartialEq, Eq)]
pub enum AttemptError {
    /// The connection had died. Another one may work.
    Reconnect(SourceError),
    /// The table had changed and was inspected again.
    Replanned(SourceError),
    /// Another attempt would fail too.
    Final(SourceError),
}

impl AttemptError {
    /// Returns the failure of an attempt whose connection is gone. Only one that was used before
    /// may have been dead already.
    #[must_use]
    pub fn gone(error: SourceError, age: Age) -> Self {
        match age {
            Age::Used => Self::Reconnect(error),
            Age::New => Self::Final(error),
        }
    }
}

/// Attempts that were repeated already, once per reason at most.
#[derive(Debug, Default)]
pub struct Repeated {
    reconnected: bool,
    replanned: bool,
}

impl Repeated {
    /// Returns `Ok` if the read may be attempted again after this failure.
    ///
    /// # Errors
    /// Returns the failure as the result of the read.
    pub fn once(&mut self, error: AttemptError) -> Result<(), SourceError> {
        match error {
            AttemptError::Reconnect(_) if !self.reconnected => self.reconnected = true,
            AttemptError::Replanned(_) if !self.replanned => self.replanned = true,
            AttemptError::Reconnect(e) | AttemptError::Replanned(e) | AttemptError::Final(e) => {
                return Err(e);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_is_repeated_once_per_reason() {
        let error = |detail: &str| SourceError::unavailable(detail);
        let mut repeated = Repeated::default();
        assert_eq!(repeated.once(AttemptError::gone(error("a"), Age::Used)), Ok(()));
        assert_eq!(repeated.once(AttemptError::Replanned(error("b"))), Ok(()));
        assert_eq!(repeated.once(AttemptError::Reconnect(error("c"))), Err(error("c")));
        assert_eq!(repeated.once(AttemptError::Replanned(error("d"))), Err(error("d")));
        let fresh = Repeated::default().once(AttemptError::gone(error("e"), Age::New));
        assert_eq!(fresh, Err(error("e")), "a new connection was not dead already");
    }
}
