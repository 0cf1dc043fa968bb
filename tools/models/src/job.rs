//! The requests of a run: functions for each half of a request, and immediate counting of every
//! result.
//!
//! Reading order: [`Job`], [`Job::serve`] (a request on a thread of its own), [`Job::begin`] and
//! [`Job::end`] (its halves, for models that switch in between), [`Tally`], [`Job::checks`]
//! (verification of the work).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hotrow_measure::histogram::Histogram;

use super::results::Check;
use super::timeline::Timeline;
use super::work::{Expected, Pause, Response, Scale, text};
use hotrow_report::plot::LaneState;

/// Tallies; a thread locks one for some 20 ns per request.
const TALLIES: usize = 16;
/// Progress reports per run.
const PROGRESS_STEPS: u64 = 500;

/// Called with the number of finished requests.
pub(super) type Progress = Box<dyn Fn(u64) + Send + Sync>;

/// A request, with the time at which it was handed to a thread.
#[derive(Clone, Copy)]
pub(super) struct HandedRequest {
    pub(super) id: u64,
    pub(super) handed: Instant,
}

impl HandedRequest {
    pub(super) fn now(id: u64) -> Self {
        Self { id, handed: Instant::now() }
    }
}

/// The requests of a run.
pub(crate) struct Job {
    requests: u64,
    scale: Scale,
    text: Vec<u8>,
    /// One bit for each id.
    seen: Vec<AtomicU64>,
    repeated: AtomicU64,
    done: AtomicU64,
    tallies: Vec<Mutex<Tally>>,
    pub(super) timeline: Timeline,
    progress: Progress,
}

/// Totals of a set of requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) requests: u64,
    pub(super) yields: u64,
    pub(super) sleeps: u64,
    /// Requested sleep.
    pub(super) slept: Duration,
    /// Sleeps that ended too early.
    pub(super) short: u64,
    pub(super) letters: u64,
    pub(super) sum: f64,
    /// Time from hand-over to the first step, in ns.
    pub(super) queue: Histogram,
    /// Time from the first step to the last, sleep included, in ns.
    pub(super) processing: Histogram,
}

/// A request between its halves.
#[derive(Debug)]
pub(super) struct StartedRequest {
    id: u64,
    value: f64,
    pause: Pause,
    handed: Instant,
    began: Instant,
    slept: Option<Duration>,
    yielded: bool,
}

impl StartedRequest {
    /// Returns its pause.
    pub(super) fn pause(&self) -> Pause {
        self.pause
    }

    /// Records a sleep.
    pub(super) fn slept(&mut self, took: Duration) {
        self.slept = Some(took);
    }

    /// Records a yield.
    pub(super) fn yielded(&mut self) {
        self.yielded = true;
    }
}

impl Job {
    /// Creates a run of the ids 0 to `requests` − 1; run and timeline start now.
    pub(super) fn new(requests: u64, scale: Scale, window: Duration, progress: Progress) -> Self {
        let began = Instant::now();
        let words = usize::try_from(requests.div_ceil(64)).unwrap_or(usize::MAX);
        Self {
            requests,
            scale,
            text: text(),
            seen: (0..words).map(|_| AtomicU64::new(0)).collect(),
            repeated: AtomicU64::new(0),
            done: AtomicU64::new(0),
            tallies: (0..TALLIES).map(|_| Mutex::default()).collect(),
            timeline: Timeline::new(began, window),
            progress,
        }
    }

    pub(super) fn requests(&self) -> u64 {
        self.requests
    }

    /// Returns the number of finished requests.
    pub(super) fn done(&self) -> u64 {
        self.done.load(Relaxed)
    }

    /// Serves a whole request on the thread of `lane`, which blocks while the request sleeps;
    /// `sleep` is the sleep function.
    pub(super) fn serve(
        &self,
        lane: usize,
        HandedRequest { id, handed }: HandedRequest,
        response: &mut Response,
        sleep: impl FnOnce(Duration),
    ) {
        let mut started = self.begin(id, handed, response);
        self.timeline.enter(lane, LaneState::Running, started.began);
        match started.pause() {
            Pause::None => {}
            Pause::Yield => {
                std::thread::yield_now();
                started.yielded();
            }
            Pause::Sleep(length) => {
                let from = Instant::now();
                self.timeline.enter(lane, LaneState::Sleeping, from);
                sleep(length);
                let to = Instant::now();
                self.timeline.enter(lane, LaneState::Running, to);
                started.slept(to - from);
            }
        }
        self.end(started, response);
    }

    /// Runs the first half of a request that was handed over at `handed`.
    pub(super) fn begin(
        &self,
        id: u64,
        handed: Instant,
        response: &mut Response,
    ) -> StartedRequest {
        let began = Instant::now();
        let value = response.begin(id);
        StartedRequest {
            id,
            value,
            pause: self.scale.pause(id),
            handed,
            began,
            slept: None,
            yielded: false,
        }
    }

    /// Runs the second half and counts the request.
    #[allow(clippy::needless_pass_by_value, reason = "a request ends once")]
    pub(super) fn end(&self, started: StartedRequest, response: &mut Response) {
        let letters = response.end(&self.text);
        let ended = Instant::now();
        // Concurrent ids rarely share a tally, so threads seldom contend for a lock.
        let tally = &self.tallies[started.id as usize % TALLIES];
        tally.lock().unwrap_or_else(PoisonError::into_inner).add(&started, letters, ended);
        self.note(started.id);
    }

