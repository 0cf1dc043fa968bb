//! Detector of a standing queue, by the delay of what leaves it.

use std::time::Duration;

use hotrow_measure::clock::Nanos;

/// The estimator of CoDel (Kathleen Nichols and Van Jacobson; RFC 8289, section 4.2): a queue is
/// bad when it *stands*, that is, when even the least delay over an interval is above a target. A
/// burst that drains within the interval is what queues are for. Only the estimator is used; what
/// is refused then is decided by cost and priority, not by the head of the queue. The same
/// estimator for requests instead of packets: Ben Maurer, *Fail at Scale*, ACM Queue 13(8), 2015.
#[derive(Clone, Debug)]
pub struct CoDel {
    target: Duration,
    interval: Duration,
    above_since: Option<Nanos>,
}

impl CoDel {
    /// Creates a detector of delays above `target` over `interval`.
    #[must_use]
    pub fn new(target: Duration, interval: Duration) -> Self {
        Self { target, interval, above_since: None }
    }

    /// Records the delay of an item that left the queue at `now`. Returns whether it is a standing
    /// queue.
    pub fn observe(&mut self, delay: Duration, now: Nanos) -> bool {
        if delay < self.target {
            self.above_since = None;
            return false;
        }
        now.since(*self.above_since.get_or_insert(now)) >= self.interval
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn one_low_delay_within_the_interval_clears_the_queue() {
        let mut codel = CoDel::new(ms(5), ms(100));
        assert!(!codel.observe(ms(50), Nanos(0)));
        assert!(!codel.observe(ms(50), Nanos(99 * MS)));
        assert!(!codel.observe(ms(4), Nanos(99 * MS)));
        assert!(!codel.observe(ms(5), Nanos(100 * MS)));
        assert!(codel.observe(ms(5), Nanos(200 * MS)), "at the target for a whole interval");
        assert!(codel.observe(ms(500), Nanos(210 * MS)));
        assert!(!codel.observe(ms(0), Nanos(211 * MS)));
    }

    proptest! {
        /// The definition, computed the slow way: the least of all delays since some point an
        /// interval ago or longer.
        #[test]
        fn the_estimate_is_the_least_delay_over_the_interval(
            samples in prop::collection::vec((1_u64..40, 0_u64..12), 1..200),
        ) {
            let mut codel = CoDel::new(ms(5), ms(100));
            let mut now = Nanos(0);
            let mut past = Vec::new();
            for (pause, delay) in samples {
                now = now.after(ms(pause));
                past.push((now, delay));
                let since = past.iter().rposition(|(_, delay)| *delay < 5).map_or(0, |low| low + 1);
                let stands = past.get(since).is_some_and(|(first, _)| now.since(*first) >= ms(100));
                prop_assert_eq!(codel.observe(ms(delay), now), stands);
            }
        }
    }
}
