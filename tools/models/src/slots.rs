//! Run slots: as many threads run as there are slots, however many threads exist. A thread passes
//! its slot on before it sleeps; after waking it takes the next free one, before all threads that
//! have not started a request.

use std::collections::VecDeque;

use super::sync::{Condvar, Mutex, lock, wait};

/// Slots of a pool.
#[derive(Debug)]
pub(super) struct Slots {
    state: Mutex<SlotsState>,
    /// One condition per thread, so that a slot wakes only the thread that receives it.
    wakeups: Vec<Condvar>,
}

#[derive(Debug)]
struct SlotsState {
    /// Unowned slots; above zero only while no thread waits.
    free: usize,
    /// Waiting threads with a request, in FIFO order.
    returning: VecDeque<usize>,
    /// Waiting threads without one, in LIFO order: the last one's caches are the warmest.
    idle: Vec<usize>,
    /// True if a thread was assigned a slot and has not noticed yet.
    assigned: Vec<bool>,
}

/// Queue in which a thread waits for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotQueue {
    /// The thread has a request: one that slept, or one that it waited for.
    Returning,
    /// The thread has no request.
    Idle,
}

impl Slots {
    /// Creates `slots` slots (at least one) for threads 0 to `threads` − 1.
    pub(super) fn new(slots: usize, threads: usize) -> Self {
        let state = SlotsState {
            free: slots.max(1),
            returning: VecDeque::with_capacity(threads),
            idle: Vec::with_capacity(threads),
            assigned: vec![false; threads],
        };
        Self { state: Mutex::new(state), wakeups: (0..threads).map(|_| Condvar::new()).collect() }
    }

    /// Waits for a slot. A thread must not own one already.
    pub(super) fn acquire(&self, me: usize, queue: SlotQueue) {
        let mut state = lock(&self.state);
        if state.free > 0 {
            state.free -= 1;
            return;
        }
        match queue {
            SlotQueue::Returning => state.returning.push_back(me),
            SlotQueue::Idle => state.idle.push(me),
        }
        while !state.assigned[me] {
            state = wait(&self.wakeups[me], state);
        }
        state.assigned[me] = false;
    }

    /// Passes the slot to a waiting thread, or frees it.
    pub(super) fn release(&self) {
        let mut state = lock(&self.state);
        match state.next() {
            Some(next) => {
                drop(state);
                self.wakeups[next].notify_one();
            }
            None => state.free += 1,
        }
    }

    /// Offers the slot between two requests: a waiting thread with a started request gets it, and
    /// this one waits for another.
    pub(super) fn offer(&self, me: usize) {
        if lock(&self.state).returning.is_empty() {
            return;
        }
        self.release();
        self.acquire(me, SlotQueue::Idle);
    }

    /// Returns the number of waiting threads.
    #[cfg(test)]
    #[cfg(feature = "shuttle")]
    pub(super) fn waiting(&self) -> usize {
        let state = lock(&self.state);
        state.returning.len() + state.idle.len()
    }
}

impl SlotsState {
    /// Removes the next thread from its queue; the slot is its own from now on.
    fn next(&mut self) -> Option<usize> {
        let next = self.returning.pop_front().or_else(|| self.idle.pop())?;
        self.assigned[next] = true;
        Some(next)
    }
}
