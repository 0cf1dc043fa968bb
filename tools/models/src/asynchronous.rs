//! Async, not among the published models: a task per request on a runtime with one thread per core.
//! A sleeping task takes a timer and its state, but no thread.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tokio::runtime::Builder;
use tokio::task::JoinSet;

use super::floor::FloorRule;
use super::job::Job;
use super::work::{Pause, Response};
use super::{Model, ThreadRefused, raw};
use hotrow_report::plot::LaneState;

/// Tasks at a time per core: more than sleep at full speed, and few enough that their responses
/// stay in the CPU caches.
const TASKS_PER_CORE: usize = 32;

/// Stack of tokio's threads, in bytes.
const RUNTIME_STACK_BYTES: usize = 2 << 20;

pub(super) struct Async {
    pub(super) cores: usize,
}

thread_local! {
    /// Number of this thread in the runtime.
    static LANE: Cell<usize> = const { Cell::new(usize::MAX) };
}

impl Model for Async {
    fn name(&self) -> String {
        "async".to_owned()
    }

    fn workload(&self) -> &'static str {
        ""
    }

    fn design(&self) -> [&'static str; 2] {
        [
            "A task for each request, at most 32 per core at a time, on one thread per core \
             (tokio).",
            "A request that sleeps takes a timer and a few kilobytes, no thread: the longest chain \
             is the floor.",
        ]
    }

    fn explanation(&self) -> [&'static str; 3] {
        [
            "A request that sleeps leaves its thread to the next one, so two dozen sleeps run \
             beside each other and beside the work.",
            "A yield moves the task to the end of a queue in the program, not to go through the \
             kernel's scheduler.",
            "What remains is the work on all cores and the last long sleep, which no model can \
             shorten.",
        ]
    }

    fn threads(&self, _requests: u64) -> u64 {
        self.cores as u64
    }

    fn floor_rule(&self, _requests: u64) -> FloorRule {
        FloorRule::Free(self.cores as u64)
    }

    fn run(&self, job: &Arc<Job>) -> Result<(), ThreadRefused> {
        // tokio panics when it cannot start its threads, without naming the limit.
        raw::hold_threads(self.threads(job.requests()), RUNTIME_STACK_BYTES, || ())
            .map_err(|(started, error)| ThreadRefused::now(started, &error))?;
        let mut builder = Builder::new_multi_thread();
        let (started, starts, parks, wakes) =
            (AtomicUsize::new(0), job.clone(), job.clone(), job.clone());
        builder.worker_threads(self.cores).thread_stack_size(RUNTIME_STACK_BYTES).enable_time();
        builder.on_thread_start(move || {
            LANE.set(started.fetch_add(1, Ordering::Relaxed));
            starts.timeline.enter(LANE.get(), LaneState::Running, Instant::now());
        });
        builder.on_thread_park(move || {
            parks.timeline.enter(LANE.get(), LaneState::Waiting, Instant::now())
        });
        builder.on_thread_unpark(move || {
            wakes.timeline.enter(LANE.get(), LaneState::Running, Instant::now())
        });
        let runtime = builder.build().map_err(|error| ThreadRefused::now(0, &error))?;
        // As a task, because a task spawns tasks without a lock.
        let dealing = runtime.spawn(deal(job.clone(), self.cores * TASKS_PER_CORE));
        // A panic in a task leaves requests undone, which the checks detect.
        let _ = runtime.block_on(dealing);
        Ok(())
    }
}

/// Starts all tasks. At the limit it waits for one to end and reuses its response.
async fn deal(job: Arc<Job>, tasks_max: usize) {
    let mut tasks = JoinSet::new();
    for id in 0..job.requests() {
        let ended = if tasks.len() == tasks_max { tasks.join_next().await } else { None };
        // A task that panicked took its response with it.
        let response = ended.and_then(Result::ok).unwrap_or_default();
        tasks.spawn(serve(job.clone(), id, Instant::now(), response));
    }
    while tasks.join_next().await.is_some() {}
}

async fn serve(job: Arc<Job>, id: u64, handed: Instant, mut response: Response) -> Response {
    let mut started = job.begin(id, handed, &mut response);
    match started.pause() {
        Pause::None => {}
        Pause::Yield => {
            tokio::task::yield_now().await;
            started.yielded();
        }
        Pause::Sleep(length) => {
            let from = Instant::now();
            tokio::time::sleep(length).await;
            let to = Instant::now();
            job.timeline.slept(id, from, to);
            started.slept(to - from);
        }
    }
    job.end(started, &mut response);
    response
}
