//! A complete run: threads start, connect, begin together and report every second; the results are
//! added up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use hotrow_measure::clock::Nanos;

pub use crate::config::{
    CONNECTIONS_MAX, Config, ExpectedStatus, PIPELINE_MAX, RunqueueWait, STREAMS_MAX, THREADS_MAX,
};
use crate::latency_map::LatencyMap;
use crate::outcome::{
    Outcome, RunEnd, SILENCE_FAILURES_MIN, SILENCE_MIN, Second, UNREACHABLE_SECONDS,
};
use crate::plan::{LoadModel, Plan, PlanError};
use crate::stats::{LawViolation, LoadStats};
use crate::worker::Worker;
use crate::worker::message::{WorkerMessage, WorkerReport};
use hotrow_transport::tls::HttpVersion;

/// Time between the last connection and the first request, in which every thread wakes up.
const START_DELAY: Duration = Duration::from_millis(5);
/// Interval between checks of the stop flag.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Reasons for a missing outcome.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The plan cannot be carried out.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A number is out of its range.
    #[error("{what} must be between 1 and {max}, not {value}")]
    OutOfRange {
        /// The quantity.
        what: &'static str,
        /// Its largest value.
        max: usize,
        /// Its value.
        value: usize,
    },
    /// Several requests in flight require keep-alive connections.
    #[error("--pipeline and --http2 need connections that stay open; leave --no-keepalive out")]
    PipelineWithoutKeepalive,
    /// A request cannot be expressed in HTTP/2.
    #[error("the request cannot be sent as HTTP/2; check its Host header")]
    NotHttp2,
    /// No connection could be opened.
    #[error("no connection to {address} could be opened: {why}")]
    NoConnection {
        /// The destination.
        address: String,
        /// The system's or TLS's message.
        why: String,
    },
    /// The user interrupted it before the first request.
    #[error("interrupted before the first request")]
    InterruptedBefore,
    /// A thread could not be started, or lacks a resource.
    #[error("a thread of the generator cannot work: {0}")]
    Thread(std::io::Error),
    /// A thread panicked.
    #[error("a thread of the generator panicked; this is a bug in Hotrow")]
    Panicked,
    /// The counts violate an invariant.
    #[error(transparent)]
    LawViolation(#[from] LawViolation),
}

impl Config {
    fn check(&self) -> Result<(), RunError> {
        self.plan.check()?;
        let ranges = [
            ("the number of connections", self.connections, CONNECTIONS_MAX),
            ("the number of threads", self.threads, THREADS_MAX.min(self.connections.max(1))),
            match self.version {
                HttpVersion::Http1 => ("--pipeline", self.depth, PIPELINE_MAX),
                HttpVersion::Http2 => ("--streams", self.depth, STREAMS_MAX),
            },
        ];
        if let Some((what, value, max)) =
            ranges.into_iter().find(|(_, value, max)| *value == 0 || value > max)
        {
            return Err(RunError::OutOfRange { what, max, value });
        }
        if (self.depth > 1 || self.version == HttpVersion::Http2) && !self.keepalive {
            return Err(RunError::PipelineWithoutKeepalive);
        }
        let secure = self.tls.is_some();
        if self.version == HttpVersion::Http2
            && !self.requests.share(self.seed, 0, 1).prepare_http2(secure)
        {
            return Err(RunError::NotHttp2);
        }
        Ok(())
    }
}

/// Carries out a run on its own threads and waits for its end. Setting `stop` ends it early,
/// without waiting for requests in flight. `on_second` is called after each second of the
/// measurement with the statistics of all threads.
/// # Errors
/// Fails when the run could not begin, no connection could be opened, or the generator itself
/// failed. Failures of single requests are in the outcome.
pub fn run(
    config: &Config,
    stop: &Arc<AtomicBool>,
    on_second: &mut dyn FnMut(&Second, &LoadStats),
) -> Result<Outcome, RunError> {
    run_with_start_hook(config, stop, &mut |_| {}, on_second)
}

