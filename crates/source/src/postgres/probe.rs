//! Probes of the log's end: which of them the feed has passed, and so how fresh it certainly is.
//!
//! A probe asks, on a connection of its own, where the log ends. Whatever was committed before the question was sent
//! lies before that end. Once the feed has delivered everything up to there, it has delivered everything that was
//! committed before the question was sent; nothing that arrives (a keep-alive, say) proves more.

use std::collections::VecDeque;

use hotrow_cache::version::Version;
use hotrow_measure::clock::Nanos;

use super::wire::replication::Lsn;

/// Most probes that wait. When there are more, the newest gives way: the oldest is the next one to be passed.
const WAITING_MAX: usize = 64;

/// An answered probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    /// When the question was sent.
    pub(crate) sent_at: Nanos,
    /// The log's end.
    pub(crate) end: Lsn,
    /// What a read saw then.
    pub(crate) visible: Version,
}

/// Sizes that decide where records can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogLayout {
    /// `wal_block_size`.
    pub(crate) page_bytes: u64,
    /// `wal_segment_size`.
    pub(crate) segment_bytes: u64,
}

impl LogLayout {
    /// The position that a feed reaches when nothing follows `end`.
    ///
    /// Where a page begins, the end of the last record is told as the page's start, but the place of the next record,
    /// which is what `pg_current_wal_insert_lsn()` tells, as the end of the page's header. On an idle database the feed
    /// would never come there. Source: PostgreSQL's xlog_internal.h (SizeOfXLogShortPHD and SizeOfXLogLongPHD).
    pub(crate) fn reachable(self, end: Lsn) -> Lsn {
        const HEADER_BYTES: u64 = 24;
        const FIRST_HEADER_BYTES: u64 = 40;
        let within = |size: u64| end.0.checked_rem(size).unwrap_or(0);
        if within(self.segment_bytes) == FIRST_HEADER_BYTES {
            return Lsn(end.0 - FIRST_HEADER_BYTES);
        }
        let is_first = within(self.segment_bytes) < self.page_bytes;
        if !is_first && within(self.page_bytes) == HEADER_BYTES {
            return Lsn(end.0 - HEADER_BYTES);
        }
        end
    }
}

/// How far the feed is.
#[derive(Debug)]
pub(crate) struct Progress {
    layout: LogLayout,
    delivered: Lsn,
    waiting: VecDeque<Probe>,
    /// The newest passed probe's time and end.
    passed: Option<(Nanos, Lsn)>,
}

/// What to tell the sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Advance {
    pub(crate) sent_at: Nanos,
    pub(crate) to: Lsn,
    /// Only with a probe that was not told before.
    pub(crate) visible: Option<Version>,
}

impl Progress {
    /// A feed that delivers everything from `start` on.
    pub(crate) fn new(layout: LogLayout, start: Lsn) -> Self {
        Self { layout, delivered: start, waiting: VecDeque::new(), passed: None }
    }

    /// Everything before this has been delivered.
    pub(crate) fn delivered(&self) -> Lsn {
        self.delivered
    }

    /// The feed got there. Positions never go back.
    pub(crate) fn deliver(&mut self, to: Lsn) {
        self.delivered = self.delivered.max(to);
    }

    /// A probe was answered.
    pub(crate) fn probed(&mut self, probe: Probe) {
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.pop_back();
        }
        self.waiting.push_back(probe);
    }

    /// The oldest probe that was not passed yet.
    pub(crate) fn oldest_waiting(&self) -> Option<&Probe> {
        self.waiting.front()
    }

    /// What can be told now; none as long as no probe was passed.
    pub(crate) fn advance(&mut self) -> Option<Advance> {
        let mut visible = None;
        while let Some(probe) = self.waiting.front() {
            if self.layout.reachable(probe.end) > self.delivered {
                break;
            }
            self.passed = Some((probe.sent_at, probe.end));
            visible = self.waiting.pop_front().map(|probe| probe.visible);
        }
        // Nothing lies between the reachable end of a probe and its end.
        self.passed.map(|(sent_at, end)| Advance { sent_at, to: self.delivered.max(end), visible })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: LogLayout = LogLayout { page_bytes: 8192, segment_bytes: 16 << 20 };

    fn probe(sent_at: u64, end: u64) -> Probe {
        Probe { sent_at: Nanos(sent_at), end: Lsn(end), visible: Version::Unknown }
    }

    fn told(sent_at: u64, to: u64, visible: Option<Version>) -> Option<Advance> {
        Some(Advance { sent_at: Nanos(sent_at), to: Lsn(to), visible })
    }

    #[test]
    fn only_a_passed_probe_makes_fresh() {
        let mut progress = Progress::new(LAYOUT, Lsn(100));
        progress.deliver(Lsn(500));
        assert_eq!(progress.advance(), None);
        for p in [probe(1, 400), probe(2, 500), probe(3, 501)] {
            progress.probed(p);
        }
        assert_eq!(progress.advance(), told(2, 500, Some(Version::Unknown)));
        progress.deliver(Lsn(450));
        assert_eq!(progress.advance(), told(2, 500, None));
        assert_eq!(progress.oldest_waiting(), Some(&probe(3, 501)));
        progress.deliver(Lsn(600));
        assert_eq!(progress.advance(), told(3, 600, Some(Version::Unknown)));
    }

    #[test]
    fn an_end_behind_a_page_header_is_passed_at_the_start_of_the_page() {
        let segment = 3 * (16 << 20);
        let same = |at: u64| assert_eq!(LAYOUT.reachable(Lsn(at)), Lsn(at), "{at}");
        assert_eq!(LAYOUT.reachable(Lsn(segment + 40)), Lsn(segment));
        assert_eq!(LAYOUT.reachable(Lsn(segment + 8192 + 24)), Lsn(segment + 8192));
        // A record may end there.
        for at in [segment + 24, segment + 41, segment + 8192 + 40, segment + 8192 + 25, segment + 8192, segment, 0] {
            same(at);
        }
        let mut progress = Progress::new(LAYOUT, Lsn(segment));
        progress.probed(probe(1, segment + 40));
        assert_eq!(progress.advance(), told(1, segment + 40, Some(Version::Unknown)));
        // Settings that make no sense do no harm.
        assert_eq!(LogLayout { page_bytes: 0, segment_bytes: 0 }.reachable(Lsn(24)), Lsn(24));
    }

    #[test]
    fn a_feed_far_behind_keeps_the_oldest_probes() {
        let mut progress = Progress::new(LAYOUT, Lsn(0));
        for n in 1..1000 {
            progress.probed(probe(n, n * 1000 + 1));
        }
        assert_eq!(progress.waiting.len(), WAITING_MAX);
        assert_eq!(progress.waiting.back(), Some(&probe(999, 999_001)));
        progress.deliver(Lsn(5001));
        assert_eq!(progress.advance(), told(5, 5001, Some(Version::Unknown)));
    }
}
