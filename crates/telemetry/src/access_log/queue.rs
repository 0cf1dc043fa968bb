//! Lines that wait to be written: one buffer for each worker, so that workers do not wait for each
//! other, and a bell for the writer.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use parking_lot::Mutex;

/// Most bytes of lines of one worker that wait. As many are being written.
pub(super) const QUEUE_BYTES_MAX: usize = 512 << 10;

/// Lines in the order of their requests' ends.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) bytes: Vec<u8>,
    pub(super) count: u64,
}

/// Waiting lines of one worker.
#[derive(Debug, Default)]
pub(super) struct LineQueue(Mutex<Lines>);

impl LineQueue {
    /// Appends a line with its end. Returns `false` if it has no room.
    pub(super) fn push(&self, line: &[u8]) -> bool {
        let mut lines = self.0.lock();
        if lines.bytes.len() + line.len() > QUEUE_BYTES_MAX {
            return false;
        }
        lines.bytes.extend_from_slice(line);
        lines.count += 1;
        true
    }

    /// Exchanges the waiting lines for `taken`, which must be empty. Keeps both memories.
    pub(super) fn take(&self, taken: &mut Lines) {
        std::mem::swap(&mut *self.0.lock(), taken);
    }
}

/// Wakes the writer. Ringing takes no lock, and for all but the first ring before an answer it is
/// one write.
#[derive(Debug, Default)]
pub(super) struct Bell {
    has_rung: AtomicBool,
    writer: OnceLock<Thread>,
}

impl Bell {
    pub(super) fn ring(&self) {
        if !self.has_rung.swap(true, Ordering::AcqRel)
            && let Some(writer) = self.writer.get()
        {
            writer.unpark();
        }
    }

    /// Makes this thread the writer. A thread that runs again after a failure is the same.
    pub(super) fn answer_here(&self) {
        self.writer.get_or_init(thread::current);
    }

    /// Waits for a ring, at most for `time`. A ring before the call counts.
    pub(super) fn wait(&self, time: Duration) {
        if !self.has_rung.swap(false, Ordering::AcqRel) {
            thread::park_timeout(time);
            self.has_rung.store(false, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_bounded_in_bytes() {
        let queue = LineQueue::default();
        let line = [b'x'; 1024];
        let fitting = QUEUE_BYTES_MAX / line.len();
        assert!((0..fitting).all(|_| queue.push(&line)));
        assert!(!queue.push(&line) && !queue.push(b"x"));
        let mut lines = Lines::default();
        queue.take(&mut lines);
        assert_eq!((lines.bytes.len(), lines.count), (QUEUE_BYTES_MAX, fitting as u64));
        assert!(queue.push(b"x"));
    }

    #[test]
    fn a_ring_before_the_wait_is_not_missed() {
        let bell = Bell::default();
        bell.answer_here();
        bell.ring();
        bell.ring();
        // Without the ring this would outlast the test's time limit.
        bell.wait(Duration::from_hours(24));
    }
}
