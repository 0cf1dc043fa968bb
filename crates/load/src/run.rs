//! A whole run: threads begin, connect, start together, report every second, and are added up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use hotrow_measure::clock::Nanos;

use crate::outcome::{End, GONE_SECONDS, Outcome, Second, ThreadUse};
use crate::plan::{Pace, Plan, PlanError};
use crate::record::{Broken, Record};
use crate::request::Mix;
pub use crate::tally::Expect;
use crate::target::Address;
use crate::tls::Tls;
use crate::worker::Worker;

/// Most connections of one run.
pub const CONNECTIONS_MAX: usize = 1_000_000;
/// Most threads of one run.
pub const THREADS_MAX: usize = 1024;
/// Most requests in flight on one connection.
pub const PIPELINE_MAX: usize = 1000;
/// Time between "all are connected" and the first request, for every thread to be awake.
const LEAD: Duration = Duration::from_millis(5);
/// How often the user's wish to stop is looked for.
const STOP_LOOK: Duration = Duration::from_millis(20);

/// Tells how long a thread has waited for a CPU so far, by the kernel's number of the thread; none when that is unknown.
pub type RunqueueWait = Arc<dyn Fn(i32) -> Option<Duration> + Send + Sync>;

/// Everything that a run needs, resolved and checked.
#[derive(Clone)]
pub struct Config {
    /// Where connections go.
    pub address: Address,
    /// TLS, when the target speaks it.
    pub tls: Option<Tls>,
    /// What is sent.
    pub requests: Mix,
    /// When.
    pub plan: Plan,
    /// Connections, 1 to [`CONNECTIONS_MAX`].
    pub connections: usize,
    /// Threads, 1 to [`THREADS_MAX`] and to the number of connections.
    pub threads: usize,
    /// Whether a connection serves more than one request.
    pub keepalive: bool,
    /// Requests in flight on one connection, 1 to [`PIPELINE_MAX`].
    pub pipeline: usize,
    /// After this time from its send a request is given up.
    pub timeout: Duration,
    /// After this time a connection that does not open, TLS included, is given up.
    pub connect_timeout: Duration,
    /// Which answers are right.
    pub expect: Expect,
    /// Repeats ids and the choice between URLs.
    pub seed: u64,
    /// How long a thread waited for a CPU, if somebody can tell.
    pub runqueue_wait: Option<RunqueueWait>,
    /// CPU time that is wasted for each answer, to see whether the rate follows; zero but in such trials.
    pub burn_per_request: Duration,
}

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The plan cannot be carried out.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A number is out of its range.
    #[error("{what} must be between 1 and {max}, not {value}")]
    OutOfRange {
        /// What.
        what: &'static str,
        /// Its largest value.
        max: usize,
        /// Its value.
        value: usize,
    },
    /// Requests can be pipelined only on connections that stay open.
    #[error("--pipeline needs connections that stay open; leave --no-keepalive out")]
    PipelineWithoutKeepalive,
    /// Not one connection could be opened.
    #[error("no connection to {address} could be opened: {why}")]
    NoConnection {
        /// Where to.
        address: String,
        /// What the system or TLS said.
        why: String,
    },
    /// The user broke it off before the first request.
    #[error("interrupted before the first request")]
    InterruptedBefore,
    /// A thread could not be started, or lacks what it needs.
    #[error("a thread of the generator cannot work: {0}")]
    Thread(std::io::Error),
    /// A thread panicked.
    #[error("a thread of the generator panicked; this is a bug in Hotrow")]
    Panicked,
    /// The counts do not add up.
    #[error(transparent)]
    Broken(#[from] Broken),
}

/// What workers tell.
#[derive(Debug)]
pub(crate) enum Message {
    /// Connected as far as possible; waits for the start.
    Ready { opened: usize, trouble: Option<String> },
    /// One second of the measurement is over.
    Second { worker: usize, index: u64, length_ns: u64, record: Box<Record> },
    /// All is over.
    Done { worker: usize, finish: Box<Finish> },
}

/// How a worker ended.
#[derive(Debug)]
pub(crate) struct Finish {
    pub(crate) in_flight: u64,
    /// When the last answer came, since the schedule began.
    pub(crate) last_answer_ns: u64,
    /// When it ended, likewise.
    pub(crate) end_ns: u64,
    pub(crate) interrupted: bool,
    pub(crate) used: ThreadUse,
    pub(crate) troubles: BTreeMap<String, u64>,
}

