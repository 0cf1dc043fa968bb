//! Event loop, not among the published models: one thread, a list of ready requests, and a heap of
//! timers.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use super::floor::FloorRule;
use super::job::{Job, StartedRequest};
use super::work::{Pause, Response};
use super::{Model, ThreadRefused};
use hotrow_report::plot::LaneState;

/// Requests in progress at a time.
const IN_PROGRESS_MAX: usize = 256;

pub(super) struct EventLoop;

impl Model for EventLoop {
    fn name(&self) -> String {
        "event-loop".to_owned()
    }

    fn workload(&self) -> &'static str {
        ""
    }

    fn design(&self) -> [&'static str; 2] {
        [
            "One thread; a request that sleeps is an entry in a heap of timers, one that yields \
             goes to the end of a list.",
            "No threads, locks or switches at all; it sleeps only when there is nothing to run. \
             One core is its limit.",
        ]
    }

    fn explanation(&self) -> [&'static str; 3] {
        [
            "Sleeps are entries in a heap, ordered by when they end, and pass beside each other \
             while the thread works.",
            "It waits in the kernel only when no request can run, so it costs hardly more CPU than \
             the sequential model.",
            "Its work is that of one core: when there is more work than sleep, the models that use \
             all cores are ahead.",
        ]
    }

    fn threads(&self, _requests: u64) -> u64 {
        1
    }

    fn floor_rule(&self, _requests: u64) -> FloorRule {
        FloorRule::Free(1)
    }

    fn run(&self, job: &Arc<Job>) -> Result<(), ThreadRefused> {
        Loop {
            job,
            timers: BinaryHeap::new(),
            asleep: HashMap::new(),
            ready: VecDeque::new(),
            free: Vec::new(),
        }
        .run();
        Ok(())
    }
}

/// A request between its halves, with its response.
type PausedRequest = (StartedRequest, Response);

struct Loop<'a> {
    job: &'a Job,
    /// Wake-up times of sleeping requests, earliest first.
    timers: BinaryHeap<Reverse<(Instant, u64)>>,
    /// Sleeping requests, with the start of their sleep.
    asleep: HashMap<u64, (Instant, PausedRequest)>,
    /// Requests that can continue.
    ready: VecDeque<PausedRequest>,
    /// Responses for reuse.
    free: Vec<Response>,
}

impl Loop<'_> {
    fn run(&mut self) {
        let mut ids = 0..self.job.requests();
        self.job.timeline.enter(0, LaneState::Running, Instant::now());
        loop {
            self.wake();
            if let Some(paused) = self.ready.pop_front() {
                self.finish(paused);
            }
            let room = self.ready.len() + self.asleep.len() < IN_PROGRESS_MAX;
            match if room { ids.next() } else { None } {
                Some(id) => self.begin(id),
                None if !self.ready.is_empty() => {}
                None if self.timers.is_empty() => return,
                None => self.wait(),
            }
        }
    }

    /// Runs the first half of a request, then its pause.
    fn begin(&mut self, id: u64) {
        let mut response = self.free.pop().unwrap_or_default();
        // There is no queue: its queueing time is zero.
        let mut started = self.job.begin(id, Instant::now(), &mut response);
        match started.pause() {
            Pause::None => self.finish((started, response)),
            Pause::Yield => {
                started.yielded();
                self.ready.push_back((started, response));
            }
            Pause::Sleep(length) => {
                let now = Instant::now();
                self.timers.push(Reverse((now + length, id)));
                self.asleep.insert(id, (now, (started, response)));
            }
        }
    }

    fn finish(&mut self, (started, mut response): PausedRequest) {
        self.job.end(started, &mut response);
        self.free.push(response);
    }

    /// Moves requests whose sleep has ended to the ready list.
    fn wake(&mut self) {
        while let Some(Reverse((due, id))) = self.timers.peek().copied() {
            let now = Instant::now();
            if due > now {
                return;
            }
            self.timers.pop();
            if let Some((from, (mut started, response))) = self.asleep.remove(&id) {
                started.slept(now - from);
                self.job.timeline.slept(id, from, now);
                self.ready.push_back((started, response));
            }
        }
    }

    /// Sleeps until the first timer is due; nothing can happen before.
    fn wait(&self) {
        if let Some(Reverse((due, _))) = self.timers.peek() {
            let now = Instant::now();
            self.job.timeline.enter(0, LaneState::Waiting, now);
            thread::sleep(due.saturating_duration_since(now));
            self.job.timeline.enter(0, LaneState::Running, Instant::now());
        }
    }
}
