//! Wakers without a runtime: they note what must be polled again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Wake;

/// A note that the connection must be polled.
#[derive(Debug, Default)]
pub(super) struct Flag(pub(super) AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The streams that must be polled, each at most a few times.
#[derive(Debug, Default)]
pub(super) struct WokenStreams(Mutex<Vec<u32>>);

impl WokenStreams {
    fn list(&self) -> MutexGuard<'_, Vec<u32>> {
        // Only the worker's thread uses it, and no operation on it panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a stream, unless it is the last one in the list.
    pub(super) fn push(&self, index: u32) {
        let mut list = self.list();
        if list.last() != Some(&index) {
            list.push(index);
        }
    }

    /// Moves all into an empty list.
    pub(super) fn take(&self, into: &mut Vec<u32>) {
        std::mem::swap(&mut *self.list(), into);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list().is_empty()
    }
}

/// The waker of one place for a stream.
#[derive(Debug)]
pub(super) struct StreamWaker {
    index: u32,
    woken: Arc<WokenStreams>,
}

impl StreamWaker {
    pub(super) fn new(index: u32, woken: Arc<WokenStreams>) -> Self {
        Self { index, woken }
    }
}

impl Wake for StreamWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.push(self.index);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn a_woken_stream_is_listed_and_taken_once() {
        let woken = Arc::new(WokenStreams::default());
        let wakers = [3, 5].map(|i| Waker::from(Arc::new(StreamWaker::new(i, woken.clone()))));
        wakers[0].wake_by_ref();
        wakers[0].wake_by_ref();
        wakers[1].wake_by_ref();
        let mut taken = Vec::new();
        woken.take(&mut taken);
        assert_eq!(taken, [3, 5]);
        assert!(woken.is_empty());
        let flag = Arc::new(Flag::default());
        Waker::from(flag.clone()).wake();
        assert!(flag.0.load(Ordering::Relaxed));
    }
}
