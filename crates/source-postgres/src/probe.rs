//! Probes of the log's end, and the freshness proved by the probes that the feed has passed.
//!
//! A probe asks, on a connection of its own, where the log ends. Everything committed before the
//! request was sent lies before that end. Once the feed has delivered up to there, it has delivered
//! everything committed before the request. Nothing that the stream carries, such as a keep-alive,
//! proves more.

use std::collections::VecDeque;

use hotrow_measure::clock::Nanos;
use hotrow_types::version::Version;

use super::wire::replication::Lsn;

/// Most probes that wait. Beyond that the newest is replaced: the oldest is passed next.
const WAITING_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    /// Time at which the request was sent.
    pub(crate) sent_at: Nanos,
    pub(crate) end: Lsn,
    /// Version of a read at that time.
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
    /// Returns the position that a feed reaches when nothing follows `end`.
    ///
    /// At the beginning of a page the two differ. The end of the last record is reported as the
    /// page's start; `pg_current_wal_insert_lsn()` reports the position of the next record, which
    /// is the end of the page's header. On an idle database the feed would never reach that
    /// position. Source: PostgreSQL's xlog_internal.h (SizeOfXLogShortPHD and SizeOfXLogLongPHD).
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

/// Delivered position and waiting probes of a feed.
#[derive(Debug)]
pub(crate) struct Progress {
    layout: LogLayout,
    delivered: Lsn,
    waiting: VecDeque<Probe>,
    /// Time and end of the newest passed probe.
    passed: Option<(Nanos, Lsn)>,
}

/// Arguments of [`hotrow_source::Sink::advance`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Advance {
    pub(crate) sent_at: Nanos,
    pub(crate) to: Lsn,
    /// Present only with a probe that was not reported before.
    pub(crate) visible: Option<Version>,
}

impl Progress {
    /// Returns the progress of a feed that delivers everything from `start` on.
    pub(crate) fn new(layout: LogLayout, start: Lsn) -> Self {
        Self { layout, delivered: start, waiting: VecDeque::new(), passed: None }
    }

    /// Returns the position before which everything has been delivered.
    pub(crate) fn delivered(&self) -> Lsn {
        self.delivered
    }

    /// Records a delivered position. Positions never go back.
    pub(crate) fn deliver(&mut self, to: Lsn) {
        self.delivered = self.delivered.max(to);
    }

    pub(crate) fn probed(&mut self, probe: Probe) {
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.pop_back();
        }
        self.waiting.push_back(probe);
    }

    /// Returns the oldest probe that was not passed yet.
    pub(crate) fn oldest_waiting(&self) -> Option<&Probe> {
        self.waiting.front()
    }

    /// Returns the progress to report; `None` until a probe was passed.
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

    fn reported(sent_at: u64, to: u64, visible: Option<Version>) -> Option<Advance> {
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
        assert_eq!(progress.advance(), reported(2, 500, Some(Version::Unknown)));
        progress.deliver(Lsn(450));
        assert_eq!(progress.advance(), reported(2, 500, None));
        assert_eq!(progress.oldest_waiting(), Some(&probe(3, 501)));
        progress.deliver(Lsn(600));
        assert_eq!(progress.advance(), reported(3, 600, Some(Version::Unknown)));
    }

    #[test]
    fn an_end_behind_a_page_header_is_passed_at_the_start_of_the_page() {
        let segment = 3 * (16 << 20);
        let same = |at: u64| assert_eq!(LAYOUT.reachable(Lsn(at)), Lsn(at), "{at}");
        assert_eq!(LAYOUT.reachable(Lsn(segment + 40)), Lsn(segment));
        assert_eq!(LAYOUT.reachable(Lsn(segment + 8192 + 24)), Lsn(segment + 8192));
        // A record may end there.
        for at in [
            segment + 24,
            segment + 41,
            segment + 8192 + 40,
            segment + 8192 + 25,
            segment + 8192,
            segment,
            0,
        ] {
            same(at);
        }
        let mut progress = Progress::new(LAYOUT, Lsn(segment));
        progress.probed(probe(1, segment + 40));
        assert_eq!(progress.advance(), reported(1, segment + 40, Some(Version::Unknown)));
        // Senseless settings are harmless.
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
        assert_eq!(progress.advance(), reported(5, 5001, Some(Version::Unknown)));
    }
}