impl Config {
    fn check(&self) -> Result<(), RunError> {
        self.plan.check()?;
        let ranges = [
            ("the number of connections", self.connections, CONNECTIONS_MAX),
            ("the number of threads", self.threads, THREADS_MAX.min(self.connections.max(1))),
            ("--pipeline", self.pipeline, PIPELINE_MAX),
        ];
        if let Some((what, value, max)) = ranges.into_iter().find(|(_, value, max)| *value == 0 || value > max) {
            return Err(RunError::OutOfRange { what, max, value });
        }
        if self.pipeline > 1 && !self.keepalive {
            return Err(RunError::PipelineWithoutKeepalive);
        }
        Ok(())
    }
}

/// Carries out a run on threads of its own and waits for its end. Setting `stop` ends it early: requests in flight are not
/// awaited then. `on_second` is called after each second of the measurement with all threads' record of it.
///
/// # Errors
/// When the run could not begin, not one connection could be opened, or the generator itself failed. Failures of single
/// requests are in the outcome.
pub fn run(
    config: &Config,
    stop: &Arc<AtomicBool>,
    on_second: &mut dyn FnMut(&Second, &Record),
) -> Result<Outcome, RunError> {
    run_telling(config, stop, &mut |_| {}, on_second)
}

/// The same, which also calls `on_begin` when all connections are open, with the moment at which the schedule begins.
///
/// # Errors
/// As [`run`].
pub fn run_telling(
    config: &Config,
    stop: &Arc<AtomicBool>,
    on_begin: &mut dyn FnMut(Nanos),
    on_second: &mut dyn FnMut(&Second, &Record),
) -> Result<Outcome, RunError> {
    config.check()?;
    let config = Arc::new(config.clone());
    // Workers that have begun must end, whatever happens here.
    let ended = Arc::new(AtomicBool::new(false));
    let (sender, messages) = mpsc::channel();
    let mut crew = Crew { ended: ended.clone(), starts: Vec::new(), threads: Vec::new() };
    for index in 0..config.threads {
        let (start, started) = mpsc::channel();
        let worker = Worker::new(&config, index, sender.clone(), ended.clone()).map_err(RunError::Thread)?;
        let builder = Builder::new().name(format!("load-{index}"));
        crew.starts.push(start);
        crew.threads.push(builder.spawn(move || worker.work(&started)).map_err(RunError::Thread)?);
    }
    drop(sender);
    await_ready(&config, &messages, stop)?;
    let begin = Nanos::now().after(LEAD);
    for start in &crew.starts {
        start.send(begin).map_err(|_| RunError::Panicked)?;
    }
    on_begin(begin);
    let mut sum = Sum::new(&config, begin);
    while !sum.complete() {
        match messages.recv_timeout(STOP_LOOK) {
            Ok(message) => sum.add(message, on_second),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(RunError::Panicked),
        }
        let gone = config.plan.extent.duration.is_none() && sum.gone;
        if stop.load(Ordering::Relaxed) || gone {
            ended.store(true, Ordering::Relaxed);
        }
    }
    crew.join()?;
    sum.outcome(&config.plan)
}

