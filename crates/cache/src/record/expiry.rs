//! End of a record's lifetime.

use std::time::Duration;

use hotrow_measure::clock::Nanos;

use super::Record;

impl Record {
    /// Returns whether both are one record in memory.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        std::ptr::eq(self.0.ptr(), other.0.ptr())
    }

    /// Returns the time at which its TTL ends: at most 2^-25 of it before the time that the record
    /// was made with.
    pub fn expires_at(&self) -> Nanos {
        Nanos(self.read_at().0.saturating_add(self.0.header.header.lifetime.nanos()))
    }

    pub(crate) fn expired_for(&self, now: Nanos) -> Option<Duration> {
        (now >= self.expires_at()).then(|| now.since(self.expires_at()))
    }
}