    /// Marks the id and reports progress.
    fn note(&self, id: u64) {
        let bit = 1_u64 << (id % 64);
        let known = self
            .seen
            .get((id / 64) as usize)
            .is_none_or(|word| word.fetch_or(bit, Relaxed) & bit != 0);
        if known {
            self.repeated.fetch_add(1, Relaxed);
        }
        let done = self.done.fetch_add(1, Relaxed) + 1;
        if done.is_multiple_of((self.requests / PROGRESS_STEPS).max(1)) {
            (self.progress)(done);
        }
    }

    /// Returns the sum of all tallies.
    pub(super) fn tally(&self) -> Tally {
        let mut all = Tally::default();
        for tally in &self.tallies {
            all.merge(&tally.lock().unwrap_or_else(PoisonError::into_inner));
        }
        all
    }

    /// Compares the work done with the work expected.
    pub(super) fn checks(&self) -> Vec<Check> {
        let (found, want) = (self.tally(), Expected::of(self.requests, self.scale));
        let seen: u32 = self.seen.iter().map(|word| word.load(Relaxed).count_ones()).sum();
        let count =
            |what: &str, found: u64, want: u64| Check::exact(what, found as f64, want as f64);
        vec![
            count("requests", found.requests, want.requests),
            count("distinct ids", u64::from(seen), want.requests),
            count("repeated ids", self.repeated.load(Relaxed), 0),
            count("yields", found.yields, want.yields),
            count("sleeps", found.sleeps, want.sleeps),
            Check::exact(
                "ms of sleep",
                found.slept.as_secs_f64() * 1e3,
                want.slept.as_secs_f64() * 1e3,
            ),
            count("sleeps that were too short", found.short, 0),
            count("letters turned", found.letters, want.letters),
            Check::within("sum of r", found.sum, want.sum, want.sum_tolerance),
        ]
    }
}

impl Tally {
    fn add(&mut self, started: &StartedRequest, letters: u64, ended: Instant) {
        self.requests += 1;
        self.yields += u64::from(started.yielded);
        if let (Pause::Sleep(length), Some(took)) = (started.pause, started.slept) {
            self.sleeps += 1;
            self.slept += length;
            self.short += u64::from(took < length);
        }
        self.letters += letters;
        self.sum += started.value;
        self.queue.record((started.began - started.handed).as_nanos() as u64);
        self.processing.record((ended - started.began).as_nanos() as u64);
    }

    fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.yields += other.yields;
        self.sleeps += other.sleeps;
        self.slept += other.slept;
        self.short += other.short;
        self.letters += other.letters;
        self.sum += other.sum;
        self.queue.merge(&other.queue);
        self.processing.merge(&other.processing);
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use super::*;

    fn wrong(job: &Job) -> Vec<String> {
        job.checks().into_iter().filter(|check| !check.right).map(|check| check.what).collect()
    }

    /// Serves without a real sleep.
    fn serve(job: &Job, id: u64) {
        let mut response = Response::default();
        let mut started = job.begin(id, Instant::now(), &mut response);
        match started.pause() {
            Pause::None => {}
            Pause::Yield => started.yielded(),
            Pause::Sleep(length) => started.slept(length),
        }
        job.end(started, &mut response);
    }

    fn job(requests: u64) -> Job {
        Job::new(requests, Scale::FULL, Duration::ZERO, Box::new(|_| {}))
    }

    #[test]
    fn completed_work_passes_every_check() {
        let job = job(1_200);
        (0..1_200).rev().for_each(|id| serve(&job, id));
        assert_eq!(wrong(&job), Vec::<String>::new());
        assert_eq!((job.done(), job.tally().processing.count()), (1_200, 1_200));
    }

    #[test]
    fn every_kind_of_missing_work_is_detected() {
        let lost = job(1_200);
        (0..1_199).for_each(|id| serve(&lost, id));
        assert_eq!(wrong(&lost), ["requests", "distinct ids", "letters turned", "sum of r"]);
        let twice = job(1_200);
        (0..1_199).chain([1]).for_each(|id| serve(&twice, id));
        assert_eq!(wrong(&twice), ["distinct ids", "repeated ids", "sum of r"]);
        let awake = job(1);
        let mut response = Response::default();
        let started = awake.begin(0, Instant::now(), &mut response);
        awake.end(started, &mut response);
        assert_eq!(wrong(&awake), ["sleeps", "ms of sleep"]);
        let short = job(1);
        let mut started = short.begin(0, Instant::now(), &mut response);
        started.slept(Duration::from_millis(999));
        short.end(started, &mut response);
        assert_eq!(wrong(&short), ["sleeps that were too short"]);
        let hasty = job(3);
        for id in 0..3 {
            let mut started = hasty.begin(id, Instant::now(), &mut response);
            started.slept(Duration::from_secs(1));
            hasty.end(started, &mut response);
        }
        assert_eq!(wrong(&hasty), ["yields"]);
    }
}
