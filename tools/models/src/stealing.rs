//! Work stealing, not among the published models: each thread has its own deque of ranges of ids;
//! an idle thread steals the largest range of another.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use crossbeam_deque::{Steal, Stealer, Worker};

use super::floor::FloorRule;
use super::job::{HandedRequest, Job};
use super::raw::STACK_BYTES;
use super::work::Response;
use super::{Model, ThreadRefused};
use hotrow_report::plot::LaneState;

/// Smallest range in requests; ranges are halved down to it. A deque holds at most as many ranges
/// as a 64-bit number can be halved.
const GRAIN: u64 = 16;
/// Sleep of a thread that found nothing to steal; the first attempts only yield.
const IDLE_SLEEP: Duration = Duration::from_micros(200);
/// Failed attempts before a thread sleeps.
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

    fn design(&self) -> [&'static str; 2] {
        [
            "Four threads per core, each with a deque of its own; an idle thread steals from \
             another.",
            "No common queue to meet at; but sleep still takes a thread, as in the plain pool.",
        ]
    }

    fn explanation(&self) -> [&'static str; 3] {
        [
            "Threads meet only when one steals, a few times per sleep, so handing work out costs \
             next to nothing.",
            "Ranges of a sleeping thread are stolen by running threads, but for the last few \
             requests of its range.",
            "A thread that sleeps is still a thread that does not run: stealing hides no more \
             sleep than there are threads.",
        ]
    }

    fn threads(&self, _requests: u64) -> u64 {
        self.threads as u64
    }

    fn floor_rule(&self, _requests: u64) -> FloorRule {
        FloorRule::AnyOrder(self.threads as u64)
    }

    fn run(&self, job: &Arc<Job>) -> Result<(), ThreadRefused> {
        let deques: Vec<Worker<Range<u64>>> =
            (0..self.threads).map(|_| Worker::new_lifo()).collect();
        let stealers: Vec<Stealer<Range<u64>>> = deques.iter().map(Worker::stealer).collect();
        if let Some(first) = deques.first() {
            first.push(0..job.requests());
        }
        let left = AtomicU64::new(job.requests());
        thread::scope(|scope| {
            for (lane, own) in deques.into_iter().enumerate() {
                let (stealers, left) = (&stealers, &left);
                let work = move || StealingThread { lane, own, stealers, left }.work(job);
                let started = Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work);
                started.map_err(|error| {
                    // The other threads must not wait for the missing thread's work.
                    left.store(0, Ordering::SeqCst);
                    ThreadRefused::now(lane as u64, &error)
                })?;
            }
            Ok(())
        })
    }
}

/// A thread and its deque.
struct StealingThread<'a> {
    lane: usize,
    own: Worker<Range<u64>>,
    stealers: &'a [Stealer<Range<u64>>],
    /// Unfinished requests.
    left: &'a AtomicU64,
}

impl StealingThread<'_> {
    fn work(&self, job: &Job) {
        let mut response = Response::default();
        let mut looks = 0;
        job.timeline.enter(self.lane, LaneState::Waiting, Instant::now());
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
            // This thread owns the whole part from here on: later requests wait for earlier ones.
            let handed = Instant::now();
            for id in part {
                job.serve(self.lane, HandedRequest { id, handed }, &mut response, thread::sleep);
            }
            // In an abandoned run this is zero already.
            let _ = self
                .left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(served));
            job.timeline.enter(self.lane, LaneState::Waiting, Instant::now());
        }
    }

    /// Splits off the first part of a range. The other halves go into the deque, the smallest last:
    /// it is next here, and the largest is stolen first.
    fn cut(&self, mut range: Range<u64>) -> Range<u64> {
        while range.end - range.start > GRAIN {
            let middle = range.start + (range.end - range.start) / 2;
            self.own.push(middle..range.end);
            range.end = middle;
        }
        range
    }

    /// Steals a range, starting from the neighbour, so that thieves spread over the threads.
    fn steal(&self) -> Option<Range<u64>> {
        let others = (1..self.stealers.len())
            .map(|step| &self.stealers[(self.lane + step) % self.stealers.len()]);
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
