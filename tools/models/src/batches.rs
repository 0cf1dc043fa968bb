//! Batches of threads (W16): a thread per request of a batch; the next batch starts when the last
//! thread has ended.

use std::sync::Arc;
use std::thread::{self, Builder};
use std::time::Instant;

use super::floor::FloorRule;
use super::job::{HandedRequest, Job};
use super::raw::STACK_BYTES;
use super::work::Response;
use super::{Model, ThreadRefused};
use hotrow_report::plot::LaneState;

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

    fn design(&self) -> [&'static str; 2] {
        [
            "A thread for each request of a batch; the next batch begins when all of this one have \
             ended.",
            "Every batch waits for its slowest request, and every request pays for a thread.",
        ]
    }

    fn explanation(&self) -> [&'static str; 3] {
        [
            "Every batch takes as long as its slowest request: all threads that are done wait for \
             the one that sleeps.",
            "Requests that sleep are 500 ids apart, so no two of them share a batch, and none of \
             their sleep is saved.",
            "On top of it comes a thread per request, started and joined: more work than the \
             request itself.",
        ]
    }

    fn threads(&self, requests: u64) -> u64 {
        self.size.min(requests)
    }

    fn floor_rule(&self, _requests: u64) -> FloorRule {
        FloorRule::Batches(self.size)
    }

    fn run(&self, job: &Arc<Job>) -> Result<(), ThreadRefused> {
        for first in (0..job.requests()).step_by(usize::try_from(self.size).unwrap_or(usize::MAX)) {
            let batch = first..job.requests().min(first + self.size);
            // The scope ends with its last thread.
            thread::scope(|scope| {
                for (lane, id) in batch.enumerate() {
                    let request = HandedRequest::now(id);
                    let serve = move || {
                        job.serve(lane, request, &mut Response::default(), thread::sleep);
                        job.timeline.enter(lane, LaneState::Waiting, Instant::now());
                    };
                    let started = Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, serve);
                    started.map_err(|error| ThreadRefused::now(id, &error))?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}
