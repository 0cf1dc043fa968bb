//! A worker's counters: the statistics of the current second, and failure messages.

use std::collections::BTreeMap;

use crate::latency_map::LatencyMap;
use crate::plan::Slot;
use crate::response::Response;
use crate::sent_request::SentRequest;
use crate::stats::LoadStats;

/// Most distinct failure messages per thread; further ones are counted under the last.
const FAILURE_MESSAGES_MAX: usize = 8;
const OTHER_FAILURES: &str = "other failures";

/// The expected status codes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectedStatus {
    /// Any 2xx or 3xx.
    Success,
    /// These status codes.
    Status(Vec<u16>),
}

/// The ways in which a sent request can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestFailure {
    Reset,
    Closed,
    Malformed,
    GoAway,
    RefusedStream,
    StreamReset,
}

/// One thread's counts.
#[derive(Debug)]
pub(crate) struct Tally {
    record: LoadStats,
    /// Responses of this second by status code.
    statuses: Box<[u64]>,
    expect: ExpectedStatus,
    window_begin_ns: u64,
    window_end_ns: u64,
    /// Of the whole run.
    pub(crate) latency_map: LatencyMap,
    pub(crate) last_answer_ns: u64,
    pub(crate) failure_messages: BTreeMap<String, u64>,
}

impl Tally {
    pub(crate) fn new(expect: &ExpectedStatus, window_begin_ns: u64, window_end_ns: u64) -> Self {
        Self {
            record: LoadStats::default(),
            statuses: vec![0; 1000].into_boxed_slice(),
            expect: expect.clone(),
            window_begin_ns,
            window_end_ns,
            latency_map: LatencyMap::default(),
            last_answer_ns: 0,
            failure_messages: BTreeMap::new(),
        }
    }

    /// Drops what was counted while connections were opened before the run, except for the time
    /// that opening them took.
    pub(crate) fn begin(&mut self) {
        let before = self.take();
        self.record.connect = before.connect;
    }

    /// Returns the statistics of the completed second and begins the next.
    pub(crate) fn take(&mut self) -> LoadStats {
        for (status, n) in self.statuses.iter_mut().enumerate().filter(|(_, n)| **n > 0) {
            self.record.counts.status.insert(status as u16, std::mem::take(n));
        }
        std::mem::take(&mut self.record)
    }

    #[inline]
    pub(crate) fn scheduled(&mut self, slot: Slot) {
        self.record.counts.scheduled += u64::from(slot.measured);
    }

    /// Counts a slot that was taken and can no longer be sent.
    pub(crate) fn unsent(&mut self, slot: Slot, now_ns: u64) {
        if slot.measured {
            self.record.counts.unsent += 1;
            self.record.latency.record_unbounded(now_ns.saturating_sub(slot.intended_ns), 1);
            self.latency_map.failed(now_ns.saturating_sub(self.window_begin_ns));
        }
    }

    /// Counts `n` slots that were still unsent at the end of the run, due since `waited_ns`.
    pub(crate) fn never_taken(&mut self, waited_ns: u64, n: u64) {
        self.record.counts.scheduled += n;
        self.record.counts.unsent += n;
        self.record.latency.record_unbounded(waited_ns, n);
    }

    /// `own`: whether lateness is the generator's, because no connection had to be waited for.
    #[inline]
    pub(crate) fn sent(&mut self, slot: Slot, now_ns: u64, bytes: usize, own: bool) {
        if slot.measured {
            let lag_ns = now_ns.saturating_sub(slot.intended_ns);
            self.record.counts.sent += 1;
            self.record.counts.bytes_sent += bytes as u64;
            self.record.schedule_lag.record(lag_ns);
            if own {
                self.record.own_lag.record(lag_ns);
            }
        }
    }

    /// Counts a request that is sent for a second time; see [`Counts::resent`].
    ///
    /// [`Counts::resent`]: crate::stats::Counts::resent
    pub(crate) fn resent(&mut self, slot: Slot, bytes: usize) {
        if slot.measured {
            self.record.counts.resent += 1;
            self.record.counts.bytes_sent += bytes as u64;
        }
    }

