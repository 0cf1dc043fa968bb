//! Safeguards against the known races. They are always in place; a build with the feature
//! `failpoints` can disable one, to show that the tests detect its absence.

#[cfg(feature = "failpoints")]
use std::sync::atomic::{AtomicBool, Ordering};

/// Safeguard against a known race.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Safeguard {
    /// A change ends the lease of its key (Race A).
    Lease,
    /// Answers that do not see a delivered change are not stored (Race B).
    Fence,
    /// A read in flight that may lack a change known to be visible is not joined.
    Join,
    /// A gap in the feed makes every entry stale.
    Epoch,
    /// Staleness counts from the sending of a probe, not from the arrival of its echo (disabled
    /// where the feed delivers).
    Probe,
    /// A standby must have replayed every change that the fence has forgotten.
    StandbyFloor,
    /// A standby must have replayed all that an earlier answer may have shown.
    StandbyShown,
    /// An answer of a standby is given only when the feed has delivered all that it may show.
    StandbyDelivered,
    /// An answer of the primary sees what an earlier one of a standby may have shown.
    StandbyAhead,
    /// Only the primary is read while the feed is behind, and for `no-cache`.
    StandbyBypass,
    /// A standby is asked what it has replayed before it reads the row (disabled in the reader).
    StandbyOrder,
    /// A standby reads each row in a snapshot of its own (disabled in the reader).
    StandbySnapshot,
    /// A standby follows the timeline of the feed (disabled in the reader).
    StandbyTimeline,
    /// Clients that track are registered before the lookup (disabled where they are served, as are
    /// all safeguards of copies).
    CopyInterest,
    /// What changes during a command is pushed behind its reply.
    CopyOrder,
    /// A reply that memory does not keep is followed by its invalidation.
    CopyFence,
    /// Each spelling of a key is remembered.
    CopySpelling,
    /// A new beginning of the feed ends all copies.
    CopyBeginning,
    /// A change leaves for followers when it is proven visible (disabled where they are served, as
    /// are all safeguards of followers).
    FollowProof,
    /// An id stands on the last event of a commit.
    FollowLastId,
    /// A follower that returns gets the rest of a commit.
    FollowRest,
    /// A new beginning of the feed resets followers.
    FollowBeginning,
    /// Registration and replay are one step.
    FollowReplay,
    /// A change marks the keys of snapshot batches.
    SnapshotMarks,
    /// The read transaction of a snapshot batch sees every change up to its point of the log.
    SnapshotFence,
}

/// Set of the enabled safeguards.
#[derive(Debug, Default)]
pub(crate) struct Safeguards {
    #[cfg(feature = "failpoints")]
    disabled: [AtomicBool; 25],
}

#[cfg(feature = "failpoints")]
impl Safeguards {
    pub(crate) fn has(&self, safeguard: Safeguard) -> bool {
        !self.disabled[safeguard as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn disable(&self, safeguard: Safeguard) {
        self.disabled[safeguard as usize].store(true, Ordering::Relaxed);
    }
}

#[cfg(not(feature = "failpoints"))]
impl Safeguards {
    pub(crate) fn has(&self, _: Safeguard) -> bool {
        true
    }
}
