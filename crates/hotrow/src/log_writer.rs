//! Output of the log: a queue bounded in bytes, and a thread that writes it to standard error.
//!
//! Logging only appends to the queue. A full disk, a pipe without a reader or one that is never
//! drained therefore blocks no other thread: a line that does not fit into the queue, or that
//! cannot be written, is dropped and counted.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hotrow_supervisor::{self as supervisor, Supervisor};
use tracing_subscriber::fmt::MakeWriter;

/// Largest queue of unwritten lines, in bytes.
pub const QUEUE_BYTES_MAX: usize = 1024 * 1024;
/// Queue bytes per line in addition to its text.
const LINE_OVERHEAD_BYTES: usize = 64;
/// Pause between attempts if standard error is non-blocking and currently full.
const RETRY_PAUSE: Duration = Duration::from_millis(5);

/// Writer that formatted log lines go to. Clones share one queue. Writing never fails and never
/// waits for the output.
#[derive(Clone, Debug)]
pub struct LogWriter {
    queue: Arc<Queue>,
}

#[derive(Debug)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    dropped_total: Arc<AtomicU64>,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<Box<[u8]>>,
    bytes: usize,
    /// A line was removed from the queue and is not written yet.
    is_writing: bool,
    is_closed: bool,
}

impl LogWriter {
    /// Starts the thread that writes to standard error, and counts dropped lines in
    /// `dropped_total`.
    ///
    /// # Errors
    /// Fails if the system has no thread or file descriptor left.
    pub fn to_stderr(supervisor: &Supervisor, dropped_total: Arc<AtomicU64>) -> io::Result<Self> {
        // Not `std::io::stderr()`: its lock would be held while a write blocks.
        let output = File::from(io::stderr().as_fd().try_clone_to_owned()?);
        Self::start(supervisor, dropped_total, output, QUEUE_BYTES_MAX)
    }

    fn start(
        supervisor: &Supervisor,
        dropped_total: Arc<AtomicU64>,
        mut output: impl Write + Send + 'static,
        bytes_max: usize,
    ) -> io::Result<Self> {
        let queue = Arc::new(Queue {
            state: Mutex::default(),
            changed: Condvar::new(),
            dropped_total,
            bytes_max,
        });
        let writing = Arc::clone(&queue);
        let failed = Arc::clone(&queue);
        // The line that a panic interrupted is dropped.
        let after_failure = move || {
            if std::mem::take(&mut failed.lock().is_writing) {
                failed.count_dropped();
            }
        };
        supervisor.spawn(
            "log",
            || false,
            after_failure,
            move || {
                writing.write_all_to(&mut output);
                Ok(())
            },
        )?;
        Ok(Self { queue })
    }

    /// Waits until every line so far is written or dropped, at most for `limit`. Returns whether it
    /// was.
    pub fn flush(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        let mut state = self.queue.lock();
        while !state.lines.is_empty() || state.is_writing {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.queue.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Ends the thread once everything is written.
    #[cfg(test)]
    fn close(&self) {
        self.queue.lock().is_closed = true;
        self.queue.changed.notify_all();
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_dropped(&self) {
        self.dropped_total.fetch_add(1, Ordering::Relaxed);
    }

    fn push(&self, line: &[u8]) {
        let bytes = line.len() + LINE_OVERHEAD_BYTES;
        let mut state = self.lock();
        if state.bytes.saturating_add(bytes) > self.bytes_max {
            drop(state);
            self.count_dropped();
            return;
        }
        state.bytes += bytes;
        state.lines.push_back(line.into());
        drop(state);
        self.changed.notify_all();
    }

    /// Removes the next line; `None` if the queue is closed and empty.
    fn next(&self) -> Option<Box<[u8]>> {
        let mut state = self.lock();
        loop {
            if let Some(line) = state.lines.pop_front() {
                state.bytes -= line.len() + LINE_OVERHEAD_BYTES;
                state.is_writing = true;
                return Some(line);
            }
            if state.is_closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Marks the current line as written. Returns whether the queue is empty.
    fn written(&self) -> bool {
        let mut state = self.lock();
        state.is_writing = false;
        let is_empty = state.lines.is_empty();
        drop(state);
        self.changed.notify_all();
        is_empty
    }

    fn write_all_to(&self, output: &mut impl Write) {
        let mut reported = self.dropped_total.load(Ordering::Relaxed);
        while let Some(line) = self.next() {
            supervisor::turn();
            let is_lost = print_line(output, &line).is_err();
            if is_lost {
                self.count_dropped();
            }
            let is_empty = self.written();
            let dropped = self.dropped_total.load(Ordering::Relaxed);
            // The output works, and the queue has room for one more line.
            if !is_lost && is_empty && dropped > reported {
                tracing::warn!(dropped = dropped - reported, "log lines could not be written");
                reported = dropped;
            }
        }
    }
}

fn print_line(output: &mut impl Write, mut line: &[u8]) -> io::Result<()> {
    while !line.is_empty() {
        match output.write(line) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => line = line.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                std::thread::sleep(RETRY_PAUSE)
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Write for LogWriter {
    /// Appends a whole line: the subscriber writes each event in one call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.queue.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests;
