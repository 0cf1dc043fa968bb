//! What one thread counts in one second, and how such records add up.

use std::collections::BTreeMap;

use hotrow_measure::histogram::{Histogram, rank_of};

/// Requests of one second, one thread, or a whole run. Merging is exact: the merged intervals are the total.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// What became of requests.
    pub counts: Counts,
    /// From the intended time to the complete answer, in ns: what a user waits.
    pub latency: Timing,
    /// From the actual send to the complete answer, in ns: what the target and the way to it take.
    pub service: Timing,
    /// From the intended time to the actual send, in ns, of every request that was sent.
    pub schedule_lag: Histogram,
    /// The part of the schedule lag that is the generator's own, in ns: slots that found a free connection, or would have,
    /// and still were late.
    pub own_lag: Histogram,
}

/// Counts of measured requests (those of the warm-up are in none of them).
///
/// Always `scheduled = unsent + sent`, and `sent = ok + errors + timeouts + in flight`: see [`Counts::check`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that were intended.
    pub scheduled: u64,
    /// Of those, never sent: the run was over, or their connection failed before.
    pub unsent: u64,
    /// Of those, sent, at least in part.
    pub sent: u64,
    /// Answered as expected.
    pub ok: u64,
    /// Answered as expected before the window closed; later answers are in `ok` but in no rate.
    pub ok_in_window: u64,
    /// Complete answers before the window closed with a status that was not expected; all of them are in `errors.unexpected_status`.
    pub unexpected_in_window: u64,
    /// Given up after the time-out.
    pub timeouts: u64,
    /// Lost or answered wrongly.
    pub errors: Errors,
    /// Connections that could not be opened; their slots are unsent.
    pub connect_errors: u64,
    /// Connections opened, all in all.
    pub connections_opened: u64,
    /// Of those, opened because the server had closed one that was to stay open.
    pub reconnects: u64,
    /// Bytes of requests, without TLS.
    pub bytes_sent: u64,
    /// Bytes of answers, without TLS.
    pub bytes_received: u64,
    /// Answers by status code.
    pub status: BTreeMap<u16, u64>,
}

/// Requests that were sent and came to nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Errors {
    /// The connection was reset, or failed in another way.
    pub reset: u64,
    /// The server closed the connection before the answer was complete.
    pub closed: u64,
    /// The answer was not valid HTTP/1.1.
    pub malformed: u64,
    /// A complete answer with a status that was not expected.
    pub unexpected_status: u64,
}

/// Durations in ns: of what was answered, and of what was given up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// Of complete answers.
    pub answered: Histogram,
    /// How long those lasted that were given up (time-outs, and in an open loop what was never sent): lower bounds.
    pub given_up: Option<Box<Histogram>>,
}

/// A duration in ns, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Within the histogram's error.
    Exactly(u64),
    /// At least this: the truth lies among requests that were given up.
    AtLeast(u64),
}

/// A law that the counts broke: a bug in Hotrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the counts do not add up ({law}: {left} is not {right}); this is a bug in Hotrow")]
pub struct Broken {
    /// The law.
    pub law: &'static str,
    /// Its left side.
    pub left: u64,
    /// Its right side.
    pub right: u64,
}

impl Record {
    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.counts.merge(&other.counts);
        self.latency.merge(&other.latency);
        self.service.merge(&other.service);
        self.schedule_lag.merge(&other.schedule_lag);
        self.own_lag.merge(&other.own_lag);
    }
}

impl Errors {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.reset + self.closed + self.malformed + self.unexpected_status
    }
}

impl Counts {
    /// Complete answers of any status before the window closed.
    #[must_use]
    pub fn answered_in_window(&self) -> u64 {
        self.ok_in_window + self.unexpected_in_window
    }

    fn merge(&mut self, other: &Self) {
        self.scheduled += other.scheduled;
        self.unsent += other.unsent;
        self.sent += other.sent;
        self.ok += other.ok;
        self.ok_in_window += other.ok_in_window;
        self.unexpected_in_window += other.unexpected_in_window;
        self.timeouts += other.timeouts;
        self.errors.reset += other.errors.reset;
        self.errors.closed += other.errors.closed;
        self.errors.malformed += other.errors.malformed;
        self.errors.unexpected_status += other.errors.unexpected_status;
        self.connect_errors += other.connect_errors;
        self.connections_opened += other.connections_opened;
        self.reconnects += other.reconnects;
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
        for (status, n) in &other.status {
            *self.status.entry(*status).or_default() += n;
        }
    }

