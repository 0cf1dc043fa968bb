//! The result of a run. [`Outcome`] is complete: every report is made from it alone.

use std::time::Duration;

use hotrow_measure::clock::Nanos;

use crate::latency_map::LatencyMap;
use crate::stats::{CensoredNs, LoadStats, Timing};

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// End of the run.
    pub end: RunEnd,
    /// Length of the measurement window: from the end of the warm-up to the planned end, to the
    /// last response when a number of requests ended the run, or to the interruption. Requests in
    /// flight at that time are still awaited (up to their time-out) and counted, but in no rate.
    pub window: Duration,
    /// Statistics of all seconds and threads together.
    pub total: LoadStats,
    /// Requests without a response at the end; only an early end leaves any.
    pub in_flight_at_end: u64,
    /// Mean target rate over the window, in requests per second; none in a closed loop.
    pub target_rate: Option<f64>,
    /// Maximum number of requests in flight: connections times pipeline depth or streams.
    pub max_in_flight: usize,
    /// One entry per second of the window and of the wait for the last responses, without gaps.
    pub seconds: Vec<Second>,
    /// Resources that each thread used during the window.
    pub threads: Vec<ThreadUse>,
    /// The first distinct failure messages, with their counts.
    pub failure_messages: Vec<(String, u64)>,
    /// Latency over time, in finer intervals than seconds in a short run. Requests that were never
    /// sent are not in it.
    pub latency_map: LatencyMap,
}

/// See [`RunEnd::TargetUnreachable`].
pub const UNREACHABLE_SECONDS: u64 = 10;
/// See [`RunEnd::StoppedAnswering`].
pub const SILENCE_MIN: Duration = Duration::from_secs(1);
/// See [`RunEnd::StoppedAnswering`].
pub const SILENCE_FAILURES_MIN: u64 = 3;

/// End of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// As planned.
    Complete,
    /// The user interrupted it.
    Interrupted,
    /// The target was unreachable: no connection could be opened for [`UNREACHABLE_SECONDS`], and
    /// only a number of requests was to end the run.
    TargetUnreachable,
    /// The target stopped answering: after this time no response arrived for at least
    /// [`SILENCE_MIN`] up to the end, and at least [`SILENCE_FAILURES_MIN`] requests failed.
    StoppedAnswering {
        /// Time of the last response, from the beginning of the measurement.
        after: Duration,
    },
}

/// One second of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Second {
    /// Index since the beginning of the measurement, from 0.
    pub index: u64,
    /// Start time.
    pub began: Nanos,
    /// Length; only the last may be shorter than a second.
    pub length: Duration,
    /// Requests scheduled in it.
    pub scheduled: u64,
    /// Requests found in it to be never sent.
    pub unsent: u64,
    /// Requests sent in it.
    pub sent: u64,
    /// Expected responses received in it.
    pub ok: u64,
    /// Errors in it.
    pub errors: u64,
    /// Time-outs in it.
    pub timeouts: u64,
    /// Failed attempts to connect in it.
    pub connect_errors: u64,
    /// Latency of requests with and without the expected response in it.
    pub latency: LatencySummary,
    /// 99th percentile of the schedule lag of requests sent in it, in ns.
    pub schedule_lag_p99_ns: Option<u64>,
}

/// Quantiles of a duration; `None` without samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencySummary {
    /// Median.
    pub p50: Option<CensoredNs>,
    /// 90th percentile.
    pub p90: Option<CensoredNs>,
    /// 99th percentile.
    pub p99: Option<CensoredNs>,
    /// Largest.
    pub max: Option<CensoredNs>,
}

/// Resources used by a generator thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadUse {
    /// The kernel's thread id.
    pub tid: i32,
    /// CPU time, user and system.
    pub cpu: Duration,
    /// Elapsed time.
    pub wall: Duration,
    /// Time waiting on the run queue; `None` when the kernel does not report it.
    pub runqueue_wait: Option<Duration>,
    /// Time runnable but not running, beyond the wait for a CPU: a lower bound.
    pub not_run: Duration,
    /// Responses in its receive buffers after it had processed all known events.
    pub unread: Unread,
    /// The same on waking, before any read, without the response that woke it.
    pub unread_on_waking: Unread,
}

/// Samples of the receive buffers, ten per second: how many of the awaited responses had arrived,
/// at least in part, and were unread. That share of the service time is the generator's own
/// (Little's law).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unread {
    /// Sampled connections with an awaited response.
    pub awaited: u64,
    /// Of those, connections with unread bytes.
    pub unread: u64,
}

