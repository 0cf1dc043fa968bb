//! Single flight: one read of one key and all its waiters.
//!
//! A flight is queued first and takes its lease when its query is sent. Requests may join a queued
//! flight at any time, and a flight being read only while its lease is alive (`fetch_queue`
//! decides). A flight whose loader was cancelled returns to the queue, and one of its waiters is
//! asked to lead.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use hotrow_measure::clock::Nanos;

use crate::lookup_error::LookupError;
use crate::record::{Epoch, Record};
use crate::sync::Mutex;
use hotrow_types::key::Key;
use hotrow_types::version::Version;

/// Most times that a flight is queued again after its loader was cancelled; then its waiters get an
/// error.
pub const ATTEMPTS_MAX: u8 = 3;

/// Result of waiting.
#[derive(Debug)]
pub enum Waited<E> {
    /// The answer.
    Done(Result<Record, LookupError<E>>),
    /// The loader of this key was cancelled: call [`crate::Cache::batch_loader`], carry out its
    /// batches, and wait again.
    Lead,
}

#[derive(Debug)]
pub(crate) struct Flight<E> {
    pub(crate) key: Key,
    pub(crate) kind: Kind,
    /// `true`: the flight begins a batch. A single key is a batch of one.
    pub(crate) is_first: bool,
    progress: Mutex<Progress<E>>,
}

/// Kind of request that a flight serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Other requests may join.
    Shared,
    /// Other requests may join; none waits yet. A refresh of an entry that is being served.
    Background,
    /// Like `Background`, after a start: the record was hot before. Its absence is not stored.
    WarmUp,
    /// A single request; never joined and never stored.
    Alone,
}

impl Kind {
    /// Returns whether the read begins although no request waits for it.
    fn needs_no_waiter(self) -> bool {
        matches!(self, Self::Background | Self::WarmUp)
    }
}

/// Time and deadline of a request.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// A clock reading taken for this request.
    pub at: Nanos,
    /// Time from which an answer is useless.
    pub deadline: Nanos,
}

/// Times and deadlines of all waiters of a flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaiterTimes {
    /// Time of the first request.
    pub(crate) first_at: Nanos,
    /// Time of the last request.
    pub(crate) last_at: Nanos,
    /// The latest deadline.
    pub(crate) deadline: Nanos,
}

#[derive(Debug)]
struct Progress<E> {
    phase: Phase<E>,
    /// One slot per waiter. Slots of waiters that left are reused, so that a read that hangs does
    /// not accumulate them.
    wakers: Vec<Option<Waker>>,
    free_slots: Vec<usize>,
    waiting: usize,
    /// Meaningless without waiters.
    times: WaiterTimes,
    /// `true`: a waiter must lead. Only while queued.
    lead: bool,
    attempts: u8,
    /// Only the primary may answer.
    needs_primary: bool,
    /// Newest version that another flight answered for this key while this one was in flight.
    floor: Option<Version>,
}

/// Progress of a flight.
#[derive(Debug)]
enum Phase<E> {
    Queued,
    Reading(Lease),
    Done(Result<Record, LookupError<E>>),
}

/// Facts that a fill relies on, taken when the query is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    pub(crate) started_at: Nanos,
    pub(crate) epoch: Epoch,
    /// Number of the query, for the fence.
    pub(crate) query: u64,
    /// A standby is read: the answer shows what the feed had delivered when the query was sent, not
    /// what had been committed then.
    pub(crate) is_of_standby: bool,
}

impl<E: Clone> Flight<E> {
    pub(crate) fn new(key: Key, kind: Kind, is_first: bool) -> Arc<Self> {
        let progress = Progress {
            phase: Phase::Queued,
            wakers: Vec::new(),
            free_slots: Vec::new(),
            waiting: 0,
            times: WaiterTimes {
                first_at: Nanos::MAX,
                last_at: Nanos::ZERO,
                deadline: Nanos::ZERO,
            },
            lead: false,
            attempts: 0,
            needs_primary: false,
            floor: None,
        };
        Arc::new(Self { key, kind, is_first, progress: Mutex::new(progress) })
    }

    /// Joins a flight that this request has queued, as its leader. If the request leaves before it
    /// has waited, another waiter is asked to lead.
    pub(crate) fn join_first(self: &Arc<Self>, ask: Ask) -> Waiter<E> {
        let mut waiter = self.join(ask);
        waiter.called = true;
        waiter
    }

    /// Asks the next waiter to lead, if there is none yet.
    pub(crate) fn want_leader(&self) {
        let mut progress = self.progress.lock();
        progress.lead |= progress.waiting == 0 && matches!(progress.phase, Phase::Queued);
    }

    pub(crate) fn join(self: &Arc<Self>, ask: Ask) -> Waiter<E> {
        let mut progress = self.progress.lock();
        if progress.waiting == 0 {
            progress.times =
                WaiterTimes { first_at: ask.at, last_at: ask.at, deadline: ask.deadline };
        }
        progress.waiting += 1;
        let times = &mut progress.times;
        times.first_at = times.first_at.min(ask.at);
        times.last_at = times.last_at.max(ask.at);
        times.deadline = times.deadline.max(ask.deadline);
        let slot = progress.free_slots.pop().unwrap_or_else(|| {
            progress.wakers.push(None);
            progress.wakers.len() - 1
        });
        Waiter { flight: self.clone(), slot, called: false }
    }

    /// Returns the lease; `None` while the flight is queued and after it is done.
    pub(crate) fn lease(&self) -> Option<Lease> {
        match self.progress.lock().phase {
            Phase::Reading(lease) => Some(lease),
            Phase::Queued | Phase::Done(_) => None,
        }
    }

