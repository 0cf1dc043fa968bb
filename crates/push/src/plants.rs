//! Mistakes that tests plant, to show that they are found.

/// A mistake in the log of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowPlant {
    /// None.
    None,
    /// A change leaves before it is proven visible.
    PushedHidden,
    /// The id stands on the first event of a commit.
    IdOnFirstEvent,
    /// A follower that returns continues behind the commit that it was reading.
    ResumeSkipsRest,
    /// Followers are reset at a loss only, not at the new beginning.
    NoResetAtBeginning,
    /// A follower is registered after its replay.
    RegisteredLate,
}

/// A mistake in purges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PurgePlant {
    /// None.
    None,
    /// A change is purged when it is delivered, and not when it is visible (Race B), and answers
    /// from before it may be kept.
    PurgedHidden,
    /// A change is purged once only.
    NotRepeated,
    /// What does not fit into the queue is dropped.
    DroppedAtOverflow,
    /// A change during a purge of its record counts as purged.
    ChangeInFlightForgotten,
    /// A loss of the feed is not purged.
    LossNotPurged,
}
