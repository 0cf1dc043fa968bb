//! Async, beyond the original: a task for each request on a runtime with as many threads as cores. A task that sleeps is a timer
//! and its state, no thread.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tokio::runtime::Builder;
use tokio::task::JoinSet;

use super::floor::Bound;
use super::job::Job;
use super::timeline::State;
use super::work::{Pause, Response};
use super::{Model, Stopped, raw};

/// Tasks at a time for each core: more than sleep at full speed, and few enough that their responses stay in the caches.
const TASKS_PER_CORE: usize = 32;

/// Stack of tokio's threads, in bytes.
const RUNTIME_STACK_BYTES: usize = 2 << 20;

pub(super) struct Async {
    pub(super) cores: usize,
}

thread_local! {
    /// Number of this thread in the runtime.
    static PLACE: Cell<usize> = const { Cell::new(usize::MAX) };
}

impl Model for Async {
    fn name(&self) -> String {
        "async".to_owned()
    }

    fn workload(&self) -> &'static str {
        ""
    }

    fn about(&self) -> [&'static str; 2] {
        [
            "A task for each request, at most 32 per core at a time, on one thread per core (tokio).",
            "A request that sleeps takes a timer and a few kilobytes, no thread: the longest chain is the floor.",
        ]
    }

    fn why(&self) -> [&'static str; 3] {
        [
            "A request that sleeps leaves its thread to the next one, so two dozen sleeps run beside each other and beside the work.",
            "To yield is to stand at the end of a queue in the program, not to go through the kernel's scheduler.",
            "What remains is the work on all cores and the last long sleep, which no model can shorten.",
        ]
    }

    fn threads(&self, _requests: u64) -> u64 {
        self.cores as u64
    }

    fn bound(&self, _requests: u64) -> Bound {
        Bound::Free(self.cores as u64)
    }

    fn run(&self, job: &Arc<Job>) -> Result<(), Stopped> {
        // tokio panics when it cannot start its threads, and does not say which limit it was.
        raw::together(self.threads(job.requests()), RUNTIME_STACK_BYTES, || ())
            .map_err(|(started, error)| Stopped::now(started, &error))?;
        let mut builder = Builder::new_multi_thread();
        let (started, starts, parks, wakes) = (AtomicUsize::new(0), job.clone(), job.clone(), job.clone());
        builder.worker_threads(self.cores).thread_stack_size(RUNTIME_STACK_BYTES).enable_time();
        builder.on_thread_start(move || {
            PLACE.set(started.fetch_add(1, Ordering::Relaxed));
            starts.timeline.enter(PLACE.get(), State::Running, Instant::now());
        });
        builder.on_thread_park(move || parks.timeline.enter(PLACE.get(), State::Waiting, Instant::now()));
        builder.on_thread_unpark(move || wakes.timeline.enter(PLACE.get(), State::Running, Instant::now()));
        let runtime = builder.build().map_err(|error| Stopped::now(0, &error))?;
        // As a task, for a task that starts tasks does it without a lock.
        let dealing = runtime.spawn(deal(job.clone(), self.cores * TASKS_PER_CORE));
        // A panic in a task leaves requests undone, which the checks find.
        let _ = runtime.block_on(dealing);
        Ok(())
    }
}

/// Starts all tasks. When there are as many as may be it waits for one to end, whose response the next one uses again.
async fn deal(job: Arc<Job>, tasks_max: usize) {
    let mut tasks = JoinSet::new();
    for id in 0..job.requests() {
        let ended = if tasks.len() == tasks_max { tasks.join_next().await } else { None };
        // A task that panicked has taken its response along.
        let response = ended.and_then(Result::ok).unwrap_or_default();
        tasks.spawn(serve(job.clone(), id, Instant::now(), response));
    }
    while tasks.join_next().await.is_some() {}
}

async fn serve(job: Arc<Job>, id: u64, handed: Instant, mut response: Response) -> Response {
    let mut begun = job.begin(id, handed, &mut response);
    match begun.pause() {
        Pause::None => {}
        Pause::Yield => {
            tokio::task::yield_now().await;
            begun.yielded();
        }
        Pause::Sleep(length) => {
            let from = Instant::now();
            tokio::time::sleep(length).await;
            let to = Instant::now();
            job.timeline.slept(id, from, to);
            begun.slept(to - from);
        }
    }
    job.end(begun, &mut response);
    response
}
