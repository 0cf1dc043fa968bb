//! The fixes of the races. They are always in place, but for builds with the feature `sabotage`, which can take one out to
//! show that the tests would find it missing.

#[cfg(feature = "sabotage")]
use std::sync::atomic::{AtomicBool, Ordering};

/// What keeps a known race from doing harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fix {
    /// Leases end with the change (Race A).
    Lease,
    /// Answers that do not see a delivered change are not kept (Race B).
    Fence,
    /// A loss of the feed makes every entry stale.
    Epoch,
    /// Staleness counts from when a probe was sent, not from when its echo came (taken out where the feed delivers).
    Probe,
}

/// Which fixes are in place.
#[derive(Debug, Default)]
pub(crate) struct Fixes {
    #[cfg(feature = "sabotage")]
    taken_out: [AtomicBool; 4],
}

#[cfg(feature = "sabotage")]
impl Fixes {
    pub(crate) fn has(&self, fix: Fix) -> bool {
        !self.taken_out[fix as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn take_out(&self, fix: Fix) {
        self.taken_out[fix as usize].store(true, Ordering::Relaxed);
    }
}

#[cfg(not(feature = "sabotage"))]
impl Fixes {
    pub(crate) fn has(&self, _: Fix) -> bool {
        true
    }
}
