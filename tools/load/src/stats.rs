//! Counts and durations of requests, and how they add up.

use std::collections::BTreeMap;

use hotrow_measure::histogram::{Histogram, rank_of};

/// Statistics of one second, one thread, or a whole run. Merging is exact: the merged intervals
/// equal the total.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadStats {
    /// Outcomes of requests.
    pub counts: Counts,
    /// Latency: from the intended time to the complete expected response, in ns; the time that a
    /// user waits. Every due request is in it once.
    pub latency: Timing,
    /// Service time: from the actual send to the complete expected response, in ns; the time of the
    /// target and the path to it. Every sent request is in it once.
    pub service: Timing,
    /// Latency of complete responses with an unexpected status, in ns, by status code; `latency`
    /// has them as unbounded. Beyond [`REFUSED_STATUSES_MAX`] codes under [`OTHER_STATUS`].
    pub refused: BTreeMap<u16, Histogram>,
    /// From the actual send to the first byte of the response, in ns, of every complete response.
    pub first_byte: Histogram,
    /// Time to open a connection, TLS handshake included, in ns, of every connection opened.
    pub connect: Histogram,
    /// Schedule lag: from the intended time to the actual send, in ns, of every request that was
    /// sent.
    pub schedule_lag: Histogram,
    /// The generator's own part of the schedule lag, in ns: of slots that found a free connection,
    /// or would have, and still were late.
    pub own_lag: Histogram,
}

/// Most status codes of [`LoadStats::refused`] with a histogram of their own, per thread; each
/// takes 30 kB.
pub const REFUSED_STATUSES_MAX: usize = 8;
/// The key in [`LoadStats::refused`] of all further status codes.
pub const OTHER_STATUS: u16 = 0;

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
    /// Of those, sent again: the server announced the end of the connection in the response to an
    /// earlier request of the pipeline (HTTP/2: by GOAWAY), so that it had not processed them.
    pub resent: u64,
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
    /// The response was not valid HTTP.
    pub malformed: u64,
    /// A complete response with an unexpected status.
    pub unexpected_status: u64,
    /// HTTP/2: the server ended the connection with an error (GOAWAY), or announced its end before
    /// it had answered anything.
    pub goaway: u64,
    /// HTTP/2: the server refused the stream (`RST_STREAM` with `REFUSED_STREAM`).
    pub refused_stream: u64,
    /// HTTP/2: the server reset the stream with another reason.
    pub stream_reset: u64,
}

/// Durations in ns of requests with and without the expected response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// Durations of expected responses.
    pub answered: Histogram,
    /// Requests without the expected response (lost, refused, timed out, never sent, in flight at
    /// the end): the durations until that was known. They count as longer than every response.
    pub unbounded: Option<Box<Histogram>>,
}

/// A duration in ns, possibly right-censored: known only to be at least a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CensoredNs {
    /// Known within the histogram's error.
    Exact(u64),
    /// A lower bound: the statistic falls among requests without the expected response.
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
        for (status, durations) in &other.refused {
            self.refused.entry(*status).or_default().merge(durations);
        }
        self.first_byte.merge(&other.first_byte);
        self.connect.merge(&other.connect);
        self.schedule_lag.merge(&other.schedule_lag);
        self.own_lag.merge(&other.own_lag);
    }

    /// Adds a complete response with an unexpected status.
    pub(crate) fn refuse(&mut self, status: u16, latency_ns: u64) {
        let full = self.refused.len() >= REFUSED_STATUSES_MAX;
        let key = if full && !self.refused.contains_key(&status) { OTHER_STATUS } else { status };
        self.refused.entry(key).or_default().record(latency_ns);
    }

    /// Checks the conservation laws at the end of a run. `in_flight` was counted on the
    /// connections, not derived.
    ///
    /// # Errors
    /// Returns the violated invariant.
    pub fn check(&self, in_flight: u64) -> Result<(), LawViolation> {
        self.counts.check(in_flight)?;
        let refused = self.refused.values().map(Histogram::count).sum();
        let laws = [
            ("scheduled = latencies", self.counts.scheduled, self.latency.count()),
            ("sent = service times", self.counts.sent, self.service.count()),
            ("ok = bounded latencies", self.counts.ok, self.latency.answered.count()),
            ("unexpected = refused", self.counts.errors.unexpected_status, refused),
        ];
        first_violated(laws)
    }
}