    /// The conservation laws at the end of a run. `in_flight` was counted on the connections, not worked out.
    ///
    /// # Errors
    /// The law that does not hold.
    pub fn check(&self, in_flight: u64) -> Result<(), Broken> {
        let laws = [
            ("scheduled = unsent + sent", self.scheduled, self.unsent + self.sent),
            (
                "sent = ok + errors + time-outs + in flight",
                self.sent,
                self.ok + self.errors.total() + self.timeouts + in_flight,
            ),
            (
                "answers by status = ok + unexpected",
                self.status.values().sum(),
                self.ok + self.errors.unexpected_status,
            ),
        ];
        let broken = laws.into_iter().find(|(_, left, right)| left != right);
        broken.map_or(Ok(()), |(law, left, right)| Err(Broken { law, left, right }))
    }
}

impl Timing {
    /// Adds what lasted `ns` until it was given up; `n` of them.
    pub fn give_up(&mut self, ns: u64, n: u64) {
        self.given_up.get_or_insert_default().record_n(ns, n);
    }

    /// Samples, answered and given up.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.answered.count() + self.given_up.as_ref().map_or(0, |h| h.count())
    }

    /// The value at `quantile` (0 to 1). Whatever was given up counts as longer than every answer; when the quantile falls
    /// among it, the answer is a lower bound. None without samples.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<Known> {
        match self.answered.value_at_rank(rank_of(quantile, self.count())) {
            Some(ns) => Some(Known::Exactly(ns)),
            None => self.all().value_at_quantile(quantile).map(Known::AtLeast),
        }
    }

    /// The mean; a lower bound when anything was given up.
    #[must_use]
    pub fn mean(&self) -> Option<Known> {
        self.known(self.all().mean().map(|ns| ns.round() as u64))
    }

    /// The largest; a lower bound when anything was given up.
    #[must_use]
    pub fn max(&self) -> Option<Known> {
        self.known((self.count() > 0).then(|| self.all().max()))
    }

    /// Answered and given up in one histogram.
    #[must_use]
    pub fn all(&self) -> Histogram {
        let mut all = self.answered.clone();
        if let Some(given_up) = &self.given_up {
            all.merge(given_up);
        }
        all
    }

    fn known(&self, ns: Option<u64>) -> Option<Known> {
        ns.map(if self.given_up.is_some() { Known::AtLeast } else { Known::Exactly })
    }

    fn merge(&mut self, other: &Self) {
        self.answered.merge(&other.answered);
        if let Some(theirs) = &other.given_up {
            self.given_up.get_or_insert_default().merge(theirs);
        }
    }
}

impl Known {
    /// The number, whatever it is worth.
    #[must_use]
    pub fn ns(self) -> u64 {
        match self {
            Self::Exactly(ns) | Self::AtLeast(ns) => ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_up_is_the_tail() {
        let mut timing = Timing::default();
        (0..95).for_each(|_| timing.answered.record(1000));
        timing.give_up(50_000, 5);
        let about = |known: Option<Known>| match known {
            Some(Known::Exactly(ns)) => format!("{}", ns / 900),
            Some(Known::AtLeast(ns)) => format!(">{}", ns / 49_000),
            None => String::new(),
        };
        assert_eq!(about(timing.quantile(0.95)), "1");
        assert_eq!(about(timing.quantile(0.96)), ">1");
        assert_eq!(timing.max(), Some(Known::AtLeast(50_000)));
        assert_eq!(timing.mean(), Some(Known::AtLeast(3450)));
        assert_eq!(Timing::default().quantile(0.5), None);
    }

    #[test]
    fn what_was_given_up_early_is_no_short_answer() {
        let mut timing = Timing::default();
        (0..9).for_each(|_| timing.answered.record(1000));
        timing.give_up(1, 1);
        assert!(matches!(timing.quantile(0.1), Some(Known::Exactly(1000..))));
        assert!(matches!(timing.quantile(1.0), Some(Known::AtLeast(_))));
    }

    #[test]
    fn laws_are_checked() {
        let status = BTreeMap::from([(200, 4)]);
        let mut counts = Counts { scheduled: 9, unsent: 2, sent: 7, ok: 4, timeouts: 1, status, ..Counts::default() };
        assert_eq!(counts.check(2), Ok(()));
        assert!(counts.check(1).is_err());
        counts.unsent = 3;
        assert!(counts.check(2).is_err());
        counts.unsent = 2;
        counts.status.clear();
        assert!(counts.check(2).is_err());
    }

    #[test]
    fn merging_adds() {
        let mut one = Record::default();
        one.counts.ok = 2;
        one.counts.status.insert(200, 2);
        one.latency.answered.record(5);
        let mut sum = Record::default();
        sum.merge(&one);
        sum.merge(&one);
        assert_eq!((sum.counts.ok, sum.counts.status[&200], sum.latency.count()), (4, 4, 2));
    }
}