/// Waits until every worker has connected, and sees whether anything is there at all.
fn await_ready(config: &Config, messages: &Receiver<Message>, stop: &AtomicBool) -> Result<(), RunError> {
    let (mut ready, mut connections, mut why) = (0, 0, None);
    while ready < config.threads {
        match messages.recv_timeout(STOP_LOOK) {
            Ok(Message::Ready { opened, trouble }) => {
                ready += 1;
                connections += opened;
                why = why.or(trouble);
            }
            Ok(Message::Second { .. } | Message::Done { .. }) | Err(RecvTimeoutError::Disconnected) => {
                return Err(RunError::Panicked);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if stop.load(Ordering::Relaxed) {
            return Err(RunError::InterruptedBefore);
        }
    }
    match why {
        Some(why) if connections == 0 => Err(RunError::NoConnection { address: config.address.to_string(), why }),
        _ => Ok(()),
    }
}

/// The threads of a run. Dropping it tells them to end.
struct Crew {
    ended: Arc<AtomicBool>,
    starts: Vec<Sender<Nanos>>,
    threads: Vec<JoinHandle<()>>,
}

impl Crew {
    fn join(mut self) -> Result<(), RunError> {
        for thread in std::mem::take(&mut self.threads) {
            thread.join().map_err(|_| RunError::Panicked)?;
        }
        Ok(())
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        self.starts.clear();
        for thread in std::mem::take(&mut self.threads) {
            // Whoever drops it early reports an error already.
            let _ = thread.join();
        }
    }
}

/// Adds up what the workers tell.
struct Sum {
    /// When the measurement began.
    began: Nanos,
    places: usize,
    total: Record,
    seconds: Vec<Second>,
    /// Seconds that not every worker has told yet, with their lengths in ns.
    open: BTreeMap<u64, (u64, Record)>,
    /// Per worker, the first second that it has not told; the largest number when it is done.
    reached: Vec<u64>,
    finishes: Vec<Finish>,
    /// The latest seconds in which no connection could be opened, and nothing else happened.
    seconds_in_vain: u64,
    /// Whether there were [`GONE_SECONDS`] of them in a row.
    gone: bool,
}

impl Sum {
    fn new(config: &Config, begin: Nanos) -> Self {
        let reached = vec![0; config.threads];
        Self {
            began: begin.after(config.plan.warmup),
            places: config.connections * config.pipeline,
            total: Record::default(),
            seconds: Vec::new(),
            open: BTreeMap::new(),
            reached,
            finishes: Vec::new(),
            seconds_in_vain: 0,
            gone: false,
        }
    }

    fn complete(&self) -> bool {
        self.finishes.len() == self.reached.len()
    }

    fn add(&mut self, message: Message, on_second: &mut dyn FnMut(&Second, &Record)) {
        match message {
            Message::Ready { .. } => {}
            Message::Second { worker, index, length_ns, record } => {
                self.total.merge(&record);
                let (longest_ns, sum) = self.open.entry(index).or_default();
                *longest_ns = length_ns.max(*longest_ns);
                sum.merge(&record);
                self.reached[worker] = index + 1;
            }
            Message::Done { worker, finish } => {
                self.reached[worker] = u64::MAX;
                self.finishes.push(*finish);
            }
        }
        let told = self.reached.iter().copied().min().unwrap_or(0);
        while let Some(entry) = self.open.first_entry().filter(|entry| *entry.key() < told) {
            let (index, (length_ns, record)) = entry.remove_entry();
            let began = self.began.after(Duration::from_secs(index));
            let second = Second::of(index, began, Duration::from_nanos(length_ns), &record);
            on_second(&second, &record);
            self.seconds_in_vain = if second.in_vain() { self.seconds_in_vain + 1 } else { 0 };
            self.gone |= self.seconds_in_vain >= GONE_SECONDS;
            self.seconds.push(second);
        }
    }

    fn outcome(self, plan: &Plan) -> Result<Outcome, RunError> {
        let warmup_ns = plan.warmup.as_nanos() as u64;
        let interrupted = self.finishes.iter().any(|f| f.interrupted);
        let latest = |of: fn(&Finish) -> u64| self.finishes.iter().map(of).max().unwrap_or(0).saturating_sub(warmup_ns);
        let (last_answer_ns, end_ns) = (latest(|f| f.last_answer_ns), latest(|f| f.end_ns));
        let planned_ns = plan.extent.duration.map_or(u64::MAX, |d| d.as_nanos() as u64);
        let by_number = plan.extent.requests.is_some_and(|n| self.total.counts.scheduled >= n);
        let window_ns = match (interrupted, by_number) {
            (true, _) => end_ns.min(planned_ns),
            (false, true) => last_answer_ns.min(planned_ns),
            (false, false) if plan.extent.duration.is_some() => planned_ns,
            (false, false) => end_ns.max(last_answer_ns),
        };
        let in_flight_at_end = self.finishes.iter().map(|f| f.in_flight).sum();
        self.total.counts.check(in_flight_at_end)?;
        let window = Duration::from_nanos(window_ns);
        let target_rate = match plan.pace {
            Pace::Closed => None,
            Pace::Open { .. } if window.is_zero() => None,
            // Slots of the schedule until now: for a ramp that was cut short, its mean rate would be wrong.
            Pace::Open { .. } => Some(self.total.counts.scheduled as f64 / window.as_secs_f64()),
        };
        let mut troubles: BTreeMap<String, u64> = BTreeMap::new();
        for (words, n) in self.finishes.iter().flat_map(|f| &f.troubles) {
            *troubles.entry(words.clone()).or_default() += n;
        }
        let mut troubles: Vec<(String, u64)> = troubles.into_iter().collect();
        troubles.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        Ok(Outcome {
            end: match interrupted {
                false => End::Complete,
                true if self.gone && plan.extent.duration.is_none() => End::TargetGone,
                true => End::Interrupted,
            },
            window,
            total: self.total,
            in_flight_at_end,
            target_rate,
            places: self.places,
            seconds: self.seconds,
            threads: self.finishes.iter().map(|f| f.used).collect(),
            troubles,
        })
    }
}
