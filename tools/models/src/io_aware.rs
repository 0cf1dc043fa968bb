//! I/O-aware pool (W18): more threads than cores, of which at most as many run as there are cores.
//! A thread passes its slot on before it sleeps, and takes one again when it wakes.

use std::sync::Arc;
use std::thread::{self, Builder};
use std::time::Instant;

use super::floor::FloorRule;
use super::job::{HandedRequest, Job};
use super::pool::{Closing, hand_over};
use super::queue::Queue;
use super::raw::STACK_BYTES;
use super::slots::{SlotQueue, Slots};
use super::work::Response;
use super::{Model, QUEUE_CAPACITY, ThreadRefused};
use hotrow_report::plot::LaneState;

/// Threads per core: so many requests can sleep before the next one has no thread. At full speed
/// some 20 do.
pub(super) const THREADS_PER_CORE: usize = 32;
/// Threads per core of the published description.
pub(super) const THREADS_PER_CORE_PUBLISHED: usize = 8;

pub(super) struct IoAware {
    pub(super) cores: usize,
    pub(super) threads_per_core: usize,
}

impl IoAware {
    fn is_published(&self) -> bool {
        self.threads_per_core == THREADS_PER_CORE_PUBLISHED
    }
}

impl Model for IoAware {
    fn name(&self) -> String {
        if self.is_published() { "io-aware-8x".to_owned() } else { "io-aware".to_owned() }
    }

    fn workload(&self) -> &'static str {
        "W18"
    }

    fn design(&self) -> [&'static str; 2] {
        if self.is_published() {
            return [
                "8 threads per core, as published, of which as many run as there are cores.",
                "When all threads sleep, the next request waits although the cores are idle.",
            ];
        }
        [
            "32 threads per core, of which as many run as there are cores; a thread that sleeps \
             passes its slot to another.",
            "Blocking code, yet the cores always have work: the best that sleeping threads can do.",
        ]
    }

    fn explanation(&self) -> [&'static str; 3] {
        [
            "A thread that goes to sleep wakes another in its place, so every core has exactly one \
             thread to run all the time.",
            "Threads without a request stay out of the way: they hold no slot, so the kernel has \
             nothing to switch between.",
            "A thread that wakes in mid-request gets the next slot before a new request starts, so \
             its response is not late.",
        ]
    }

    fn threads(&self, _requests: u64) -> u64 {
        (self.cores * self.threads_per_core) as u64
    }

    fn floor_rule(&self, requests: u64) -> FloorRule {
        FloorRule::Threads(self.threads(requests))
    }

    fn run(&self, job: &Arc<Job>) -> Result<(), ThreadRefused> {
        let threads = self.cores * self.threads_per_core;
        let (queue, slots) = (Queue::new(QUEUE_CAPACITY), Slots::new(self.cores, threads));
        thread::scope(|scope| {
            let (_closing, queue, slots) = (Closing(&queue), &queue, &slots);
            for me in 0..threads {
                let serve = move || serve(me, job, queue, slots);
                let started = Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, serve);
                started.map_err(|error| ThreadRefused::now(me as u64, &error))?;
            }
            hand_over(job, queue);
            Ok(())
        })
    }
}

/// Runs a thread of the pool.
fn serve(me: usize, job: &Job, queue: &Queue<HandedRequest>, slots: &Slots) {
    let mut response = Response::default();
    let waits = || job.timeline.enter(me, LaneState::Waiting, Instant::now());
    waits();
    slots.acquire(me, SlotQueue::Idle);
    while let Some(request) = next(me, queue, slots) {
        job.serve(me, request, &mut response, |length| {
            slots.release();
            thread::sleep(length);
            waits();
            slots.acquire(me, SlotQueue::Returning);
        });
        waits();
        slots.offer(me);
    }
}

/// Returns the next request, for a thread that holds a slot. While the queue is empty the thread
/// waits without a slot. `None` at the end; the slot is then released.
pub(super) fn next<T>(me: usize, queue: &Queue<T>, slots: &Slots) -> Option<T> {
    if let Some(request) = queue.try_pop() {
        return Some(request);
    }
    slots.release();
    let request = queue.pop()?;
    slots.acquire(me, SlotQueue::Returning);
    Some(request)
}
