//! Reasons for which a request gets no record.

/// Reason for which a lookup ends without a record. The first three refuse the lookup; the others
/// end a read, and its waiters get them. [`LookupError::Source`] and [`LookupError::Abandoned`]
/// also refuse further lookups of the key for `error_ttl`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookupError<E> {
    /// Too many keys of the collection wait for the database.
    QueueFull,
    /// The read would end after the deadline of the request.
    TooLate,
    /// The feed is behind and the policy is to refuse.
    Behind,
    /// The error of the source, shared by all waiters.
    Source(E),
    /// The loaders of the key were cancelled [`crate::flight::ATTEMPTS_MAX`] times.
    Abandoned,
    /// The queued key was not read: the answer would have come after the deadline of every waiter,
    /// or the queue is a standing queue and newer keys go first.
    Overdue,
}
