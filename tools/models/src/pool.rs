//! A pool of threads on one bounded queue (W17).

use std::sync::Arc;
use std::thread::{self, Builder};
use std::time::Instant;

use super::floor::FloorRule;
use super::job::{HandedRequest, Job};
use super::queue::Queue;
use super::raw::STACK_BYTES;
use super::work::Response;
use super::{Model, QUEUE_CAPACITY, ThreadRefused};
use hotrow_report::plot::LaneState;

pub(super) struct Pool {
    pub(super) name: &'static str,
    pub(super) threads: usize,
}

impl Model for Pool {
    fn name(&self) -> String {
        format!("pool-{}", self.name)
    }

    fn workload(&self) -> &'static str {
        "W17"
    }

    fn design(&self) -> [&'static str; 2] {
        [
            "A fixed number of threads take requests from one bounded queue.",
            "A request that sleeps keeps its thread: the sum of all sleeps / threads is the floor.",
        ]
    }

    fn explanation(&self) -> [&'static str; 3] {
        [
            "A thread that sleeps is replaced by another as long as there is one: sleep is shared \
             out among the threads.",
            "With few threads the sleeps still rule (their sum / threads); with many, the work and \
             the longest sleep do.",
            "All threads meet at one queue: each hand-over locks it, and wakes a thread when one \
             waits.",
        ]
    }

    fn threads(&self, _requests: u64) -> u64 {
        self.threads as u64
    }

    fn floor_rule(&self, _requests: u64) -> FloorRule {
        FloorRule::Threads(self.threads as u64)
    }

    fn run(&self, job: &Arc<Job>) -> Result<(), ThreadRefused> {
        let queue = Queue::new(QUEUE_CAPACITY);
        thread::scope(|scope| {
            let (_closing, queue) = (Closing(&queue), &queue);
            for lane in 0..self.threads {
                let serve = move || serve(lane, job, queue);
                let started = Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, serve);
                started.map_err(|error| ThreadRefused::now(lane as u64, &error))?;
            }
            hand_over(job, queue);
            Ok(())
        })
    }
}

/// Closes the queue when dropped, so that waiting threads end however the scope ends.
pub(super) struct Closing<'a>(pub(super) &'a Queue<HandedRequest>);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Puts all requests into the queue.
pub(super) fn hand_over(job: &Job, queue: &Queue<HandedRequest>) {
    for id in 0..job.requests() {
        if queue.push(HandedRequest::now(id)).is_err() {
            // Closed: no thread takes requests any more, and the checks report it.
            return;
        }
    }
}

fn serve(lane: usize, job: &Job, queue: &Queue<HandedRequest>) {
    let mut response = Response::default();
    job.timeline.enter(lane, LaneState::Waiting, Instant::now());
    while let Some(request) = queue.pop() {
        job.serve(lane, request, &mut response, thread::sleep);
        job.timeline.enter(lane, LaneState::Waiting, Instant::now());
    }
}