fn first_violated<const N: usize>(laws: [(&'static str, u64, u64); N]) -> Result<(), LawViolation> {
    let violated = laws.into_iter().find(|(_, left, right)| left != right);
    violated.map_or(Ok(()), |(law, left, right)| Err(LawViolation { law, left, right }))
}

impl Errors {
    /// Returns the sum of all kinds.
    pub fn total(&self) -> u64 {
        self.unexpected_status + self.lost()
    }

    /// Returns the sum of requests without a complete valid response.
    pub fn lost(&self) -> u64 {
        self.reset
            + self.closed
            + self.malformed
            + self.goaway
            + self.refused_stream
            + self.stream_reset
    }
}

impl Counts {
    /// Returns complete responses of any status before the window closed.
    pub fn answered_in_window(&self) -> u64 {
        self.ok_in_window + self.unexpected_in_window
    }

    fn merge(&mut self, other: &Self) {
        self.scheduled += other.scheduled;
        self.unsent += other.unsent;
        self.sent += other.sent;
        self.resent += other.resent;
        self.ok += other.ok;
        self.ok_in_window += other.ok_in_window;
        self.unexpected_in_window += other.unexpected_in_window;
        self.timeouts += other.timeouts;
        self.errors.reset += other.errors.reset;
        self.errors.closed += other.errors.closed;
        self.errors.malformed += other.errors.malformed;
        self.errors.goaway += other.errors.goaway;
        self.errors.refused_stream += other.errors.refused_stream;
        self.errors.stream_reset += other.errors.stream_reset;
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

    fn check(&self, in_flight: u64) -> Result<(), LawViolation> {
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
        first_violated(laws)
    }
}

impl Timing {
    /// Returns durations of which all are known.
    #[must_use]
    pub fn exact(answered: Histogram) -> Self {
        Self { answered, unbounded: None }
    }

    /// Adds `n` requests that had no expected response after `ns`.
    pub fn record_unbounded(&mut self, ns: u64, n: u64) {
        if n > 0 {
            self.unbounded.get_or_insert_default().record_n(ns, n);
        }
    }

    /// Returns the number of samples.
    pub fn count(&self) -> u64 {
        self.answered.count() + self.unbounded_count()
    }

    /// Returns the number of requests without the expected response.
    pub fn unbounded_count(&self) -> u64 {
        self.unbounded.as_ref().map_or(0, |h| h.count())
    }

    /// Returns the value at `quantile` (0 to 1). A quantile among requests without the expected
    /// response is a lower bound. `None` without samples.
    pub fn quantile(&self, quantile: f64) -> Option<CensoredNs> {
        match self.answered.value_at_rank(rank_of(quantile, self.count())) {
            Some(ns) => Some(CensoredNs::Exact(ns)),
            None => self.lower_bounds().value_at_quantile(quantile).map(CensoredNs::AtLeast),
        }
    }

    /// Returns the mean; a lower bound when any request had no expected response.
    pub fn mean(&self) -> Option<CensoredNs> {
        self.known(self.all().mean().map(|ns| ns.round() as u64))
    }

    /// Returns the maximum; a lower bound when any request had no expected response.
    pub fn max(&self) -> Option<CensoredNs> {
        self.known((self.count() > 0).then(|| self.all().max()))
    }

    /// Returns all durations, as measured, in one histogram.
    pub fn all(&self) -> Histogram {
        let mut all = self.answered.clone();
        if let Some(unbounded) = &self.unbounded {
            all.merge(unbounded);
        }
        all
    }

    /// Like [`Timing::all`], but with requests without the expected response behind all responses:
    /// at the longest response, or where they are known to have taken longer.
    pub fn lower_bounds(&self) -> Histogram {
        let mut all = self.answered.clone();
        let longest = all.max();
        if let Some(unbounded) = &self.unbounded {
            for bucket in unbounded.iter() {
                all.record_n(bucket.high.min(unbounded.max()).max(longest), bucket.count);
            }
        }
        all
    }

    fn known(&self, ns: Option<u64>) -> Option<CensoredNs> {
        ns.map(if self.unbounded.is_some() { CensoredNs::AtLeast } else { CensoredNs::Exact })
    }

    fn merge(&mut self, other: &Self) {
        self.answered.merge(&other.answered);
        if let Some(theirs) = &other.unbounded {
            self.unbounded.get_or_insert_default().merge(theirs);
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
    fn requests_without_the_expected_response_are_the_tail() {
        let mut timing = Timing::default();
        (0..95).for_each(|_| timing.answered.record(1000));
        timing.record_unbounded(50_000, 5);
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
    fn a_request_refused_early_is_no_short_answer() {
        let mut timing = Timing::default();
        (0..9).for_each(|_| timing.answered.record(1000));
        timing.record_unbounded(1, 1);
        assert!(matches!(timing.quantile(0.1), Some(CensoredNs::Exact(1000..))));
        assert_eq!(timing.quantile(1.0), Some(CensoredNs::AtLeast(1000)));
        assert_eq!(timing.lower_bounds().count(), 10);
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
        let mut stats = LoadStats { counts: counts.clone(), ..LoadStats::default() };
        assert!(stats.check(2).is_err(), "no latencies");
        stats.latency.answered.record_n(1000, 4);
        stats.latency.record_unbounded(2000, 5);
        stats.service.answered.record_n(900, 4);
        stats.service.record_unbounded(1900, 3);
        assert_eq!(stats.check(2), Ok(()));
        stats.refuse(429, 1);
        assert!(stats.check(2).is_err(), "refused, but not counted");
        counts.status.clear();
        assert!(counts.check(2).is_err());
    }

    #[test]
    fn histograms_of_refusals_are_bounded() {
        let mut stats = LoadStats::default();
        (400..600).for_each(|status| stats.refuse(status, 1000));
        assert_eq!(stats.refused.len(), REFUSED_STATUSES_MAX + 1);
        assert_eq!(stats.refused[&OTHER_STATUS].count(), 200 - REFUSED_STATUSES_MAX as u64);
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
