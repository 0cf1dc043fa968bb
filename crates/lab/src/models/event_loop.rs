//! An event loop, beyond the original, written plainly: one thread, requests that are ready, and a heap of timers.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use super::floor::Bound;
use super::job::{Begun, Job};
use super::timeline::State;
use super::work::{Pause, Response};
use super::{Model, Stopped};

/// Requests under way at a time.
const UNDER_WAY_MAX: usize = 256;

pub(super) struct EventLoop;

impl Model for EventLoop {
    fn name(&self) -> String {
        "event-loop".to_owned()
    }

    fn workload(&self) -> &'static str {
        ""
    }

    fn about(&self) -> [&'static str; 2] {
        [
            "One thread; a request that sleeps is an entry in a heap of timers, one that yields goes to the end of a list.",
            "No threads, locks or switches at all; it sleeps only when there is nothing to run. One core is its limit.",
        ]
    }

    fn why(&self) -> [&'static str; 3] {
        [
            "Sleeps are entries in a heap, ordered by when they end, and pass beside each other while the thread works.",
            "It waits in the kernel only when no request can run, so it costs hardly more CPU than the sequential model.",
            "Its work is that of one core: when there is more work than sleep, the models that use all cores are ahead.",
        ]
    }

    fn threads(&self, _requests: u64) -> u64 {
        1
    }

    fn bound(&self, _requests: u64) -> Bound {
        Bound::Free(1)
    }

    fn run(&self, job: &Arc<Job>) -> Result<(), Stopped> {
        Loop { job, timers: BinaryHeap::new(), asleep: HashMap::new(), ready: VecDeque::new(), free: Vec::new() }.run();
        Ok(())
    }
}

/// A request between its halves, with its response.
type UnderWay = (Begun, Response);

struct Loop<'a> {
    job: &'a Job,
    /// When which request wakes; the first to wake is on top.
    timers: BinaryHeap<Reverse<(Instant, u64)>>,
    /// Those that sleep, with when they fell asleep.
    asleep: HashMap<u64, (Instant, UnderWay)>,
    /// Those that can go on.
    ready: VecDeque<UnderWay>,
    /// Responses to use again.
    free: Vec<Response>,
}

impl Loop<'_> {
    fn run(&mut self) {
        let mut ids = 0..self.job.requests();
        self.job.timeline.enter(0, State::Running, Instant::now());
        loop {
            self.wake();
            if let Some(under_way) = self.ready.pop_front() {
                self.finish(under_way);
            }
            let room = self.ready.len() + self.asleep.len() < UNDER_WAY_MAX;
            match if room { ids.next() } else { None } {
                Some(id) => self.begin(id),
                None if !self.ready.is_empty() => {}
                None if self.timers.is_empty() => return,
                None => self.wait(),
            }
        }
    }

    /// The first half of a request, and what it does then.
    fn begin(&mut self, id: u64) {
        let mut response = self.free.pop().unwrap_or_default();
        // Nobody hands it over: it waits for nothing.
        let mut begun = self.job.begin(id, Instant::now(), &mut response);
        match begun.pause() {
            Pause::None => self.finish((begun, response)),
            Pause::Yield => {
                begun.yielded();
                self.ready.push_back((begun, response));
            }
            Pause::Sleep(length) => {
                let now = Instant::now();
                self.timers.push(Reverse((now + length, id)));
                self.asleep.insert(id, (now, (begun, response)));
            }
        }
    }

    fn finish(&mut self, (begun, mut response): UnderWay) {
        self.job.end(begun, &mut response);
        self.free.push(response);
    }

    /// Makes those ready whose time has come.
    fn wake(&mut self) {
        while let Some(Reverse((due, id))) = self.timers.peek().copied() {
            let now = Instant::now();
            if due > now {
                return;
            }
            self.timers.pop();
            if let Some((from, (mut begun, response))) = self.asleep.remove(&id) {
                begun.slept(now - from);
                self.job.timeline.slept(id, from, now);
                self.ready.push_back((begun, response));
            }
        }
    }

    /// Sleeps until the first timer is due; nothing else can happen before.
    fn wait(&self) {
        if let Some(Reverse((due, _))) = self.timers.peek() {
            let now = Instant::now();
            self.job.timeline.enter(0, State::Waiting, now);
            thread::sleep(due.saturating_duration_since(now));
            self.job.timeline.enter(0, State::Running, Instant::now());
        }
    }
}
