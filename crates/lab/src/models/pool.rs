//! A pool of threads on one bounded queue (W17).

use std::sync::Arc;
use std::thread::{self, Builder};
use std::time::Instant;

use super::floor::Bound;
use super::job::Job;
use super::queue::Queue;
use super::timeline::State;
use super::work::Response;
use super::{Model, QUEUE_CAPACITY, STACK_BYTES, Stopped};

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

    fn about(&self) -> [&'static str; 2] {
        [
            "A fixed number of threads take requests from one bounded queue.",
            "A request that sleeps keeps its thread: the sum of all sleeps / threads is the floor.",
        ]
    }

    fn why(&self) -> [&'static str; 3] {
        [
            "A thread that sleeps is replaced by another as long as there is one: sleep is shared out among the threads.",
            "With few threads the sleeps still rule (their sum / threads); with many, the work and the longest sleep do.",
            "All threads meet at one queue: each hand-over locks it, and wakes a thread when one waits.",
        ]
    }

    fn threads(&self, _requests: u64) -> u64 {
        self.threads as u64
    }

    fn bound(&self, _requests: u64) -> Bound {
        Bound::Threads(self.threads as u64)
    }

    fn run(&self, job: &Arc<Job>) -> Result<(), Stopped> {
        let queue = Queue::new(QUEUE_CAPACITY);
        thread::scope(|scope| {
            let (_closing, queue) = (Closing(&queue), &queue);
            for place in 0..self.threads {
                let serve = move || serve(place, job, queue);
                let started = Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, serve);
                started.map_err(|error| Stopped::now(place as u64, &error))?;
            }
            hand_over(job, queue);
            Ok(())
        })
    }
}

/// Closes the queue at its end, so that threads that wait for work end too, however the scope is left.
pub(super) struct Closing<'a>(pub(super) &'a Queue<(u64, Instant)>);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Puts all requests into the queue.
pub(super) fn hand_over(job: &Job, queue: &Queue<(u64, Instant)>) {
    for id in 0..job.requests() {
        if queue.push((id, Instant::now())).is_err() {
            // Closed: nobody takes requests any more, and the checks will say so.
            return;
        }
    }
}

fn serve(place: usize, job: &Job, queue: &Queue<(u64, Instant)>) {
    let mut response = Response::default();
    job.timeline.enter(place, State::Waiting, Instant::now());
    while let Some(request) = queue.pop() {
        job.serve(place, request, &mut response, thread::sleep);
        job.timeline.enter(place, State::Waiting, Instant::now());
    }
}
