//! Single flight: one read of one key, and everyone who waits for it.
//!
//! A flight is queued first and takes its lease when its query is sent. Requests may join a queued flight at any time,
//! a reading one only while its lease lives (`desk` decides). A flight whose reader was cancelled goes back to the
//! queue, and its waiters are told that one of them has to lead.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use hotrow_measure::clock::Nanos;

use crate::key::Key;
use crate::record::{Era, Record};
use crate::sync::Mutex;
use crate::version::Version;

/// Times that a flight is put back after its reader was cancelled, before its waiters get an error.
pub const ATTEMPTS_MAX: u8 = 3;

/// Why a read brought no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure<E> {
    /// The source's own error, shared with all who wait.
    Source(E),
    /// The readers were cancelled [`ATTEMPTS_MAX`] times.
    Abandoned,
}

/// What a waiter is told.
#[derive(Debug)]
pub enum Waited<E> {
    /// The answer.
    Done(Result<Record, Failure<E>>),
    /// Whoever read for this key was cancelled: call [`crate::Cache::turn`], carry out what it gives, and wait on.
    Lead,
}

#[derive(Debug)]
pub(crate) struct Flight<E> {
    pub(crate) key: Key,
    /// Keys of the batch that begins with this one; 0 for the others of a batch.
    pub(crate) group_keys: usize,
    /// Nobody waits: a refresh of an entry that is being served.
    background: bool,
    progress: Mutex<Progress<E>>,
}

#[derive(Debug)]
struct Progress<E> {
    phase: Phase<E>,
    wakers: Vec<Option<Waker>>,
    waiting: usize,
    lead: bool,
    attempts: u8,
    /// The newest version that another flight answered for this key while this one was reading.
    floor: Option<Version>,
}

/// How far a flight is.
#[derive(Debug)]
enum Phase<E> {
    Queued,
    Reading(Lease),
    Done(Result<Record, Failure<E>>),
}

/// What a read may rely on: taken when the query is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    pub(crate) started_at: Nanos,
    pub(crate) era: Era,
}

impl<E: Clone> Flight<E> {
    pub(crate) fn new(key: Key, group_keys: usize, background: bool) -> Arc<Self> {
        let progress =
            Progress { phase: Phase::Queued, wakers: Vec::new(), waiting: 0, lead: false, attempts: 0, floor: None };
        Arc::new(Self { key, group_keys, background, progress: Mutex::new(progress) })
    }

    pub(crate) fn join(self: &Arc<Self>) -> Waiter<E> {
        let mut progress = self.progress.lock();
        progress.waiting += 1;
        progress.wakers.push(None);
        Waiter { flight: self.clone(), slot: progress.wakers.len() - 1 }
    }

    /// The lease; `None` while the flight is queued or after it is done.
    pub(crate) fn lease(&self) -> Option<Lease> {
        match self.progress.lock().phase {
            Phase::Reading(lease) => Some(lease),
            Phase::Queued | Phase::Done(_) => None,
        }
    }

    pub(crate) fn is_queued(&self) -> bool {
        matches!(self.progress.lock().phase, Phase::Queued)
    }

    /// Begins to read, unless nobody wants the answer any more.
    pub(crate) fn start(&self, lease: Lease) -> bool {
        let mut progress = self.progress.lock();
        let wanted = self.background || progress.waiting > 0;
        if wanted {
            progress.phase = Phase::Reading(lease);
            progress.lead = false;
            progress.floor = None;
        }
        wanted
    }

    /// Notes that `version` was answered elsewhere for this key while this flight reads.
    pub(crate) fn raise_floor(&self, version: &Version) {
        let mut progress = self.progress.lock();
        let higher = progress.floor.as_ref().is_none_or(|floor| !floor.covers(version));
        if higher && matches!(progress.phase, Phase::Reading(_)) {
            progress.floor = Some(version.clone());
        }
    }

    /// Whether an answer of `version` may be given: nobody got a newer one while it was read. If not, the flight is
    /// queued again, and its next read begins after that newer answer.
    pub(crate) fn accept(&self, version: &Version) -> bool {
        let mut progress = self.progress.lock();
        let good = progress.floor.as_ref().is_none_or(|floor| version.covers(floor));
        if !good {
            progress.phase = Phase::Queued;
        }
        good
    }

    pub(crate) fn finish(&self, result: Result<Record, Failure<E>>) {
        let wakers = {
            let mut progress = self.progress.lock();
            progress.phase = Phase::Done(result);
            std::mem::take(&mut progress.wakers)
        };
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    /// The reader was cancelled: queue the flight again and call all waiters to lead. `false`: it has come to its end.
    pub(crate) fn hand_over(&self) -> bool {
        let exhausted = {
            let mut progress = self.progress.lock();
            progress.phase = Phase::Queued;
            progress.attempts += 1;
            progress.attempts >= ATTEMPTS_MAX
        };
        if exhausted {
            self.finish(Err(Failure::Abandoned));
        }
        !exhausted
    }

    /// Tells every waiter that someone has to lead.
    pub(crate) fn call_leader(&self) {
        let wakers: Vec<_> = {
            let mut progress = self.progress.lock();
            progress.lead = true;
            progress.wakers.iter_mut().filter_map(Option::take).collect()
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// A place among those who wait for a flight. A future; when it says [`Waited::Lead`] it can be awaited again.
/// Dropping it gives the place up: a queued read that nobody waits for is not begun.
#[derive(Debug)]
pub struct Waiter<E> {
    flight: Arc<Flight<E>>,
    slot: usize,
}

impl<E: Clone> Future for Waiter<E> {
    type Output = Waited<E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Waited<E>> {
        let mut progress = self.flight.progress.lock();
        if let Phase::Done(result) = &progress.phase {
            return Poll::Ready(Waited::Done(result.clone()));
        }
        if progress.lead && matches!(progress.phase, Phase::Queued) {
            progress.lead = false;
            return Poll::Ready(Waited::Lead);
        }
        let slot = &mut progress.wakers[self.slot];
        if slot.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            *slot = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl<E> Drop for Waiter<E> {
    fn drop(&mut self) {
        let mut progress = self.flight.progress.lock();
        progress.waiting -= 1;
        if let Some(slot) = progress.wakers.get_mut(self.slot) {
            *slot = None;
        }
        // The one who was to lead is gone: call the others.
        if progress.lead {
            let wakers: Vec<_> = progress.wakers.iter_mut().filter_map(Option::take).collect();
            drop(progress);
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}
