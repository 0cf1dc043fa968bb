//! Work stealing, beyond the original: each thread has its own deque of ranges of ids; who has none left steals the largest
//! that another has.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use crossbeam_deque::{Steal, Stealer, Worker};

use super::floor::Bound;
use super::job::Job;
use super::timeline::State;
use super::work::Response;
use super::{Model, STACK_BYTES, Stopped};

/// Ranges are cut in halves down to so many requests. A deque never holds more ranges than a number of 64 bits can be halved.
const GRAIN: u64 = 16;
/// Sleep of a thread that found nothing to steal; the first few times it only lets others go first.
const IDLE_SLEEP: Duration = Duration::from_micros(200);
/// Looks in vain before a thread sleeps.
const IDLE_LOOKS: u32 = 64;

pub(super) struct Stealing {
    pub(super) threads: usize,
}

impl Model for Stealing {
    fn name(&self) -> String {
        "stealing".to_owned()
    }

    fn workload(&self) -> &'static str {
        ""
    }

    fn about(&self) -> [&'static str; 2] {
        [
            "Four threads per core, each with a deque of its own; who has no work left steals from another.",
            "No common queue to meet at; but sleep still takes a thread, as in the plain pool.",
        ]
    }

    fn why(&self) -> [&'static str; 3] {
        [
            "Threads meet only when one steals, a few times per sleep, so handing work out costs next to nothing.",
            "What a sleeping thread had before it is stolen by those that are awake, but for the last few requests of its range.",
            "A thread that sleeps is still a thread that does not run: stealing hides no more sleep than there are threads.",
        ]
    }

    fn threads(&self, _requests: u64) -> u64 {
        self.threads as u64
    }

    fn bound(&self, _requests: u64) -> Bound {
        Bound::AnyOrder(self.threads as u64)
    }

    fn run(&self, job: &Arc<Job>) -> Result<(), Stopped> {
        let deques: Vec<Worker<Range<u64>>> = (0..self.threads).map(|_| Worker::new_lifo()).collect();
        let stealers: Vec<Stealer<Range<u64>>> = deques.iter().map(Worker::stealer).collect();
        if let Some(first) = deques.first() {
            first.push(0..job.requests());
        }
        let left = AtomicU64::new(job.requests());
        thread::scope(|scope| {
            for (place, own) in deques.into_iter().enumerate() {
                let (stealers, left) = (&stealers, &left);
                let work = move || Thief { place, own, stealers, left }.work(job);
                let started = Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work);
                started.map_err(|error| {
                    // The others must not wait for what the one that is missing would have done.
                    left.store(0, Ordering::SeqCst);
                    Stopped::now(place as u64, &error)
                })?;
            }
            Ok(())
        })
    }
}

/// A thread and its deque.
struct Thief<'a> {
    place: usize,
    own: Worker<Range<u64>>,
    stealers: &'a [Stealer<Range<u64>>],
    /// Requests that are not done.
    left: &'a AtomicU64,
}

impl Thief<'_> {
    fn work(&self, job: &Job) {
        let mut response = Response::default();
        let mut looks = 0;
        job.timeline.enter(self.place, State::Waiting, Instant::now());
        while self.left.load(Ordering::SeqCst) > 0 {
            let Some(range) = self.own.pop().or_else(|| self.steal()) else {
                looks += 1;
                if looks < IDLE_LOOKS {
                    thread::yield_now()
                } else {
                    thread::sleep(IDLE_SLEEP)
                }
                continue;
            };
            looks = 0;
            let part = self.cut(range);
            let served = part.end - part.start;
            // All of a part are in this thread's hands from here on: the later ones wait for the earlier.
            let handed = Instant::now();
            for id in part {
                job.serve(self.place, (id, handed), &mut response, thread::sleep);
            }
            // A run that was given up has nothing left already.
            let _ = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(served));
            job.timeline.enter(self.place, State::Waiting, Instant::now());
        }
    }

    /// The first part of a range; the other halves go into the deque, the smallest last, so that it is next here and the largest
    /// is what a thief finds.
    fn cut(&self, mut range: Range<u64>) -> Range<u64> {
        while range.end - range.start > GRAIN {
            let middle = range.start + (range.end - range.start) / 2;
            self.own.push(middle..range.end);
            range.end = middle;
        }
        range
    }

    /// A range of another thread, looked for from the neighbour on, so that not all rob the same one.
    fn steal(&self) -> Option<Range<u64>> {
        let others = (1..self.stealers.len()).map(|step| &self.stealers[(self.place + step) % self.stealers.len()]);
        for other in others {
            loop {
                match other.steal() {
                    Steal::Success(range) => return Some(range),
                    Steal::Empty => break,
                    Steal::Retry => {}
                }
            }
        }
        None
    }
}
