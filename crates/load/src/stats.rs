//! Counts and durations of requests, and how they add up.

use std::collections::BTreeMap;

use hotrow_measure::histogram::{Histogram, rank_of};

/// Statistics of one second, one thread, or a whole run. Merging is exact: the merged intervals
/// equal the total.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadStats {
    /// Outcomes of requests.
    pub counts: Counts,
    /// Latency: from the intended time to the complete response, in ns; the time that a user waits.
    pub latency: Timing,
    /// Service time: from the actual send to the complete response, in ns; the time of the target
    /// and the path to it.
    pub service: Timing,
    /// Schedule lag: from the intended time to the actual send, in ns, of every request that was
    /// sent.
    pub schedule_lag: Histogram,
    /// The generator's own part of the schedule lag, in ns: of slots that found a free connection,
    /// or would have, and still were late.
    pub own_lag: Histogram,
}

/// Counts of measured requests, without those of the warm-up.
///
/// Invariants: `scheduled = unsent + sent`, and `sent = ok + errors + timeouts + in flight`; see
/// [`Counts::check`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Scheduled requests.
    pub scheduled: u64,
    /// Of those, never sent: the run had ended, or their connection failed first.
    pub unsent: u64,
    /// Of those, sent, at least in part.
    pub sent: u64,
    /// Expected responses.
    pub ok: u64,
    /// Expected responses before the window closed; later ones are in `ok` but in no rate.
    pub ok_in_window: u64,
    /// Complete responses before the window closed with an unexpected status;
    /// `errors.unexpected_status` includes them.
    pub unexpected_in_window: u64,
    /// Requests that timed out.
    pub timeouts: u64,
    /// Lost or wrongly answered requests.
    pub errors: Errors,
    /// Connections that could not be opened; their slots are unsent.
    pub connect_errors: u64,
    /// Connections opened in total.
    pub connections_opened: u64,
    /// Of those, reopened because the server had closed a keep-alive connection.
    pub reconnects: u64,
    /// Request bytes, without TLS.
    pub bytes_sent: u64,
    /// Response bytes, without TLS.
    pub bytes_received: u64,
    /// Responses by status code.
    pub status: BTreeMap<u16, u64>,
}

/// Sent requests without the expected response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Errors {
    /// The connection was reset, or failed otherwise.
    pub reset: u64,
    /// The server closed the connection before the response was complete.
    pub closed: u64,
    /// The response was not valid HTTP/1.1.
    pub malformed: u64,
    /// A complete response with an unexpected status.
    pub unexpected_status: u64,
}

/// Durations in ns, of complete responses and of abandoned requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// Durations of complete responses.
    pub answered: Histogram,
    /// Durations until requests were abandoned (time-outs, and in an open loop requests never
    /// sent): lower bounds.
    pub abandoned: Option<Box<Histogram>>,
}

/// A duration in ns, possibly right-censored: known only to be at least a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CensoredNs {
    /// Known within the histogram's error.
    Exact(u64),
    /// A lower bound: the statistic falls among abandoned requests.
    AtLeast(u64),
}

/// A violated invariant of the counts: a bug in Hotrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the counts do not add up ({law}: {left} is not {right}); this is a bug in Hotrow")]
pub struct LawViolation {
    /// The invariant.
    pub law: &'static str,
    /// Its left side.
    pub left: u64,
    /// Its right side.
    pub right: u64,
}

impl LoadStats {
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
    /// Returns the sum of all kinds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.reset + self.closed + self.malformed + self.unexpected_status
    }
}

impl Counts {
    /// Returns complete responses of any status before the window closed.
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

    /// Checks the conservation laws at the end of a run. `in_flight` was counted on the
    /// connections, not derived.
    ///
    /// # Errors
    /// Returns the violated invariant.
    pub fn check(&self, in_flight: u64) -> Result<(), LawViolation> {
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
        broken.map_or(Ok(()), |(law, left, right)| Err(LawViolation { law, left, right }))
    }
}

