//! A bounded queue, first in, first out, for any number of producers and consumers. Who finds it full or empty waits; nothing
//! is ever dropped.

use std::collections::VecDeque;

use super::sync::{Condvar, Mutex, MutexGuard, lock, wait};

/// The queue.
#[derive(Debug)]
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    not_empty: Condvar,
    not_full: Condvar,
    capacity: usize,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    closed: bool,
    /// Who waits: without them nobody need be woken, which would be a system call each time.
    consumers: usize,
    producers: usize,
}

impl<T> Queue<T> {
    /// A queue with room for `capacity` items, at least one.
    pub(super) fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        let items = VecDeque::with_capacity(capacity);
        let state = State { items, closed: false, consumers: 0, producers: 0 };
        Self { state: Mutex::new(state), not_empty: Condvar::new(), not_full: Condvar::new(), capacity }
    }

    /// Puts an item at the end; waits for room.
    ///
    /// # Errors
    /// The item itself, when the queue is closed.
    pub(super) fn push(&self, item: T) -> Result<(), T> {
        let mut state = lock(&self.state);
        while state.items.len() == self.capacity && !state.closed {
            state.producers += 1;
            state = wait(&self.not_full, state);
            state.producers -= 1;
        }
        if state.closed {
            return Err(item);
        }
        state.items.push_back(item);
        let awaited = state.consumers > 0;
        drop(state);
        if awaited {
            self.not_empty.notify_one();
        }
        Ok(())
    }

    /// Takes the oldest item; waits for one. None when the queue is closed and empty.
    pub(super) fn pop(&self) -> Option<T> {
        let mut state = lock(&self.state);
        while state.items.is_empty() && !state.closed {
            state.consumers += 1;
            state = wait(&self.not_empty, state);
            state.consumers -= 1;
        }
        self.take(state)
    }

    /// Takes the oldest item, if there is one now.
    pub(super) fn try_pop(&self) -> Option<T> {
        self.take(lock(&self.state))
    }

    fn take(&self, mut state: MutexGuard<'_, State<T>>) -> Option<T> {
        let item = state.items.pop_front();
        // At a full queue, a producer that is woken by every item taken would switch threads for each. From half empty on it has
        // something to do. Who waits with the queue empty has been woken by the last item at the latest.
        let awaited = state.producers > 0 && state.items.len() <= self.capacity / 2;
        drop(state);
        if awaited {
            self.not_full.notify_one();
        }
        item
    }

    /// Takes no more items; what is in it can still be taken.
    pub(super) fn close(&self) {
        lock(&self.state).closed = true;
        self.not_empty.notify_all();
        self.not_full.notify_all();
    }

    /// Items in it now.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        lock(&self.state).items.len()
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
