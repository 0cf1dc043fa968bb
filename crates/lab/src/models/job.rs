//! What a model is given: the requests, a way to do each half of one, and a place where every result is counted at once.
//!
//! Reading order: [`Job`], [`Job::serve`] (a request on a thread of its own), [`Job::begin`] and [`Job::end`] (its halves, for
//! models that do something else in between), [`Tally`], [`Job::checks`] (was the work done?).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hotrow_measure::histogram::Histogram;

use super::results::Check;
use super::timeline::{State, Timeline};
use super::work::{Expected, Pause, Response, Scale, text};

/// Places where results are counted; a thread locks one for some 20 ns per request.
const TALLIES: usize = 16;
/// How often progress is told in a run.
const PROGRESS_STEPS: u64 = 500;

/// Told with the number of requests that are done.
pub(super) type Progress = Box<dyn Fn(u64) + Send + Sync>;

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

/// What came of requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) requests: u64,
    pub(super) yields: u64,
    pub(super) sleeps: u64,
    /// What was to be slept.
    pub(super) slept: Duration,
    /// Sleeps that ended before their time.
    pub(super) short: u64,
    pub(super) letters: u64,
    pub(super) sum: f64,
    /// From being handed over to the first step, in ns.
    pub(super) queue: Histogram,
    /// From the first step to the last, in ns; sleep included.
    pub(super) processing: Histogram,
}

/// A request between its halves.
#[derive(Debug)]
pub(super) struct Begun {
    id: u64,
    value: f64,
    pause: Pause,
    handed: Instant,
    began: Instant,
    slept: Option<Duration>,
    yielded: bool,
}

impl Begun {
    /// What it does before it ends.
    pub(super) fn pause(&self) -> Pause {
        self.pause
    }

    /// It slept, so long.
    pub(super) fn slept(&mut self, took: Duration) {
        self.slept = Some(took);
    }

    /// It let others go first.
    pub(super) fn yielded(&mut self) {
        self.yielded = true;
    }
}

impl Job {
    /// A run of the ids 0 to `requests` − 1; it begins now, and so does the window of its timeline.
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

    /// Requests that are done.
    pub(super) fn done(&self) -> u64 {
        self.done.load(Relaxed)
    }

    /// A whole request on the thread at `place`, which stands still while the request sleeps; `sleep` is how.
    pub(super) fn serve(
        &self,
        place: usize,
        (id, handed): (u64, Instant),
        response: &mut Response,
        sleep: impl FnOnce(Duration),
    ) {
        let mut begun = self.begin(id, handed, response);
        self.timeline.enter(place, State::Running, begun.began);
        match begun.pause() {
            Pause::None => {}
            Pause::Yield => {
                std::thread::yield_now();
                begun.yielded();
            }
            Pause::Sleep(length) => {
                let from = Instant::now();
                self.timeline.enter(place, State::Sleeping, from);
                sleep(length);
                let to = Instant::now();
                self.timeline.enter(place, State::Running, to);
                begun.slept(to - from);
            }
        }
        self.end(begun, response);
    }

    /// The first half of a request that was handed over at `handed`.
    pub(super) fn begin(&self, id: u64, handed: Instant, response: &mut Response) -> Begun {
        let began = Instant::now();
        let value = response.begin(id);
        Begun { id, value, pause: self.scale.pause(id), handed, began, slept: None, yielded: false }
    }

    /// The second half; the request is counted.
    #[allow(clippy::needless_pass_by_value, reason = "a request ends once")]
    pub(super) fn end(&self, begun: Begun, response: &mut Response) {
        let letters = response.end(&self.text);
        let ended = Instant::now();
        // Neighbours in time are rarely neighbours in place: two threads seldom meet at a lock.
        let tally = &self.tallies[begun.id as usize % TALLIES];
        tally.lock().unwrap_or_else(PoisonError::into_inner).add(&begun, letters, ended);
        self.note(begun.id);
    }

    /// Marks the id, and tells how far the run is.
    fn note(&self, id: u64) {
        let bit = 1_u64 << (id % 64);
        let known = self.seen.get((id / 64) as usize).is_none_or(|word| word.fetch_or(bit, Relaxed) & bit != 0);
        if known {
            self.repeated.fetch_add(1, Relaxed);
        }
        let done = self.done.fetch_add(1, Relaxed) + 1;
        if done.is_multiple_of((self.requests / PROGRESS_STEPS).max(1)) {
            (self.progress)(done);
        }
    }