/// Like [`run`], but also calls `on_begin` with the start time of the schedule when all connections
/// are open.
///
/// # Errors
/// As [`run`].
pub fn run_with_start_hook(
    config: &Config,
    stop: &Arc<AtomicBool>,
    on_begin: &mut dyn FnMut(Nanos),
    on_second: &mut dyn FnMut(&Second, &LoadStats),
) -> Result<Outcome, RunError> {
    config.check()?;
    let config = Arc::new(config.clone());
    // Started workers must end, even after an error here.
    let ended = Arc::new(AtomicBool::new(false));
    let (sender, messages) = mpsc::channel();
    let mut workers =
        WorkerThreads { ended: ended.clone(), starts: Vec::new(), threads: Vec::new() };
    for index in 0..config.threads {
        let (start, started) = mpsc::channel();
        let worker =
            Worker::new(&config, index, sender.clone(), ended.clone()).map_err(RunError::Thread)?;
        let builder = Builder::new().name(format!("load-{index}"));
        workers.starts.push(start);
        workers
            .threads
            .push(builder.spawn(move || worker.work(&started)).map_err(RunError::Thread)?);
    }
    drop(sender);
    await_ready(&config, &messages, stop)?;
    let begin = Nanos::now().after(START_DELAY);
    for start in &workers.starts {
        start.send(begin).map_err(|_| RunError::Panicked)?;
    }
    on_begin(begin);
    let mut sum = Aggregator::new(&config, begin);
    while !sum.complete() {
        match messages.recv_timeout(STOP_POLL_INTERVAL) {
            Ok(message) => sum.add(message, on_second),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(RunError::Panicked),
        }
        let gone = config.plan.stop.duration.is_none() && sum.gone;
        if stop.load(Ordering::Relaxed) || gone {
            ended.store(true, Ordering::Relaxed);
        }
    }
    workers.join()?;
    sum.outcome(&config.plan)
}