    /// Counts bytes of HTTP/2, which are not attributed to requests.
    #[inline]
    pub(crate) fn transmitted(&mut self, bytes: usize) {
        self.record.counts.bytes_sent += bytes as u64;
    }

    #[inline]
    pub(crate) fn received(&mut self, bytes: usize) {
        self.record.counts.bytes_received += bytes as u64;
    }

    #[inline]
    pub(crate) fn answered(&mut self, sent: &SentRequest, answer: Response, now_ns: u64) {
        if !sent.slot.measured {
            return;
        }
        let counts = &mut self.record.counts;
        let ok = match &self.expect {
            ExpectedStatus::Success => (200..400).contains(&answer.status),
            ExpectedStatus::Status(codes) => codes.contains(&answer.status),
        };
        let in_window = u64::from(now_ns <= self.window_end_ns);
        let latency_ns = now_ns.saturating_sub(sent.slot.intended_ns);
        if ok {
            counts.ok += 1;
            counts.ok_in_window += in_window;
            self.record.latency.answered.record(latency_ns);
            let at_ns = now_ns.saturating_sub(self.window_begin_ns);
            self.latency_map.answered(at_ns, latency_ns);
            self.record.service.answered.record(now_ns.saturating_sub(sent.sent_ns));
        } else {
            counts.errors.unexpected_status += 1;
            counts.unexpected_in_window += in_window;
            self.record.refuse(answer.status, latency_ns);
            self.without_answer(sent, now_ns);
        }
        self.record.first_byte.record(sent.first_byte_ns.saturating_sub(sent.sent_ns));
        // The parser accepts no status beyond 999.
        self.statuses[usize::from(answer.status).min(999)] += 1;
        self.last_answer_ns = now_ns;
    }

    /// Records the durations of a sent request without the expected response.
    fn without_answer(&mut self, sent: &SentRequest, now_ns: u64) {
        let LoadStats { latency, service, .. } = &mut self.record;
        latency.record_unbounded(now_ns.saturating_sub(sent.slot.intended_ns), 1);
        service.record_unbounded(now_ns.saturating_sub(sent.sent_ns), 1);
        self.latency_map.failed(now_ns.saturating_sub(self.window_begin_ns));
    }

    /// Records a request without a response at the end of the run; returns 1 if it is measured.
    pub(crate) fn in_flight_at_end(&mut self, sent: &SentRequest, now_ns: u64) -> u64 {
        if sent.slot.measured {
            self.without_answer(sent, now_ns);
        }
        u64::from(sent.slot.measured)
    }

    pub(crate) fn timed_out(&mut self, sent: &SentRequest, now_ns: u64) {
        if sent.slot.measured {
            self.record.counts.timeouts += 1;
            self.without_answer(sent, now_ns);
        }
    }

    pub(crate) fn lost(&mut self, sent: &SentRequest, loss: RequestFailure, now_ns: u64) {
        if sent.slot.measured {
            self.without_answer(sent, now_ns);
            let errors = &mut self.record.counts.errors;
            match loss {
                RequestFailure::Reset => errors.reset += 1,
                RequestFailure::Closed => errors.closed += 1,
                RequestFailure::Malformed => errors.malformed += 1,
                RequestFailure::GoAway => errors.goaway += 1,
                RequestFailure::RefusedStream => errors.refused_stream += 1,
                RequestFailure::StreamReset => errors.stream_reset += 1,
            }
        }
    }

    pub(crate) fn connection_opened(&mut self, again: bool, took_ns: u64) {
        self.record.connect.record(took_ns);
        self.record.counts.connections_opened += 1;
        self.record.counts.reconnects += u64::from(again);
    }

    pub(crate) fn connect_failed(&mut self, measured: bool) {
        self.record.counts.connect_errors += u64::from(measured);
    }

    /// Counts a failure message.
    pub(crate) fn failure_message(&mut self, words: String) {
        let full = self.failure_messages.len() >= FAILURE_MESSAGES_MAX
            && !self.failure_messages.contains_key(&words);
        let words = if full { OTHER_FAILURES.to_owned() } else { words };
        *self.failure_messages.entry(words).or_default() += 1;
    }
}
