//! Access log: a line of JSON for each request that is failed, slow, or in the sample.
//!
//! Reading order: here (which requests have a line), `line` (its form), `queue`, `output` (files
//! and their rotation), `writer` (the thread).
//!
//! The worker that answers makes the line and appends it to a queue of its own, which is bounded in
//! bytes; one thread writes all queues. So a full disk, or a pipe without a reader, delays no
//! request: what does not fit, or cannot be written, is dropped and counted.

mod line;
mod output;
mod queue;
mod writer;

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use hotrow_access::caller::{Caller, Peer};
use hotrow_config::access::Names;
use hotrow_config::observability::AccessLog as Config;
use hotrow_measure::clock::Nanos;
use hotrow_measure::random;
use hotrow_otel::context::TraceId;
use parking_lot::{Condvar, Mutex};

pub use self::line::PATH_BYTES_MAX;
pub use self::output::OpenError;
use self::output::Output;
use self::queue::{Bell, LineQueue};
use crate::exposition::Exposition;
use crate::outcome::CacheOutcome;

/// Most lines of failed and slow requests in a second of one worker; beyond it they are sampled as
/// others are, so that an attack does not fill the disk.
const ALWAYS_PER_S_MAX: u32 = 1_000;

/// Longest wait at the end of the process for the lines to be written.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(1);

/// Reason for which a line is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dropped {
    /// The worker's queue has no room.
    QueueFull,
    /// The output failed.
    NotWritten,
    /// More failed and slow requests than [`ALWAYS_PER_S_MAX`].
    Rate,
}

const DROPPED: [(Dropped, &str); 3] = [
    (Dropped::QueueFull, "queue_full"),
    (Dropped::NotWritten, "not_written"),
    (Dropped::Rate, "rate"),
];

/// Returns the most bytes of lines that wait and are being written.
#[cfg(test)]
pub(crate) fn queues_bytes_max(workers: usize) -> usize {
    (workers + 1) * queue::QUEUE_BYTES_MAX
}

/// The access log of the process.
#[derive(Debug)]
pub struct AccessLog {
    config: Config,
    /// By worker.
    queues: Box<[LineQueue]>,
    bell: Bell,
    /// Locked by the writer's thread.
    output: Mutex<Output>,
    written: AtomicU64,
    /// By [`Dropped`].
    dropped: [AtomicU64; DROPPED.len()],
    /// Lines that are being written.
    in_hand: AtomicU64,
    end: End,
}

#[derive(Debug, Default)]
struct End {
    is_requested: AtomicBool,
    has_ended: Mutex<bool>,
    changed: Condvar,
}

impl End {
    fn ended(&self) {
        *self.has_ended.lock() = true;
        self.changed.notify_all();
    }
}

impl AccessLog {
    /// Opens the output, for a number of workers.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(config: &Config, workers: usize) -> Result<Arc<Self>, OpenError> {
        Ok(Arc::new(Self {
            output: Mutex::new(Output::open(&config.output)?),
            config: config.clone(),
            queues: (0..workers).map(|_| LineQueue::default()).collect(),
            bell: Bell::default(),
            written: AtomicU64::new(0),
            dropped: Default::default(),
            in_hand: AtomicU64::new(0),
            end: End::default(),
        }))
    }

    /// Ends the thread when everything so far is written, and waits for that: not longer than
    /// [`CLOSE_TIME_MAX`], because the output may be blocked.
    pub fn close(&self) {
        self.end.is_requested.store(true, Ordering::Release);
        self.bell.ring();
        let mut has_ended = self.end.has_ended.lock();
        if !*has_ended {
            self.end.changed.wait_for(&mut has_ended, CLOSE_TIME_MAX);
        }
    }

    fn is_closed(&self) -> bool {
        self.end.is_requested.load(Ordering::Acquire)
    }

    fn count_dropped(&self, dropped: Dropped, lines: u64) {
        self.dropped[dropped as usize].fetch_add(lines, Ordering::Relaxed);
    }

    /// Counts lines that a failure of the writer has lost.
    fn lose(&self, lines: &AtomicU64) {
        self.count_dropped(Dropped::NotWritten, lines.swap(0, Ordering::Relaxed));
    }

    /// Writes the metrics.
    pub fn expose(&self, out: &mut Exposition) {
        let written = self.written.load(Ordering::Relaxed);
        out.counter(
            "hotrow_access_log_lines_total",
            "Lines of the access log that were written.",
            [([], written)],
        );
        let dropped = DROPPED.iter().zip(&self.dropped);
        out.counter(
            "hotrow_access_log_dropped_total",
            "Lines of the access log that were lost.",
            dropped.map(|((_, cause), count)| ([("cause", *cause)], count.load(Ordering::Relaxed))),
        );
    }
}

