//! Probes of the log's end. They determine the freshness of the stream.
//!
//! A probe requests the primary's newest operation on a connection of its own. Every operation
//! acknowledged before the request was sent is at or before it. Once the stream has delivered
//! everything up to that operation, it has delivered everything acknowledged before the request.
//! The stream has then *passed* the probe.

use std::collections::VecDeque;

use hotrow_measure::clock::Nanos;

/// Maximum number of waiting probes. Above it the newest is dropped, because the oldest is the next
/// one to be passed.
const WAITING_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    /// Send time of the request.
    pub(crate) sent_at: Nanos,
    /// Cluster time of the newest operation, as the number in a position.
    pub(crate) end: u64,
}

/// Progress of the stream, with the probes that it has not passed.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    delivered: u64,
    waiting: VecDeque<Probe>,
    passed: Option<Nanos>,
    last_reported: Option<(Nanos, u64)>,
}

impl Progress {
    /// Creates the progress of a stream that delivers everything after `at`.
    pub(crate) fn new(at: u64) -> Self {
        Self { delivered: at, ..Self::default() }
    }

    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Records that everything up to `to` has been delivered. Progress never decreases.
    pub(crate) fn deliver(&mut self, to: u64) {
        self.delivered = self.delivered.max(to);
    }

    pub(crate) fn probed(&mut self, probe: Probe) {
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.pop_back();
        }
        self.waiting.push_back(probe);
    }

    /// Returns the operation of the newest probe that is waiting; 0 without one.
    pub(crate) fn newest_end(&self) -> u64 {
        self.waiting.back().map_or(0, |probe| probe.end)
    }

    /// Returns whether a probe sent at or before `before` is waiting.
    pub(crate) fn waits_since(&self, before: Nanos) -> bool {
        self.waiting.front().is_some_and(|probe| probe.sent_at <= before)
    }

    /// Returns the send time of the newest passed probe and the progress, or `None` if both are
    /// unchanged.
    pub(crate) fn advance(&mut self) -> Option<(Nanos, u64)> {
        while let Some(probe) = self.waiting.front().filter(|probe| probe.end <= self.delivered) {
            self.passed = Some(probe.sent_at);
            self.waiting.pop_front();
        }
        let now = (self.passed?, self.delivered);
        (self.last_reported.replace(now) != Some(now)).then_some(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(sent_at: u64, end: u64) -> Probe {
        Probe { sent_at: Nanos(sent_at), end }
    }

    #[test]
    fn only_a_passed_probe_advances_freshness() {
        let mut progress = Progress::new(100);
        progress.deliver(500);
        assert_eq!(progress.advance(), None);
        for p in [probe(1, 400), probe(2, 500), probe(3, 501)] {
            progress.probed(p);
        }
        assert_eq!(progress.advance(), Some((Nanos(2), 500)));
        assert_eq!(progress.advance(), None, "nothing new");
        progress.deliver(450);
        assert_eq!((progress.advance(), progress.delivered()), (None, 500));
        assert!(progress.waits_since(Nanos(3)) && !progress.waits_since(Nanos(2)));
        progress.deliver(600);
        assert_eq!(progress.advance(), Some((Nanos(3), 600)));
        progress.deliver(700);
        assert_eq!(progress.advance(), Some((Nanos(3), 700)), "a position alone is news too");
    }

    #[test]
    fn a_stream_far_behind_keeps_the_oldest_probes() {
        let mut progress = Progress::new(0);
        for n in 1..1000 {
            progress.probed(probe(n, n * 1000 + 1));
        }
        assert_eq!(progress.waiting.len(), WAITING_MAX);
        assert_eq!(progress.waiting.back(), Some(&probe(999, 999_001)));
        progress.deliver(5001);
        assert_eq!(progress.advance(), Some((Nanos(5), 5001)));
    }
}
