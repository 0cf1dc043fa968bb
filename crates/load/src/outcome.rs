//! What a run came to. [`Outcome`] is complete: every report is made from it alone.

use std::time::Duration;

use hotrow_measure::clock::Nanos;

use crate::limited::Limit;
use crate::record::{Known, Record, Timing};

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// Length of the measurement: from the end of the warm-up to the planned end, to the last answer when a number of
    /// requests ended it, or to the interruption. Requests in flight then are still awaited (up to their time-out), and
    /// counted, but in no rate.
    pub window: Duration,
    /// All seconds and threads together.
    pub total: Record,
    /// Requests without an answer when it ended; only an interruption leaves any.
    pub in_flight_at_end: u64,
    /// Requests per second that were intended, on average over the window; none in a closed loop.
    pub target_rate: Option<f64>,
    /// Requests that could be in flight at once: connections, times what one carries in a pipeline.
    pub places: usize,
    /// One entry per second of the window and of the wait for the last answers, without gaps.
    pub seconds: Vec<Second>,
    /// What each thread used during the window.
    pub threads: Vec<ThreadUse>,
    /// The first few different failures, in words, with how often each happened.
    pub troubles: Vec<(String, u64)>,
}

/// See [`End::TargetGone`].
pub const GONE_SECONDS: u64 = 10;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As planned.
    Complete,
    /// The user broke it off.
    Interrupted,
    /// The target was gone: for [`GONE_SECONDS`] no connection could be opened, and only a number of requests was to end
    /// the run.
    TargetGone,
}

/// One second of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Second {
    /// Its number from the beginning of the measurement, from 0.
    pub index: u64,
    /// When it began.
    pub began: Nanos,
    /// Its length; only the last may be shorter than a second.
    pub length: Duration,
    /// Requests intended in it.
    pub scheduled: u64,
    /// Requests of which it turned out in it that they are never sent.
    pub unsent: u64,
    /// Requests sent in it.
    pub sent: u64,
    /// Answers as expected that came in it.
    pub ok: u64,
    /// Errors in it.
    pub errors: u64,
    /// Time-outs in it.
    pub timeouts: u64,
    /// Connections that could not be opened in it.
    pub connect_errors: u64,
    /// Latency of what was answered or given up in it.
    pub latency: Brief,
    /// 99th percentile of the schedule lag of what was sent in it, in ns.
    pub schedule_lag_p99_ns: Option<u64>,
}

/// A timing in four numbers; none without samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Brief {
    /// Median.
    pub p50: Option<Known>,
    /// 90th percentile.
    pub p90: Option<Known>,
    /// 99th percentile.
    pub p99: Option<Known>,
    /// Largest.
    pub max: Option<Known>,
}

/// What a thread of the generator used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadUse {
    /// The kernel's number of the thread.
    pub tid: i32,
    /// CPU time, user and system.
    pub cpu: Duration,
    /// Time that passed meanwhile.
    pub wall: Duration,
    /// Time that it could have run and no CPU was free; none when the kernel does not tell.
    pub runqueue_wait: Option<Duration>,
    /// Time in which it wanted to run and did not, beyond the waiting for a CPU: a lower bound.
    pub not_run: Duration,
    /// Answers that lay in its receive buffers when it had read all that it knew of.
    pub unread: Unread,
    /// The same when it woke and had read nothing yet, without the answer that woke it.
    pub unread_on_waking: Unread,
}

/// What looks into receive buffers found, ten a second: of the answers that were awaited, how many had come, at least in
/// part, and lay there unread. That share of the service time is the generator's own (Little's law).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unread {
    /// Connections with an answer to come that were looked at.
    pub awaited: u64,
    /// Of those, with bytes to be read.
    pub lying: u64,
}

impl Outcome {
    /// Answers as expected per second of the window.
    #[must_use]
    pub fn throughput_rps(&self) -> f64 {
        per_second(self.total.counts.ok_in_window, self.window)
    }

    /// Throughput over target; none in a closed loop.
    #[must_use]
    pub fn rate_ratio(&self) -> Option<f64> {
        self.target_rate.map(|rate| self.throughput_rps() / rate)
    }

    /// Answers of any status in the window over what was intended; none in a closed loop.
    #[must_use]
    pub fn answered_ratio(&self) -> Option<f64> {
        self.target_rate.map(|rate| per_second(self.total.counts.answered_in_window(), self.window) / rate)
    }

    /// CPU time of all threads during the window.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        self.threads.iter().map(|t| t.cpu).sum()
    }

    /// CPU time in µs per answer of any status or lost request in the window; none without any.
    #[must_use]
    pub fn cpu_us_per_request(&self) -> Option<f64> {
        let answers = self.total.counts.ok + self.total.counts.errors.total();
        (answers > 0).then(|| self.cpu().as_secs_f64() * 1e6 / answers as f64)
    }

    /// The share of its time that the busiest thread used a CPU, 0 to 1.
    #[must_use]
    pub fn cpu_share(&self) -> f64 {
        self.threads.iter().map(ThreadUse::busy).fold(0.0, f64::max)
    }

    /// The share of the awaited answers that had come and lay unread, 0 to 1; none when nothing was looked at.
    #[must_use]
    pub fn unread_share(&self) -> Option<f64> {
        self.unread().share()
    }

    /// What was found unread, all threads together.
    #[must_use]
    pub fn unread(&self) -> Unread {
        self.threads.iter().fold(Unread::default(), |sum, t| sum.and(t.unread))
    }

    /// How long an answer lay unread on average, in ns: the unread share of the mean service time. 0 when it is not known.
    #[must_use]
    pub fn unread_ns(&self) -> u64 {
        let service_ns = self.total.service.mean().map_or(0, Known::ns);
        (self.unread_share().unwrap_or(0.0) * service_ns as f64) as u64
    }

    /// Whether the generator itself was the limit.
    #[must_use]
    pub fn limit(&self) -> Limit {
        crate::limited::judge(self)
    }
}

impl Unread {
    /// Adds what another look found.
    pub fn add(&mut self, other: Self) {
        *self = self.and(other);
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { awaited: self.awaited + other.awaited, lying: self.lying + other.lying }
    }

    /// The share that lay unread, 0 to 1; none when nothing was looked at.
    #[must_use]
    pub fn share(self) -> Option<f64> {
        (self.awaited > 0).then(|| self.lying as f64 / self.awaited as f64)
    }
}

impl ThreadUse {
    /// CPU time over wall time, 0 to 1.
    #[must_use]
    pub fn busy(&self) -> f64 {
        share(self.cpu, self.wall)
    }

    /// Time that it was held back over wall time, 0 to 1.
    #[must_use]
    pub fn held_back(&self) -> f64 {
        share(self.not_run, self.wall)
    }

    /// Waiting for a CPU over wall time, 0 to 1; 0 when it is not known.
    #[must_use]
    pub fn waiting(&self) -> f64 {
        share(self.runqueue_wait.unwrap_or_default(), self.wall)
    }
}

impl Second {
    /// Whether nothing but attempts to connect happened in it, in vain.
    #[must_use]
    pub fn in_vain(&self) -> bool {
        self.connect_errors > 0 && self.sent + self.ok + self.errors + self.timeouts == 0
    }

    /// In short.
    #[must_use]
    pub fn of(index: u64, began: Nanos, length: Duration, record: &Record) -> Self {
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
            latency: Brief::of(&record.latency),
            schedule_lag_p99_ns: record.schedule_lag.value_at_quantile(0.99),
        }
    }
}

impl Brief {
    /// In short.
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