/// Request line of a request, or the name and the keys of a command.
#[derive(Clone, Copy, Debug)]
pub struct RequestLine<'a> {
    /// Method, or name of the command.
    pub method: &'a [u8],
    /// Target as sent, or the keys.
    pub target: &'a [u8],
}

/// What a line says of a request and its answer.
#[derive(Debug)]
pub struct Entry<'a> {
    /// End of the request, by the wall clock.
    pub ended: SystemTime,
    /// End of the head to the answer; `None`: no head was read.
    pub took: Option<Duration>,
    /// The client.
    pub client: Peer,
    /// Name of the protocol.
    pub protocol: &'static str,
    /// `None`: no head was read.
    pub request: Option<RequestLine<'a>>,
    /// `None`: the path names none.
    pub collection: Option<&'a str>,
    /// Status of the answer.
    pub status: u16,
    /// Role of the cache in it.
    pub outcome: CacheOutcome,
    /// Bytes of the answer's body; `None`: unknown.
    pub bytes: Option<u64>,
    /// `None`: access is not configured.
    pub sender: Option<(&'a Names, Caller)>,
    /// The caller's trace, if it names one.
    pub trace_id: Option<TraceId>,
}

impl Entry<'_> {
    /// Describes a request that was refused before its head was read.
    pub fn without_head(client: Peer, protocol: &'static str, status: u16) -> Self {
        Self {
            ended: SystemTime::now(),
            took: None,
            client,
            protocol,
            request: None,
            collection: None,
            status,
            outcome: CacheOutcome::None,
            bytes: None,
            sender: None,
            trace_id: None,
        }
    }
}

/// The access log as one worker uses it.
#[derive(Debug)]
pub struct WorkerAccessLog {
    log: Arc<AccessLog>,
    worker: usize,
    sampler: Sampler,
    always: Allowance,
    /// Memory of the line that is being made.
    line: RefCell<Vec<u8>>,
}

impl WorkerAccessLog {
    /// Creates the log of a worker; `seed` chooses the sample.
    pub fn new(log: Arc<AccessLog>, worker: usize, seed: u64) -> Self {
        let sampler = Sampler::new(log.config.sample, seed);
        Self { log, worker, sampler, always: Allowance::default(), line: RefCell::default() }
    }

    /// Returns whether a request has a line.
    pub fn is_due(&self, status: u16, took: Duration, now: Nanos) -> bool {
        if self.sampler.takes() {
            return true;
        }
        let is_due = is_failed(status) || took >= self.log.config.slow;
        if is_due && !self.always.take(now) {
            self.log.count_dropped(Dropped::Rate, 1);
            return false;
        }
        is_due
    }

    /// Queues the line of a request.
    pub fn write(&self, entry: &Entry<'_>) {
        let Some(queue) = self.log.queues.get(self.worker) else { return };
        let mut line = self.line.borrow_mut();
        line.clear();
        let is_made = line::write(entry, self.log.config.has_ids, &mut line).is_ok();
        if is_made && queue.push(&line) {
            self.log.bell.ring();
        } else {
            self.log.count_dropped(Dropped::QueueFull, 1);
        }
    }
}

/// Returns whether an answer of this status is a failure. 404 and 412 are answers about the record.
fn is_failed(status: u16) -> bool {
    status >= 400 && !matches!(status, 404 | 412)
}

/// Random choice of a share of requests: a regular one could always miss the same of several
/// alternating clients.
#[derive(Debug)]
struct Sampler {
    /// Share of 2^64; `None`: all.
    threshold: Option<u64>,
    state: Cell<u64>,
}

impl Sampler {
    fn new(share: f64, seed: u64) -> Self {
        // Saturates.
        let threshold = (share < 1.0).then_some((share * 2.0_f64.powi(64)) as u64);
        Self { threshold, state: Cell::new(seed) }
    }

    fn takes(&self) -> bool {
        let Some(threshold) = self.threshold else { return true };
        let state = self.state.get().wrapping_add(random::STEP);
        self.state.set(state);
        random::mix(state) < threshold
    }
}

/// Number of lines that are left in the present second.
#[derive(Debug, Default)]
struct Allowance {
    second: Cell<u64>,
    taken: Cell<u32>,
}

impl Allowance {
    fn take(&self, now: Nanos) -> bool {
        let second = now.0 / 1_000_000_000;
        if self.second.replace(second) != second {
            self.taken.set(0);
        }
        let has_some = self.taken.get() < ALWAYS_PER_S_MAX;
        self.taken.set(self.taken.get().saturating_add(1));
        has_some
    }
}

#[cfg(test)]
mod tests;
