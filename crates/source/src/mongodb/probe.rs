//! Probes of the log's end: which of them the stream has passed, and so how fresh it certainly is.
//!
//! A probe asks, on a connection of its own, for the primary's newest operation. Whatever was acknowledged before the
//! question was sent lies at or before it. Once the stream has delivered everything up to there, it has delivered
//! everything that was acknowledged before the question was sent.

use std::collections::VecDeque;

use hotrow_measure::clock::Nanos;

/// Most probes that wait. When there are more, the newest gives way: the oldest is the next one to be passed.
const WAITING_MAX: usize = 64;

/// An answered probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    /// When the question was sent.
    pub(crate) sent_at: Nanos,
    /// Cluster time of the newest operation, as a position has it.
    pub(crate) end: u64,
}

/// How far the stream is.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    delivered: u64,
    waiting: VecDeque<Probe>,
    passed: Option<Nanos>,
    told: Option<(Nanos, u64)>,
}

impl Progress {
    /// A stream that delivers everything after `at`.
    pub(crate) fn new(at: u64) -> Self {
        Self { delivered: at, ..Self::default() }
    }

    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Everything up to here has been delivered. It never goes back.
    pub(crate) fn deliver(&mut self, to: u64) {
        self.delivered = self.delivered.max(to);
    }

    /// A probe was answered.
    pub(crate) fn probed(&mut self, probe: Probe) {
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.pop_back();
        }
        self.waiting.push_back(probe);
    }

    /// Whether a probe waits that was sent before.
    pub(crate) fn waits_since(&self, before: Nanos) -> bool {
        self.waiting.front().is_some_and(|probe| probe.sent_at <= before)
    }

    /// When the newest passed probe was sent, and how far the stream is; none where nothing is new.
    pub(crate) fn advance(&mut self) -> Option<(Nanos, u64)> {
        while let Some(probe) = self.waiting.front().filter(|probe| probe.end <= self.delivered) {
            self.passed = Some(probe.sent_at);
            self.waiting.pop_front();
        }
        let now = (self.passed?, self.delivered);
        (self.told.replace(now) != Some(now)).then_some(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(sent_at: u64, end: u64) -> Probe {
        Probe { sent_at: Nanos(sent_at), end }
    }

    #[test]
    fn only_a_passed_probe_makes_fresh() {
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
