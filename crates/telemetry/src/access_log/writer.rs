//! The thread that writes the lines.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hotrow_supervisor::{self as supervisor, Supervisor};

use super::queue::Lines;
use super::{AccessLog, Dropped};

/// Pause between two writes, in which lines collect: 512 KiB of them fit the queue of a worker.
const PAUSE: Duration = Duration::from_millis(10);
/// Longest wait for a line, after which the end is checked.
const WAIT_MAX: Duration = Duration::from_secs(1);

impl AccessLog {
    /// Starts the thread that writes until [`AccessLog::close`]. It is not joined, because its
    /// output may block for ever.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(self: &Arc<Self>, supervisor: &Supervisor) -> io::Result<()> {
        let (log, failed, ending) = (Arc::clone(self), Arc::clone(self), Arc::clone(self));
        // Lines that were being written when it failed.
        let after_failure = move || failed.lose(&failed.in_hand);
        let thread = supervisor.spawn(
            "access-log",
            move || ending.is_closed(),
            after_failure,
            move || {
                log.write_until_closed();
                Ok(())
            },
        )?;
        drop(thread);
        Ok(())
    }

    fn write_until_closed(&self) {
        let mut output = self.output.lock();
        let mut lines = Lines::default();
        self.bell.answer_here();
        loop {
            supervisor::turn();
            // Before the last look at the queues, so that nothing queued before the end is missed.
            let is_closed = self.is_closed();
            for queue in &self.queues {
                queue.take(&mut lines);
                if lines.count > 0 {
                    self.in_hand.store(lines.count, Ordering::Relaxed);
                    let lost = output.write(&lines.bytes);
                    self.count_dropped(Dropped::NotWritten, lost);
                    self.written.fetch_add(lines.count - lost.min(lines.count), Ordering::Relaxed);
                    self.in_hand.store(0, Ordering::Relaxed);
                    lines.bytes.clear();
                    lines.count = 0;
                }
            }
            if is_closed {
                self.end.ended();
                return;
            }
            std::thread::sleep(PAUSE);
            self.bell.wait(WAIT_MAX);
        }
    }
}
