//! How late a worker's event loop is.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use hotrow_measure::clock::Nanos;

use crate::connection::SWEEP_INTERVAL;

/// The lateness of a worker's sweep: its timer is due every [`SWEEP_INTERVAL`], and what makes it late, work that is ready
/// before it or a CPU that is not to be had, makes every request of that worker late. The worker writes, anybody reads.
#[derive(Debug, Default)]
pub(crate) struct LoopPace {
    /// 0: there is no loop, not yet or not any more.
    swept_at_ns: AtomicU64,
    late_ns: AtomicU64,
}

impl LoopPace {
    /// The sweep runs at `now`, so much later than it was due.
    pub(crate) fn swept(&self, late: Duration, now: Nanos) {
        self.late_ns.store(u64::try_from(late.as_nanos()).unwrap_or(u64::MAX), Relaxed);
        self.swept_at_ns.store(now.0, Relaxed);
    }

    /// The loop ends.
    pub(crate) fn ended(&self) {
        self.swept_at_ns.store(0, Relaxed);
    }

    /// How late the last sweep was, or the next one is already.
    pub(crate) fn delay(&self, now: Nanos) -> Duration {
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
    fn a_loop_is_as_late_as_its_last_sweep_or_its_next() {
        let (pace, start, ms) = (LoopPace::default(), Nanos(1_000_000_000), Duration::from_millis);
        assert_eq!(pace.delay(start), Duration::ZERO, "it has not begun");
        pace.swept(ms(7), start);
        assert_eq!(pace.delay(start.after(ms(100))), ms(7));
        assert_eq!(pace.delay(start.after(ms(350))), ms(250), "it hangs");
        pace.ended();
        assert_eq!(pace.delay(start.after(ms(350))), Duration::ZERO);
    }
}
