//! Lateness of a worker's event loop.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use hotrow_measure::clock::Nanos;

use crate::activity::SWEEP_INTERVAL;

/// Lateness of a worker's sweep. Its timer is due every [`SWEEP_INTERVAL`]; anything that delays
/// it, earlier work or a missing CPU, delays every request of that worker. The worker writes, any
/// thread reads.
#[derive(Debug, Default)]
pub struct LoopPace {
    /// 0: no loop runs.
    swept_at_ns: AtomicU64,
    late_ns: AtomicU64,
}

impl LoopPace {
    /// Records that the sweep runs at `now`, `late` after its time.
    pub fn swept(&self, late: Duration, now: Nanos) {
        self.late_ns.store(u64::try_from(late.as_nanos()).unwrap_or(u64::MAX), Relaxed);
        self.swept_at_ns.store(now.0, Relaxed);
    }

    /// Records the end of the loop.
    pub fn ended(&self) {
        self.swept_at_ns.store(0, Relaxed);
    }

    /// Returns the time of the last sweep; zero while no loop runs.
    pub fn swept_at(&self) -> Nanos {
        Nanos(self.swept_at_ns.load(Relaxed))
    }

    /// Returns how late the last sweep was, or how late the next one already is.
    pub fn delay(&self, now: Nanos) -> Duration {
        match self.swept_at_ns.load(Relaxed) {
            0 => Duration::ZERO,
            swept_at => {
                let overdue = now.since(Nanos(swept_at)).saturating_sub(SWEEP_INTERVAL);
                overdue.max(Duration::from_nanos(self.late_ns.load(Relaxed)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_is_that_of_the_last_or_the_overdue_sweep() {
        let pace = LoopPace::default();
        let start = Nanos(1_000_000_000);
        let ms = Duration::from_millis;
        assert_eq!(pace.delay(start), Duration::ZERO, "it has not begun");
        pace.swept(ms(7), start);
        assert_eq!(pace.delay(start.after(ms(100))), ms(7));
        assert_eq!(pace.delay(start.after(ms(350))), ms(250), "it hangs");
        pace.ended();
        assert_eq!(pace.delay(start.after(ms(350))), Duration::ZERO);
    }
}