/// Waits until every worker has connected; fails when none could.
fn await_ready(
    config: &Config,
    messages: &Receiver<WorkerMessage>,
    stop: &AtomicBool,
) -> Result<(), RunError> {
    let (mut ready, mut connections, mut why) = (0, 0, None);
    while ready < config.threads {
        match messages.recv_timeout(STOP_POLL_INTERVAL) {
            Ok(WorkerMessage::Ready { opened, failure_message }) => {
                ready += 1;
                connections += opened;
                why = why.or(failure_message);
            }
            Ok(WorkerMessage::Second { .. } | WorkerMessage::Done { .. })
            | Err(RecvTimeoutError::Disconnected) => {
                return Err(RunError::Panicked);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if stop.load(Ordering::Relaxed) {
            return Err(RunError::InterruptedBefore);
        }
    }
    match why {
        Some(why) if connections == 0 => {
            Err(RunError::NoConnection { address: config.address.to_string(), why })
        }
        _ => Ok(()),
    }
}

/// The threads of a run. Dropping it ends them.
struct WorkerThreads {
    ended: Arc<AtomicBool>,
    starts: Vec<Sender<Nanos>>,
    threads: Vec<JoinHandle<()>>,
}

impl WorkerThreads {
    fn join(mut self) -> Result<(), RunError> {
        for thread in std::mem::take(&mut self.threads) {
            thread.join().map_err(|_| RunError::Panicked)?;
        }
        Ok(())
    }
}

impl Drop for WorkerThreads {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        self.starts.clear();
        for thread in std::mem::take(&mut self.threads) {
            // The caller that drops it early already reports an error.
            let _ = thread.join();
        }
    }
}

/// Adds up the workers' reports.
struct Aggregator {
    /// Start of the measurement.
    began: Nanos,
    max_in_flight: usize,
    total: LoadStats,
    seconds: Vec<Second>,
    /// Seconds that some worker has not reported yet, with their lengths in ns.
    open: BTreeMap<u64, (u64, LoadStats)>,
    /// Per worker, the first second not yet reported; the largest number when done.
    reached: Vec<u64>,
    reports: Vec<WorkerReport>,
    /// Number of consecutive latest seconds with nothing but failed attempts to connect.
    failed_connect_seconds: u64,
    /// True if there were [`UNREACHABLE_SECONDS`] of them in a row.
    gone: bool,
}

impl Aggregator {
    fn new(config: &Config, begin: Nanos) -> Self {
        let reached = vec![0; config.threads];
        Self {
            began: begin.after(config.plan.warmup),
            max_in_flight: config.connections * config.depth,
            total: LoadStats::default(),
            seconds: Vec::new(),
            open: BTreeMap::new(),
            reached,
            reports: Vec::new(),
            failed_connect_seconds: 0,
            gone: false,
        }
    }

    fn complete(&self) -> bool {
        self.reports.len() == self.reached.len()
    }

    fn add(&mut self, message: WorkerMessage, on_second: &mut dyn FnMut(&Second, &LoadStats)) {
        match message {
            WorkerMessage::Ready { .. } => {}
            WorkerMessage::Second { worker, index, length_ns, record } => {
                self.total.merge(&record);
                let (longest_ns, sum) = self.open.entry(index).or_default();
                *longest_ns = length_ns.max(*longest_ns);
                sum.merge(&record);
                self.reached[worker] = index + 1;
            }
            WorkerMessage::Done { worker, finish } => {
                self.reached[worker] = u64::MAX;
                self.reports.push(*finish);
            }
        }
        let reported_up_to = self.reached.iter().copied().min().unwrap_or(0);
        while let Some(entry) =
            self.open.first_entry().filter(|entry| *entry.key() < reported_up_to)
        {
            let (index, (length_ns, record)) = entry.remove_entry();
            let began = self.began.after(Duration::from_secs(index));
            let second = Second::of(index, began, Duration::from_nanos(length_ns), &record);
            on_second(&second, &record);
            self.failed_connect_seconds =
                if second.only_failed_connects() { self.failed_connect_seconds + 1 } else { 0 };
            self.gone |= self.failed_connect_seconds >= UNREACHABLE_SECONDS;
            self.seconds.push(second);
        }
    }

    /// Returns the time of the last response if the target stopped answering before `end_ns`; see
    /// [`RunEnd::StoppedAnswering`]. Both times count from the beginning of the measurement.
    fn silent_after(&self, last_answer_ns: u64, end_ns: u64) -> Option<Duration> {
        let after = Duration::from_nanos(last_answer_ns);
        let silence = Duration::from_nanos(end_ns.saturating_sub(last_answer_ns));
        // All failures of a second with a response may have come before it.
        let later = || self.seconds.iter().filter(|second| second.index > after.as_secs());
        let received_none: u64 = later().map(|second| second.timeouts + second.errors).sum();
        // In an open loop the request of a failed connect is unsent, too: one failure, not two.
        let unsent: u64 = later().map(|second| second.unsent).sum();
        let not_connected: u64 = later().map(|second| second.connect_errors).sum();
        let failed = received_none + unsent.max(not_connected);
        let answered = !self.total.counts.status.is_empty();
        (answered && silence >= SILENCE_MIN && failed >= SILENCE_FAILURES_MIN).then_some(after)
    }

    fn outcome(self, plan: &Plan) -> Result<Outcome, RunError> {
        let warmup_ns = plan.warmup.as_nanos() as u64;
        let interrupted = self.reports.iter().any(|f| f.interrupted);
        let latest = |of: fn(&WorkerReport) -> u64| {
            self.reports.iter().map(of).max().unwrap_or(0).saturating_sub(warmup_ns)
        };
        let (last_answer_ns, end_ns) = (latest(|f| f.last_answer_ns), latest(|f| f.end_ns));
        let planned_ns = plan.stop.duration.map_or(u64::MAX, |d| d.as_nanos() as u64);
        let by_number = plan.stop.requests.is_some_and(|n| self.total.counts.scheduled >= n);
        let window_ns = match (interrupted, by_number) {
            (true, _) => end_ns.min(planned_ns),
            (false, true) => last_answer_ns.min(planned_ns),
            (false, false) if plan.stop.duration.is_some() => planned_ns,
            (false, false) => end_ns.max(last_answer_ns),
        };
        let in_flight_at_end = self.reports.iter().map(|f| f.in_flight).sum();
        self.total.check(in_flight_at_end)?;
        let silent_after = self.silent_after(last_answer_ns, end_ns.min(planned_ns));
        let window = Duration::from_nanos(window_ns);
        let target_rate = match plan.model {
            LoadModel::Closed => None,
            LoadModel::Open { .. } if window.is_zero() => None,
            // Slots of the schedule up to now: the mean rate would be wrong for an interrupted
            // ramp.
            LoadModel::Open { .. } => {
                Some(self.total.counts.scheduled as f64 / window.as_secs_f64())
            }
        };
        let mut latency_map = LatencyMap::default();
        self.reports.iter().for_each(|f| latency_map.merge(&f.latency_map));
        let mut failure_messages: BTreeMap<String, u64> = BTreeMap::new();
        for (words, n) in self.reports.iter().flat_map(|f| &f.failure_messages) {
            *failure_messages.entry(words.clone()).or_default() += n;
        }
        let mut failure_messages: Vec<(String, u64)> = failure_messages.into_iter().collect();
        failure_messages.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        Ok(Outcome {
            end: match interrupted {
                false => silent_after
                    .map_or(RunEnd::Complete, |after| RunEnd::StoppedAnswering { after }),
                true if self.gone && plan.stop.duration.is_none() => RunEnd::TargetUnreachable,
                true => RunEnd::Interrupted,
            },
            window,
            total: self.total,
            in_flight_at_end,
            target_rate,
            max_in_flight: self.max_in_flight,
            seconds: self.seconds,
            threads: self.reports.iter().map(|f| f.used).collect(),
            failure_messages,
            latency_map,
        })
    }
}
