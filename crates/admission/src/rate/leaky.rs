//! Leaky bucket as a queue: requests that come too early are delayed until their time, up to a
//! bound.
//!
//! The rule of the token bucket with a wait allowed. With a burst of 1, requests leave evenly
//! spaced.

use std::time::Duration;

use hotrow_measure::clock::Nanos;

use super::meter::Meter;
use super::{Decision, Policy};

/// A leaky bucket per key.
#[derive(Debug)]
pub struct Leaky {
    /// Rate, and how many may leave at once after a pause.
    pub meter: Meter,
    /// Longest wait; a request that would wait longer is refused and takes nothing.
    pub max_wait: Duration,
}

impl Policy for Leaky {
    #[inline]
    fn judge(&self, state: u64, cost: u64, now: Nanos) -> (Decision, Option<u64>) {
        self.meter.judge(state, cost, now, self.max_wait)
    }

    fn settled_after(&self, state: u64, now: Nanos) -> Duration {
        self.meter.settled_after(state, now)
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use super::*;
    use crate::rate::Cell;

    const MS: u64 = 1_000_000;

    fn leaky(rate: &str, burst: u32, max_wait_ms: u64) -> Leaky {
        let meter = Meter::new(rate.parse().unwrap(), burst, Duration::ZERO, Nanos(0));
        Leaky { meter, max_wait: Duration::from_millis(max_wait_ms) }
    }

    fn wait_ms(decision: Decision) -> u128 {
        match decision {
            Decision::Admitted { .. } => 0,
            // Half a millisecond is far more than a tick.
            Decision::Wait { delay } => (delay + Duration::from_micros(500)).as_millis(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn simultaneous_requests_leave_evenly_until_the_wait_is_too_long() {
        let leaky = leaky("10/s", 1, 300);
        let cell = Cell::default();
        let now = Nanos(7 * MS);
        let waits: Vec<u128> = (0..4).map(|_| wait_ms(cell.decide(&leaky, 1, now))).collect();
        assert_eq!(waits, [0, 100, 200, 300]);
        let Decision::Refused { retry_after } = cell.decide(&leaky, 1, now) else {
            panic!("there is no place")
        };
        assert_eq!((retry_after + Duration::from_micros(500)).as_millis(), 100);
        assert!(cell.decide(&leaky, 1, now.after(retry_after)).is_admitted(), "as was said");
        assert!(matches!(cell.decide(&leaky, 1, now.after(retry_after)), Decision::Refused { .. }));
    }

    #[test]
    fn a_burst_leaves_at_once() {
        let leaky = leaky("10/s", 3, 100);
        let cell = Cell::default();
        let waits: Vec<u128> = (0..4).map(|_| wait_ms(cell.decide(&leaky, 1, Nanos(0)))).collect();
        assert_eq!(waits, [0, 0, 0, 100]);
    }

    #[test]
    fn costs_beyond_burst_and_wait_are_reported() {
        let leaky = leaky("10/s", 2, 500);
        let cell = Cell::default();
        assert_eq!(cell.decide(&leaky, 8, Nanos(0)), Decision::TooLarge { most: 7 });
        assert_eq!(wait_ms(cell.decide(&leaky, 7, Nanos(0))), 500);
        assert_eq!(cell.decide(&leaky, u64::MAX, Nanos(0)), Decision::TooLarge { most: 7 });
    }
}