    /// Returns the number of slots made for waiters.
    #[cfg(test)]
    #[cfg(not(feature = "shuttle"))]
    pub(crate) fn slots(&self) -> usize {
        self.progress.lock().wakers.len()
    }

    pub(crate) fn is_queued(&self) -> bool {
        matches!(self.progress.lock().phase, Phase::Queued)
    }

    pub(crate) fn has_waiters(&self) -> bool {
        self.progress.lock().waiting > 0
    }

    /// Returns times and deadlines of the waiters; `None` without waiters.
    pub(crate) fn waiter_times(&self) -> Option<WaiterTimes> {
        let progress = self.progress.lock();
        (progress.waiting > 0).then_some(progress.times)
    }

    /// Begins the read, unless no waiter is left.
    pub(crate) fn start(&self, lease: Lease) -> bool {
        let mut progress = self.progress.lock();
        let wanted = self.kind.needs_no_waiter() || progress.waiting > 0;
        if wanted {
            progress.phase = Phase::Reading(lease);
            progress.lead = false;
            progress.floor = None;
        }
        wanted
    }

    /// Requires an answer of the primary, now and when it is read again.
    pub(crate) fn require_primary(&self) {
        self.progress.lock().needs_primary = true;
    }

    /// Returns whether a standby may answer.
    pub(crate) fn permits_standby(&self) -> bool {
        self.kind != Kind::Alone && !self.progress.lock().needs_primary
    }

    /// Notes that its query goes to a standby.
    pub(crate) fn read_standby(&self) {
        if let Phase::Reading(lease) = &mut self.progress.lock().phase {
            lease.is_of_standby = true;
        }
    }

    /// Notes that `version` was answered for this key by another flight while this one is in
    /// flight.
    pub(crate) fn raise_floor(&self, version: &Version) {
        let mut progress = self.progress.lock();
        if !matches!(progress.phase, Phase::Reading(_)) {
            return;
        }
        progress.floor = Some(match progress.floor.take() {
            Some(floor) if floor.dominates(version) => floor,
            // Neither dominates the other, and no version is known that dominates both: the flight
            // has to be read again.
            Some(floor) if !version.dominates(&floor) => Version::Unknown,
            Some(_) | None => version.clone(),
        });
    }

    /// Returns whether an answer of `version` may be given: no newer one was answered while it was
    /// in flight. Otherwise the flight is queued again, and its next read begins after that newer
    /// answer.
    pub(crate) fn accept(&self, version: &Version) -> bool {
        let mut progress = self.progress.lock();
        let good = progress.floor.as_ref().is_none_or(|floor| version.dominates(floor));
        if !good {
            progress.phase = Phase::Queued;
        }
        good
    }

    /// Queues the flight again because its query did not reach it; its next read begins later than
    /// now.
    pub(crate) fn requeue(&self) {
        self.progress.lock().phase = Phase::Queued;
    }

    /// Returns whether its answer is still wanted.
    pub(crate) fn is_wanted(&self) -> bool {
        self.kind.needs_no_waiter() || self.has_waiters()
    }

    pub(crate) fn finish(&self, result: Result<Record, LookupError<E>>) {
        let wakers = {
            let mut progress = self.progress.lock();
            progress.phase = Phase::Done(result);
            std::mem::take(&mut progress.wakers)
        };
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    /// Handles the loader's cancellation. Returns `true` when the flight must be queued again,
    /// `false` when it is done because it has no waiters or this was the last attempt.
    pub(crate) fn hand_over(&self) -> bool {
        let mut progress = self.progress.lock();
        progress.phase = Phase::Queued;
        progress.attempts += 1;
        progress.waiting > 0 && progress.attempts < ATTEMPTS_MAX
    }

    /// Asks all waiters to lead, unless a loader is at work. Must not be called under the queue's
    /// lock, because the code of a waker is unknown here.
    pub(crate) fn call_leader(&self) {
        let wakers: Vec<_> = {
            let mut progress = self.progress.lock();
            if !matches!(progress.phase, Phase::Queued) {
                return;
            }
            progress.lead = true;
            progress.wakers.iter_mut().filter_map(Option::take).collect()
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// A waiter of a flight. A future; after [`Waited::Lead`] it can be awaited again. Dropping it
/// leaves the flight: a queued read without waiters is never begun.
#[derive(Debug)]
pub struct Waiter<E> {
    flight: Arc<Flight<E>>,
    slot: usize,
    /// `true`: it was asked to lead and has not been polled since.
    called: bool,
}

impl<E: Clone> Future for Waiter<E> {
    type Output = Waited<E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Waited<E>> {
        let Self { flight, slot, called } = &mut *self;
        let mut progress = flight.progress.lock();
        *called = false;
        if let Phase::Done(result) = &progress.phase {
            return Poll::Ready(Waited::Done(result.clone()));
        }
        if progress.lead && matches!(progress.phase, Phase::Queued) {
            progress.lead = false;
            *called = true;
            return Poll::Ready(Waited::Lead);
        }
        // The slot was made when this waiter joined; slots are removed only when the flight is
        // done.
        let slot = &mut progress.wakers[*slot];
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
            progress.free_slots.push(self.slot);
        }
        // The waiter that was to lead may be gone: ask the others.
        if (progress.lead || self.called) && matches!(progress.phase, Phase::Queued) {
            progress.lead = true;
            let wakers: Vec<_> = progress.wakers.iter_mut().filter_map(Option::take).collect();
            drop(progress);
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}