impl Outcome {
    /// Returns expected responses per second of the window.
    pub fn throughput_rps(&self) -> f64 {
        per_second(self.total.counts.ok_in_window, self.window)
    }

    /// Returns throughput over target rate; `None` in a closed loop.
    pub fn rate_ratio(&self) -> Option<f64> {
        self.target_rate.map(|rate| self.throughput_rps() / rate)
    }

    /// Returns responses of any status in the window over scheduled requests; `None` in a closed
    /// loop.
    pub fn answered_ratio(&self) -> Option<f64> {
        self.target_rate
            .map(|rate| per_second(self.total.counts.answered_in_window(), self.window) / rate)
    }

    /// Returns the CPU time of all threads during the window.
    pub fn cpu(&self) -> Duration {
        self.threads.iter().map(|t| t.cpu).sum()
    }

    /// Returns CPU time in µs per response of any status or lost request in the window; `None`
    /// without any.
    pub fn cpu_us_per_request(&self) -> Option<f64> {
        let answers = self.total.counts.ok + self.total.counts.errors.total();
        (answers > 0).then(|| self.cpu().as_secs_f64() * 1e6 / answers as f64)
    }

    /// Returns the CPU share of the busiest thread, 0 to 1.
    pub fn cpu_share(&self) -> f64 {
        self.threads.iter().map(ThreadUse::busy).fold(0.0, f64::max)
    }

    /// Returns the share of awaited responses that lay unread, 0 to 1; `None` without samples.
    pub fn unread_share(&self) -> Option<f64> {
        self.unread().share()
    }

    /// Returns the unread samples of all threads.
    pub fn unread(&self) -> Unread {
        self.threads.iter().fold(Unread::default(), |sum, t| sum.and(t.unread))
    }

    /// Returns the mean time that a response lay unread, in ns: the unread share of the mean
    /// service time; 0 when unknown.
    pub fn unread_ns(&self) -> u64 {
        let service_ns = self.total.service.mean().map_or(0, CensoredNs::ns);
        (self.unread_share().unwrap_or(0.0) * service_ns as f64) as u64
    }
}

impl Unread {
    /// Adds another sample.
    pub fn add(&mut self, other: Self) {
        *self = self.and(other);
    }

    /// Returns the sum of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { awaited: self.awaited + other.awaited, unread: self.unread + other.unread }
    }

    /// Returns the unread share, 0 to 1; `None` without samples.
    #[must_use]
    pub fn share(self) -> Option<f64> {
        (self.awaited > 0).then(|| self.unread as f64 / self.awaited as f64)
    }
}

impl ThreadUse {
    /// Returns CPU time over elapsed time, 0 to 1.
    pub fn busy(&self) -> f64 {
        share(self.cpu, self.wall)
    }

    /// Returns the held-back time over elapsed time, 0 to 1.
    pub fn held_back(&self) -> f64 {
        share(self.not_run, self.wall)
    }

    /// Returns the run-queue wait over elapsed time, 0 to 1; 0 when unknown.
    pub fn waiting(&self) -> f64 {
        share(self.runqueue_wait.unwrap_or_default(), self.wall)
    }
}

impl Second {
    /// Returns whether it contains nothing but failed attempts to connect.
    pub fn only_failed_connects(&self) -> bool {
        self.connect_errors > 0 && self.sent + self.ok + self.errors + self.timeouts == 0
    }

    /// Summarizes the statistics of one second.
    #[must_use]
    pub fn of(index: u64, began: Nanos, length: Duration, record: &LoadStats) -> Self {
        let counts = &record.counts;
        Self {
            index,
            began,
            length,
            scheduled: counts.scheduled,
            unsent: counts.unsent,
            sent: counts.sent,
            ok: counts.ok,
            errors: counts.errors.total(),
            timeouts: counts.timeouts,
            connect_errors: counts.connect_errors,
            latency: LatencySummary::of(&record.latency),
            schedule_lag_p99_ns: record.schedule_lag.value_at_quantile(0.99),
        }
    }
}

impl LatencySummary {
    /// Summarizes a duration.
    #[must_use]
    pub fn of(timing: &Timing) -> Self {
        let at = |quantile| timing.quantile(quantile);
        Self { p50: at(0.5), p90: at(0.9), p99: at(0.99), max: timing.max() }
    }
}

fn per_second(n: u64, window: Duration) -> f64 {
    if window.is_zero() { 0.0 } else { n as f64 / window.as_secs_f64() }
}

fn share(part: Duration, whole: Duration) -> f64 {
    if whole.is_zero() { 0.0 } else { (part.as_secs_f64() / whole.as_secs_f64()).min(1.0) }
}
