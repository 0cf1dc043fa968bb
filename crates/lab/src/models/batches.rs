//! Batches of threads (W16): a thread for each request of a batch, and the next batch when the last thread of this one has ended.

use std::sync::Arc;
use std::thread::{self, Builder};
use std::time::Instant;

use super::floor::Bound;
use super::job::Job;
use super::timeline::State;
use super::work::Response;
use super::{Model, STACK_BYTES, Stopped};

pub(super) struct Batches {
    pub(super) name: &'static str,
    pub(super) size: u64,
}

impl Model for Batches {
    fn name(&self) -> String {
        format!("batches-{}", self.name)
    }

    fn workload(&self) -> &'static str {
        "W16"
    }

    fn about(&self) -> [&'static str; 2] {
        [
            "A thread for each request of a batch; the next batch begins when all of this one have ended.",
            "Every batch waits for its slowest request, and every request pays for a thread.",
        ]
    }

    fn why(&self) -> [&'static str; 3] {
        [
            "Every batch takes as long as its slowest request: all threads that are done wait for the one that sleeps.",
            "Requests that sleep are 500 ids apart, so no two of them share a batch, and none of their sleep is saved.",
            "On top of it comes a thread per request, started and joined: more work than the request itself.",
        ]
    }

    fn threads(&self, requests: u64) -> u64 {
        self.size.min(requests)
    }

    fn bound(&self, _requests: u64) -> Bound {
        Bound::Batches(self.size)
    }

    fn run(&self, job: &Arc<Job>) -> Result<(), Stopped> {
        for first in (0..job.requests()).step_by(usize::try_from(self.size).unwrap_or(usize::MAX)) {
            let batch = first..job.requests().min(first + self.size);
            // The scope ends when its last thread has.
            thread::scope(|scope| {
                for (place, id) in batch.enumerate() {
                    let handed = Instant::now();
                    let serve = move || {
                        job.serve(place, (id, handed), &mut Response::default(), thread::sleep);
                        job.timeline.enter(place, State::Waiting, Instant::now());
                    };
                    let started = Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, serve);
                    started.map_err(|error| Stopped::now(id, &error))?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}
