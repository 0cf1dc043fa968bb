//! The one clock of the process.
//!
//! It counts suspended time (`CLOCK_BOOTTIME`): after one hour of suspend, cached entries must be
//! one hour older. The ordinary monotonic clock would hide that hour.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A point in time in nanoseconds since boot, suspend included. Never goes back; unrelated to the
/// wall clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The start of time: older than every real reading.
    pub const ZERO: Self = Self(0);
    /// Later than every real reading.
    pub const MAX: Self = Self(u64::MAX);

    /// Reads the clock.
    #[must_use]
    pub fn now() -> Self {
        let t = clock_gettime(ClockId::Boottime);
        // The kernel's boot-time clock starts at 0 and is never negative.
        Self((t.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(t.tv_nsec as u64))
    }

    /// Returns the time passed since `earlier`; zero when `earlier` lies ahead.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns this point moved ahead by `by`; saturates at [`Nanos::MAX`].
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Returns this point moved back by `by`; saturates at [`Nanos::ZERO`].
    #[must_use]
    pub fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Returns the CPU time of the calling thread since it began, user and system. It measures the cost
/// of an observer itself.
pub fn thread_cpu() -> Duration {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    // Neither part is ever negative.
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Nanos(5).since(Nanos(9)), Duration::ZERO);
        assert_eq!(Nanos(5).before(Duration::from_secs(1)), Nanos::ZERO);
        assert_eq!(Nanos(5).after(Duration::MAX), Nanos::MAX);
        assert!(Nanos::now() > Nanos::ZERO);
        assert!(thread_cpu() > Duration::ZERO && thread_cpu() < Duration::from_secs(3600));
    }
}
