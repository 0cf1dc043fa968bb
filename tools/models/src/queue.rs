//! A bounded FIFO queue for any number of producers and consumers. Threads that find it full or
//! empty wait; no item is dropped.

use std::collections::VecDeque;

use super::sync::{Condvar, Mutex, MutexGuard, lock, wait};

/// The queue.
#[derive(Debug)]
pub(super) struct Queue<T> {
    state: Mutex<QueueState<T>>,
    not_empty: Condvar,
    not_full: Condvar,
    capacity: usize,
}

#[derive(Debug)]
struct QueueState<T> {
    items: VecDeque<T>,
    closed: bool,
    /// Waiting threads; without any, no wake-up (a system call) is needed.
    consumers: usize,
    producers: usize,
}

impl<T> Queue<T> {
    /// Creates a queue for `capacity` items, at least one.
    pub(super) fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        let items = VecDeque::with_capacity(capacity);
        let state = QueueState { items, closed: false, consumers: 0, producers: 0 };
        Self {
            state: Mutex::new(state),
            not_empty: Condvar::new(),
            not_full: Condvar::new(),
            capacity,
        }
    }

    /// Appends an item; waits for room.
    ///
    /// # Errors
    /// The item, if the queue is closed.
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

    /// Removes the oldest item; waits for one. `None` when the queue is closed and empty.
    pub(super) fn pop(&self) -> Option<T> {
        let mut state = lock(&self.state);
        while state.items.is_empty() && !state.closed {
            state.consumers += 1;
            state = wait(&self.not_empty, state);
            state.consumers -= 1;
        }
        self.take(state)
    }

    /// Removes the oldest item, if there is one.
    pub(super) fn try_pop(&self) -> Option<T> {
        self.take(lock(&self.state))
    }

    fn take(&self, mut state: MutexGuard<'_, QueueState<T>>) -> Option<T> {
        let item = state.items.pop_front();
        // Waking a producer for every item of a full queue would switch threads each time; from
        // half empty on it has enough to do. A consumer that waits on an empty queue is woken by
        // the next item at the latest.
        let awaited = state.producers > 0 && state.items.len() <= self.capacity / 2;
        drop(state);
        if awaited {
            self.not_full.notify_one();
        }
        item
    }

    /// Closes the queue for new items; remaining ones can be removed.
    pub(super) fn close(&self) {
        lock(&self.state).closed = true;
        self.not_empty.notify_all();
        self.not_full.notify_all();
    }

    /// Returns the number of items.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        lock(&self.state).items.len()
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
