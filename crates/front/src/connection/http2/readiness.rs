//! Streams of one connection whose requests can make progress: a request is polled when what it
//! waits for wakes it, not whenever another one does.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::AcqRel;
use std::task::{Wake, Waker};

use hotrow_http2::STREAMS_MAX;
use hotrow_http2::streams::Slot;
use parking_lot::Mutex;

const WORDS: usize = STREAMS_MAX.div_ceil(WORD_BITS);
const WORD_BITS: usize = u64::BITS as usize;

/// Streams that were woken. What wakes them may be on other threads.
#[derive(Debug, Default)]
pub(crate) struct Readiness {
    slots: [AtomicU64; WORDS],
    /// The task of the connection.
    task: Mutex<Option<Waker>>,
}

struct SlotWaker {
    readiness: Arc<Readiness>,
    slot: Slot,
}

/// Slots that were ready.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready([u64; WORDS]);

impl Readiness {
    /// Returns the waker of a stream.
    pub(crate) fn waker(self: &Arc<Self>, slot: Slot) -> Waker {
        Waker::from(Arc::new(SlotWaker { readiness: Arc::clone(self), slot }))
    }

    /// Stores the waker of the connection's task. Streams that are woken from now on wake it.
    pub(crate) fn register(&self, task: &Waker) {
        let mut mine = self.task.lock();
        if !mine.as_ref().is_some_and(|waker| waker.will_wake(task)) {
            *mine = Some(task.clone());
        }
    }

    /// Makes a stream ready. Returns whether it was not.
    pub(crate) fn mark(&self, slot: Slot) -> bool {
        let bit = 1 << (slot % WORD_BITS);
        let Some(word) = self.slots.get(slot / WORD_BITS) else { return false };
        word.fetch_or(bit, AcqRel) & bit == 0
    }

    /// Takes the streams that are ready.
    pub(crate) fn take(&self) -> Ready {
        Ready(std::array::from_fn(|i| self.slots[i].swap(0, AcqRel)))
    }
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // One that was ready already has woken the task.
        if self.readiness.mark(self.slot) {
            let task = self.readiness.task.lock().clone();
            if let Some(task) = task {
                task.wake();
            }
        }
    }
}

impl Iterator for Ready {
    type Item = Slot;

    fn next(&mut self) -> Option<Slot> {
        let (at, word) = self.0.iter_mut().enumerate().find(|(_, word)| **word != 0)?;
        let bit = word.trailing_zeros() as usize;
        *word &= *word - 1;
        Some(at * WORD_BITS + bit)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn the_streams_that_were_woken_are_ready_once() {
        let readiness = Arc::new(Readiness::default());
        let task = Arc::new(Task::default());
        readiness.register(&Waker::from(Arc::clone(&task)));
        for slot in [0, 63, 64, STREAMS_MAX - 1] {
            let waker = readiness.waker(slot);
            waker.wake_by_ref();
            waker.wake();
        }
        assert_eq!(task.0.load(Relaxed), 4, "once for each");
        let ready: Vec<Slot> = readiness.take().collect();
        assert_eq!(ready, [0, 63, 64, STREAMS_MAX - 1]);
        assert_eq!(readiness.take().next(), None);
    }
}
