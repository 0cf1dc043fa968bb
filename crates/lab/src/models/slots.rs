//! Slots to run: so many threads may run as there are slots, however many threads there are. Who goes to sleep hands its slot
//! on; who wakes takes the next one that comes free, before all threads that have not begun a request.

use std::collections::VecDeque;

use super::sync::{Condvar, Mutex, lock, wait};

/// The slots of a pool.
#[derive(Debug)]
pub(super) struct Slots {
    state: Mutex<State>,
    /// One for each thread, so that a slot wakes the thread that it is for and no other.
    seats: Vec<Condvar>,
}

#[derive(Debug)]
struct State {
    /// Slots that nobody holds; above zero only while nobody waits.
    free: usize,
    /// Threads with a request, first come, first served.
    returning: VecDeque<usize>,
    /// Threads without one; the last to come is the first to go, for its caches are the warmest.
    spare: Vec<usize>,
    /// Threads that were handed a slot and have not noticed yet.
    granted: Vec<bool>,
}

/// In which line a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// It has a request: one that slept, or one that it waited for.
    Returning,
    /// It has no request.
    Spare,
}

impl Slots {
    /// `slots` slots (at least one) for threads 0 to `threads` − 1.
    pub(super) fn new(slots: usize, threads: usize) -> Self {
        let state = State {
            free: slots.max(1),
            returning: VecDeque::with_capacity(threads),
            spare: Vec::with_capacity(threads),
            granted: vec![false; threads],
        };
        Self { state: Mutex::new(state), seats: (0..threads).map(|_| Condvar::new()).collect() }
    }

    /// Waits for a slot. A thread that holds one must not ask for another.
    pub(super) fn take(&self, me: usize, line: Line) {
        let mut state = lock(&self.state);
        if state.free > 0 {
            state.free -= 1;
            return;
        }
        match line {
            Line::Returning => state.returning.push_back(me),
            Line::Spare => state.spare.push(me),
        }
        while !state.granted[me] {
            state = wait(&self.seats[me], state);
        }
        state.granted[me] = false;
    }

    /// Hands the slot on to who waits, or frees it.
    pub(super) fn give(&self) {
        let mut state = lock(&self.state);
        match state.next() {
            Some(next) => {
                drop(state);
                self.seats[next].notify_one();
            }
            None => state.free += 1,
        }
    }

    /// Between two requests: when a thread waits that has begun one, it gets the slot, and this one waits for another.
    pub(super) fn offer(&self, me: usize) {
        if lock(&self.state).returning.is_empty() {
            return;
        }
        self.give();
        self.take(me, Line::Spare);
    }

    /// Threads that wait.
    #[cfg(test)]
    #[cfg(feature = "shuttle")]
    pub(super) fn waiting(&self) -> usize {
        let state = lock(&self.state);
        state.returning.len() + state.spare.len()
    }
}

impl State {
    /// The thread that is next; the slot is its from now on.
    fn next(&mut self) -> Option<usize> {
        let next = self.returning.pop_front().or_else(|| self.spare.pop())?;
        self.granted[next] = true;
        Some(next)
    }
}