    /// All results of until now.
    pub(super) fn tally(&self) -> Tally {
        let mut all = Tally::default();
        for tally in &self.tallies {
            all.merge(&tally.lock().unwrap_or_else(PoisonError::into_inner));
        }
        all
    }

    /// Compares what was done with what was to be done.
    pub(super) fn checks(&self) -> Vec<Check> {
        let (found, want) = (self.tally(), Expected::of(self.requests, self.scale));
        let seen: u32 = self.seen.iter().map(|word| word.load(Relaxed).count_ones()).sum();
        let count = |what: &str, found: u64, want: u64| Check::exact(what, found as f64, want as f64);
        vec![
            count("requests", found.requests, want.requests),
            count("ids that came", u64::from(seen), want.requests),
            count("ids that came twice", self.repeated.load(Relaxed), 0),
            count("yields", found.yields, want.yields),
            count("sleeps", found.sleeps, want.sleeps),
            Check::exact("ms of sleep", found.slept.as_secs_f64() * 1e3, want.slept.as_secs_f64() * 1e3),
            count("sleeps that were too short", found.short, 0),
            count("letters turned", found.letters, want.letters),
            Check::within("sum of r", found.sum, want.sum, want.sum_tolerance),
        ]
    }
}

impl Tally {
    fn add(&mut self, begun: &Begun, letters: u64, ended: Instant) {
        self.requests += 1;
        self.yields += u64::from(begun.yielded);
        if let (Pause::Sleep(length), Some(took)) = (begun.pause, begun.slept) {
            self.sleeps += 1;
            self.slept += length;
            self.short += u64::from(took < length);
        }
        self.letters += letters;
        self.sum += begun.value;
        self.queue.record((begun.began - begun.handed).as_nanos() as u64);
        self.processing.record((ended - begun.began).as_nanos() as u64);
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

    /// Serves without sleeping in earnest.
    fn serve(job: &Job, id: u64) {
        let mut response = Response::default();
        let mut begun = job.begin(id, Instant::now(), &mut response);
        match begun.pause() {
            Pause::None => {}
            Pause::Yield => begun.yielded(),
            Pause::Sleep(length) => begun.slept(length),
        }
        job.end(begun, &mut response);
    }

    fn job(requests: u64) -> Job {
        Job::new(requests, Scale::FULL, Duration::ZERO, Box::new(|_| {}))
    }

    #[test]
    fn work_that_was_done_passes_every_check() {
        let job = job(1_200);
        (0..1_200).rev().for_each(|id| serve(&job, id));
        assert_eq!(wrong(&job), Vec::<String>::new());
        assert_eq!((job.done(), job.tally().processing.count()), (1_200, 1_200));
    }

    #[test]
    fn every_way_to_cheat_is_found() {
        let lost = job(1_200);
        (0..1_199).for_each(|id| serve(&lost, id));
        assert_eq!(wrong(&lost), ["requests", "ids that came", "letters turned", "sum of r"]);
        let twice = job(1_200);
        (0..1_199).chain([1]).for_each(|id| serve(&twice, id));
        assert_eq!(wrong(&twice), ["ids that came", "ids that came twice", "sum of r"]);
        let awake = job(1);
        let mut response = Response::default();
        let begun = awake.begin(0, Instant::now(), &mut response);
        awake.end(begun, &mut response);
        assert_eq!(wrong(&awake), ["sleeps", "ms of sleep"]);
        let short = job(1);
        let mut begun = short.begin(0, Instant::now(), &mut response);
        begun.slept(Duration::from_millis(999));
        short.end(begun, &mut response);
        assert_eq!(wrong(&short), ["sleeps that were too short"]);
        let hasty = job(3);
        for id in 0..3 {
            let mut begun = hasty.begin(id, Instant::now(), &mut response);
            begun.slept(Duration::from_secs(1));
            hasty.end(begun, &mut response);
        }
        assert_eq!(wrong(&hasty), ["yields"]);
    }
}
