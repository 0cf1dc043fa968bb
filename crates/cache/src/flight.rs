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
    /// It was not read: the answer would have come after every deadline of those who wait, or the queue stands and newer
    /// keys go first.
    Overdue,
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
    pub(crate) kind: Kind,
    /// Whether a batch begins with it; one key alone is a batch of one.
    pub(crate) is_first: bool,
    progress: Mutex<Progress<E>>,
}

/// Whose read a flight is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Others may join.
    Shared,
    /// Others may join; nobody waits yet: a refresh of an entry that is being served.
    Background,
    /// One request's own, never joined and never kept.
    Alone,
}

/// When somebody asks, and until when an answer is of use.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// A clock reading taken for this request.
    pub at: Nanos,
    /// From then on an answer is of no use.
    pub deadline: Nanos,
}

/// The asks of those who wait for a flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// When the first of them asked.
    pub(crate) first_at: Nanos,
    /// When the last of them asked.
    pub(crate) last_at: Nanos,
    /// The latest of their deadlines.
    pub(crate) deadline: Nanos,
}

#[derive(Debug)]
struct Progress<E> {
    phase: Phase<E>,
    /// One slot per waiter; those of waiters that left are used again, so that a read that hangs does not make them
    /// many.
    wakers: Vec<Option<Waker>>,
    free_slots: Vec<usize>,
    waiting: usize,
    /// Of those who wait; says nothing when nobody does.
    asked: Asked,
    /// Somebody who waits has to lead. Only while queued.
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
    pub(crate) fn new(key: Key, kind: Kind, is_first: bool) -> Arc<Self> {
        let progress = Progress {
            phase: Phase::Queued,
            wakers: Vec::new(),
            free_slots: Vec::new(),
            waiting: 0,
            asked: Asked { first_at: Nanos::MAX, last_at: Nanos::ZERO, deadline: Nanos::ZERO },
            lead: false,
            attempts: 0,
            floor: None,
        };
        Arc::new(Self { key, kind, is_first, progress: Mutex::new(progress) })
    }

    /// Joins what this request has queued. It leads: should it leave before it has waited, another one is called.
    pub(crate) fn join_first(self: &Arc<Self>, ask: Ask) -> Waiter<E> {
        let mut waiter = self.join(ask);
        waiter.called = true;
        waiter
    }

    /// Whoever waits next is told to lead, if nobody waits.
    pub(crate) fn want_leader(&self) {
        let mut progress = self.progress.lock();
        progress.lead |= progress.waiting == 0 && matches!(progress.phase, Phase::Queued);
    }

    pub(crate) fn join(self: &Arc<Self>, ask: Ask) -> Waiter<E> {
        let mut progress = self.progress.lock();
        if progress.waiting == 0 {
            progress.asked = Asked { first_at: ask.at, last_at: ask.at, deadline: ask.deadline };
        }
        progress.waiting += 1;
        let asked = &mut progress.asked;
        asked.first_at = asked.first_at.min(ask.at);
        asked.last_at = asked.last_at.max(ask.at);
        asked.deadline = asked.deadline.max(ask.deadline);
        let slot = progress.free_slots.pop().unwrap_or_else(|| {
            progress.wakers.push(None);
            progress.wakers.len() - 1
        });
        Waiter { flight: self.clone(), slot, called: false }
    }

    /// The lease; `None` while the flight is queued or after it is done.
    pub(crate) fn lease(&self) -> Option<Lease> {
        match self.progress.lock().phase {
            Phase::Reading(lease) => Some(lease),
            Phase::Queued | Phase::Done(_) => None,
        }
    }

    /// Slots that were made for waiters.
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

    /// The asks of those who wait; `None` when nobody does.
    pub(crate) fn asked(&self) -> Option<Asked> {
        let progress = self.progress.lock();
        (progress.waiting > 0).then_some(progress.asked)
    }

    /// Begins to read, unless nobody wants the answer any more.
    pub(crate) fn start(&self, lease: Lease) -> bool {
        let mut progress = self.progress.lock();
        let wanted = self.kind == Kind::Background || progress.waiting > 0;
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
        if !matches!(progress.phase, Phase::Reading(_)) {
            return;
        }
        progress.floor = Some(match progress.floor.take() {
            Some(floor) if floor.covers(version) => floor,
            // Neither covers the other: nothing that can be told covers both, so the flight has to be read again.
            Some(floor) if !version.covers(&floor) => Version::Unknown,
            Some(_) | None => version.clone(),
        });
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

    /// The reader was cancelled: `true` when the flight is to be queued again, `false` when it has come to its end,
    /// because nobody waits or because this was the last attempt.
    pub(crate) fn hand_over(&self) -> bool {
        let mut progress = self.progress.lock();
        progress.phase = Phase::Queued;
        progress.attempts += 1;
        progress.waiting > 0 && progress.attempts < ATTEMPTS_MAX
    }

    /// Tells every waiter that someone has to lead, unless somebody reads already. Not to be called under the desk's
    /// lock: what a waker does is not known here.
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

/// A place among those who wait for a flight. A future; when it says [`Waited::Lead`] it can be awaited again.
/// Dropping it gives the place up: a queued read that nobody waits for is not begun.
#[derive(Debug)]
pub struct Waiter<E> {
    flight: Arc<Flight<E>>,
    slot: usize,
    /// It is to lead and has not been polled since it was told.
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
        // The slot was made when this waiter joined, and slots go only when the flight is done.
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
        // The one who was to lead is gone, perhaps: call the others.
        if (progress.lead || self.called) && matches!(progress.phase, Phase::Queued) {
            progress.lead = true;
            let wakers: Vec<_> = progress.wakers.iter_mut().filter_map(Option::take).collect();
            drop(progress);
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}