impl Timing {
    /// Adds `n` requests abandoned after `ns`.
    pub fn record_abandoned(&mut self, ns: u64, n: u64) {
        self.abandoned.get_or_insert_default().record_n(ns, n);
    }

    /// Returns the number of samples, answered and abandoned.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.answered.count() + self.abandoned.as_ref().map_or(0, |h| h.count())
    }

    /// Returns the value at `quantile` (0 to 1). Abandoned requests count as longer than every
    /// response; a quantile among them is a lower bound. `None` without samples.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<CensoredNs> {
        match self.answered.value_at_rank(rank_of(quantile, self.count())) {
            Some(ns) => Some(CensoredNs::Exact(ns)),
            None => self.all().value_at_quantile(quantile).map(CensoredNs::AtLeast),
        }
    }

    /// Returns the mean; a lower bound when any request was abandoned.
    #[must_use]
    pub fn mean(&self) -> Option<CensoredNs> {
        self.known(self.all().mean().map(|ns| ns.round() as u64))
    }

    /// Returns the maximum; a lower bound when any request was abandoned.
    #[must_use]
    pub fn max(&self) -> Option<CensoredNs> {
        self.known((self.count() > 0).then(|| self.all().max()))
    }

    /// Returns answered and abandoned durations in one histogram.
    #[must_use]
    pub fn all(&self) -> Histogram {
        let mut all = self.answered.clone();
        if let Some(abandoned) = &self.abandoned {
            all.merge(abandoned);
        }
        all
    }

    fn known(&self, ns: Option<u64>) -> Option<CensoredNs> {
        ns.map(if self.abandoned.is_some() { CensoredNs::AtLeast } else { CensoredNs::Exact })
    }

    fn merge(&mut self, other: &Self) {
        self.answered.merge(&other.answered);
        if let Some(theirs) = &other.abandoned {
            self.abandoned.get_or_insert_default().merge(theirs);
        }
    }
}

impl CensoredNs {
    /// Returns the number, exact or lower bound.
    #[must_use]
    pub fn ns(self) -> u64 {
        match self {
            Self::Exact(ns) | Self::AtLeast(ns) => ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abandoned_requests_are_the_tail() {
        let mut timing = Timing::default();
        (0..95).for_each(|_| timing.answered.record(1000));
        timing.record_abandoned(50_000, 5);
        let about = |known: Option<CensoredNs>| match known {
            Some(CensoredNs::Exact(ns)) => format!("{}", ns / 900),
            Some(CensoredNs::AtLeast(ns)) => format!(">{}", ns / 49_000),
            None => String::new(),
        };
        assert_eq!(about(timing.quantile(0.95)), "1");
        assert_eq!(about(timing.quantile(0.96)), ">1");
        assert_eq!(timing.max(), Some(CensoredNs::AtLeast(50_000)));
        assert_eq!(timing.mean(), Some(CensoredNs::AtLeast(3450)));
        assert_eq!(Timing::default().quantile(0.5), None);
    }

    #[test]
    fn a_request_abandoned_early_is_no_short_answer() {
        let mut timing = Timing::default();
        (0..9).for_each(|_| timing.answered.record(1000));
        timing.record_abandoned(1, 1);
        assert!(matches!(timing.quantile(0.1), Some(CensoredNs::Exact(1000..))));
        assert!(matches!(timing.quantile(1.0), Some(CensoredNs::AtLeast(_))));
    }

    #[test]
    fn laws_are_checked() {
        let status = BTreeMap::from([(200, 4)]);
        let mut counts = Counts {
            scheduled: 9,
            unsent: 2,
            sent: 7,
            ok: 4,
            timeouts: 1,
            status,
            ..Counts::default()
        };
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
        let mut one = LoadStats::default();
        one.counts.ok = 2;
        one.counts.status.insert(200, 2);
        one.latency.answered.record(5);
        let mut sum = LoadStats::default();
        sum.merge(&one);
        sum.merge(&one);
        assert_eq!((sum.counts.ok, sum.counts.status[&200], sum.latency.count()), (4, 4, 2));
    }
}
