//! How a worker counts: the record of the second under way, and failures in words.

use std::collections::BTreeMap;

use crate::connection::Sent;
use crate::plan::Slot;
use crate::record::Record;
use crate::response::Answer;

/// Most different failures that are kept in words, per thread; more are counted under the last.
const TROUBLES_MAX: usize = 8;
const OTHER_TROUBLES: &str = "other failures";

/// Which answers are right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Any 2xx or 3xx.
    Success,
    /// These status codes.
    Status(Vec<u16>),
}

/// How a request that was sent can be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    Reset,
    Closed,
    Malformed,
}

/// One thread's counts.
#[derive(Debug)]
pub(crate) struct Tally {
    record: Record,
    /// Answers of this second by status code.
    statuses: Box<[u64]>,
    expect: Expect,
    window_end_ns: u64,
    pub(crate) last_answer_ns: u64,
    pub(crate) troubles: BTreeMap<String, u64>,
}

impl Tally {
    pub(crate) fn new(expect: &Expect, window_end_ns: u64) -> Self {
        Self {
            record: Record::default(),
            statuses: vec![0; 1000].into_boxed_slice(),
            expect: expect.clone(),
            window_end_ns,
            last_answer_ns: 0,
            troubles: BTreeMap::new(),
        }
    }

    /// The record of the second that is over; the next begins.
    pub(crate) fn take(&mut self) -> Record {
        for (status, n) in self.statuses.iter_mut().enumerate().filter(|(_, n)| **n > 0) {
            self.record.counts.status.insert(status as u16, std::mem::take(n));
        }
        std::mem::take(&mut self.record)
    }

    #[inline]
    pub(crate) fn scheduled(&mut self, slot: Slot) {
        self.record.counts.scheduled += u64::from(slot.measured);
    }

    pub(crate) fn unsent(&mut self, slot: Slot) {
        self.record.counts.unsent += u64::from(slot.measured);
    }

    /// `n` slots that the end of the run found waiting for their turn since `waited_ns`.
    pub(crate) fn never_taken(&mut self, waited_ns: u64, n: u64) {
        self.record.counts.scheduled += n;
        self.record.counts.unsent += n;
        self.record.latency.give_up(waited_ns, n);
    }

    /// `own` when the lateness is the generator's: no connection had to be waited for.
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

    #[inline]
    pub(crate) fn received(&mut self, bytes: usize) {
        self.record.counts.bytes_received += bytes as u64;
    }

    #[inline]
    pub(crate) fn answered(&mut self, sent: &Sent, answer: Answer, now_ns: u64) {
        if !sent.slot.measured {
            return;
        }
        let counts = &mut self.record.counts;
        let ok = match &self.expect {
            Expect::Success => (200..400).contains(&answer.status),
            Expect::Status(codes) => codes.contains(&answer.status),
        };
        let in_window = u64::from(now_ns <= self.window_end_ns);
        if ok {
            counts.ok += 1;
            counts.ok_in_window += in_window;
        } else {
            counts.errors.unexpected_status += 1;
            counts.unexpected_in_window += in_window;
        }
        // The parser lets no status beyond 999 pass.
        self.statuses[usize::from(answer.status).min(999)] += 1;
        self.last_answer_ns = now_ns;
        self.record.latency.answered.record(now_ns.saturating_sub(sent.slot.intended_ns));
        self.record.service.answered.record(now_ns.saturating_sub(sent.sent_ns));
    }

    pub(crate) fn timed_out(&mut self, sent: &Sent, now_ns: u64) {
        if sent.slot.measured {
            self.record.counts.timeouts += 1;
            self.record.latency.give_up(now_ns.saturating_sub(sent.slot.intended_ns), 1);
            self.record.service.give_up(now_ns.saturating_sub(sent.sent_ns), 1);
        }
    }

    pub(crate) fn lost(&mut self, sent: &Sent, loss: Loss) {
        if sent.slot.measured {
            let errors = &mut self.record.counts.errors;
            match loss {
                Loss::Reset => errors.reset += 1,
                Loss::Closed => errors.closed += 1,
                Loss::Malformed => errors.malformed += 1,
            }
        }
    }

    pub(crate) fn connection_opened(&mut self, again: bool) {
        self.record.counts.connections_opened += 1;
        self.record.counts.reconnects += u64::from(again);
    }

    pub(crate) fn connect_failed(&mut self, measured: bool) {
        self.record.counts.connect_errors += u64::from(measured);
    }

    /// Notes a failure in words.
    pub(crate) fn trouble(&mut self, words: String) {
        let full = self.troubles.len() >= TROUBLES_MAX && !self.troubles.contains_key(&words);
        let words = if full { OTHER_TROUBLES.to_owned() } else { words };
        *self.troubles.entry(words).or_default() += 1;
    }
}
