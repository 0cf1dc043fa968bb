//! An I/O-aware pool (W18): more threads than cores, of which at most as many run as there are cores. A thread that goes to sleep
//! hands its slot on, and takes one back when it wakes.

use std::sync::Arc;
use std::thread::{self, Builder};
use std::time::Instant;

use super::floor::Bound;
use super::job::Job;
use super::pool::{Closing, hand_over};
use super::queue::Queue;
use super::slots::{Line, Slots};
use super::timeline::State;
use super::work::Response;
use super::{Model, QUEUE_CAPACITY, STACK_BYTES, Stopped};

/// Threads for each core: so many requests can sleep at a time before the next one has no thread. At full speed some 20 do.
const THREADS_PER_CORE: usize = 32;

pub(super) struct IoAware {
    pub(super) cores: usize,
}

impl Model for IoAware {
    fn name(&self) -> String {
        "io-aware".to_owned()
    }

    fn workload(&self) -> &'static str {
        "W18"
    }

    fn about(&self) -> [&'static str; 2] {
        [
            "32 threads per core, of which as many run as there are cores; who sleeps hands its slot to another.",
            "Blocking code, yet the cores are never without work: the best that threads which sleep can do.",
        ]
    }

    fn why(&self) -> [&'static str; 3] {
        [
            "A thread that goes to sleep wakes another in its place, so every core has exactly one thread to run all the time.",
            "Threads without a request stay out of the way: they hold no slot, so the kernel has nothing to switch between.",
            "Who wakes with a request half done gets the next slot before anybody begins a new one, so its answer is not late.",
        ]
    }

    fn threads(&self, _requests: u64) -> u64 {
        (self.cores * THREADS_PER_CORE) as u64
    }

    fn bound(&self, requests: u64) -> Bound {
        Bound::Threads(self.threads(requests))
    }

    fn run(&self, job: &Arc<Job>) -> Result<(), Stopped> {
        let threads = self.cores * THREADS_PER_CORE;
        let (queue, slots) = (Queue::new(QUEUE_CAPACITY), Slots::new(self.cores, threads));
        thread::scope(|scope| {
            let (_closing, queue, slots) = (Closing(&queue), &queue, &slots);
            for me in 0..threads {
                let serve = move || serve(me, job, queue, slots);
                let started = Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, serve);
                started.map_err(|error| Stopped::now(me as u64, &error))?;
            }
            hand_over(job, queue);
            Ok(())
        })
    }
}

/// A thread of the pool.
fn serve(me: usize, job: &Job, queue: &Queue<(u64, Instant)>, slots: &Slots) {
    let mut response = Response::default();
    let waits = || job.timeline.enter(me, State::Waiting, Instant::now());
    waits();
    slots.take(me, Line::Spare);
    while let Some(request) = next(me, queue, slots) {
        job.serve(me, request, &mut response, |length| {
            slots.give();
            thread::sleep(length);
            waits();
            slots.take(me, Line::Returning);
        });
        waits();
        slots.offer(me);
    }
}

/// The next request, for a thread that holds a slot. Without one at hand it waits as it sleeps: without a slot. None at the end, and
/// the slot is given away then.
pub(super) fn next<T>(me: usize, queue: &Queue<T>, slots: &Slots) -> Option<T> {
    if let Some(request) = queue.try_pop() {
        return Some(request);
    }
    slots.give();
    let request = queue.pop()?;
    slots.take(me, Line::Returning);
    Some(request)
}
