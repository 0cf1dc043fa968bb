//! Queue of reads that wait for a reader thread.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hotrow_measure::clock::Nanos;
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use hotrow_source::{KeysOfCollection, ReadSet, RowBudget, SourceError};

/// Reads that may wait for a reader thread; more are refused.
pub(crate) const WAITING_READS_MAX: usize = 4096;

/// Interval at which an idle reader checks its connection, in case it missed a nudge.
const IDLE_CHECK_EVERY: Duration = Duration::from_secs(1);

pub(crate) type Answer = Result<ReadSet, SourceError>;

/// Read that waits for a thread.
pub(crate) struct Job {
    /// One, or several of a snapshot batch.
    pub(crate) parts: Vec<KeysOfCollection>,
    pub(crate) deadline: Nanos,
    pub(crate) rows: Arc<RowBudget>,
    pub(crate) answer: oneshot::Sender<Answer>,
}

/// Queue of reads that wait for a thread.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    closed: bool,
    /// Number of calls of [`Queue::nudge`].
    nudges: u64,
}

pub(crate) enum Next {
    Job(Job),
    /// No job arrived; check whether the connection is still valid.
    Idle,
    Closed,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

impl Queue {
    pub(crate) fn push(&self, job: Job) -> Result<(), Job> {
        let mut waiting = self.waiting.lock();
        if waiting.closed || waiting.jobs.len() >= WAITING_READS_MAX {
            return Err(job);
        }
        waiting.jobs.push_back(job);
        drop(waiting);
        self.changed.notify_one();
        Ok(())
    }

    pub(crate) fn next(&self) -> Next {
        let mut waiting = self.waiting.lock();
        let nudges = waiting.nudges;
        loop {
            if let Some(job) = waiting.jobs.pop_front() {
                return Next::Job(job);
            }
            if waiting.closed {
                return Next::Closed;
            }
            if waiting.nudges != nudges
                || self.changed.wait_for(&mut waiting, IDLE_CHECK_EVERY).timed_out()
            {
                return Next::Idle;
            }
        }
    }

    /// Makes idle readers check whether their connection is still valid.
    pub(crate) fn nudge(&self) {
        self.waiting.lock().nudges += 1;
        self.changed.notify_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.waiting.lock().closed
    }

    pub(crate) fn close(&self) {
        self.waiting.lock().closed = true;
        self.changed.notify_all();
    }
}
