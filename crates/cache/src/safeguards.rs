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
    /// A gap in the feed makes every entry stale.
    Epoch,
    /// Staleness counts from the sending of a probe, not from the arrival of its echo (disabled
    /// where the feed delivers).
    Probe,
}

/// Set of the enabled safeguards.
#[derive(Debug, Default)]
pub(crate) struct Safeguards {
    #[cfg(feature = "failpoints")]
    disabled: [AtomicBool; 4],
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
