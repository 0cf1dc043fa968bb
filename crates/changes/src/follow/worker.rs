//! Waking the followers of one worker.
//!
//! The feed's thread wakes one task per worker, whatever the number of followers. That task queues
//! the worker's followers, at most once per [`ROUND_INTERVAL`]: what is released within one round
//! reaches each follower with one write. Of the queue [`TURNS_AT_ONCE`] followers have their turn,
//! then every other task that is ready: requests wait for a few followers, not for all.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;

use super::Follows;
use hotrow_answer::ready_tasks::yield_to_ready_tasks;

/// Least time between two rounds.
const ROUND_INTERVAL: Duration = Duration::from_millis(5);
/// Followers that look at the log, and write a frame, between two turns of other tasks.
const TURNS_AT_ONCE: usize = 8;

/// The followers of a worker. One thread uses it.
///
/// `H`: what answers requests under one set of settings.
#[derive(Debug)]
pub struct WorkerFollowers<H> {
    places: RefCell<Places>,
    /// The queue has followers.
    has_queue: Notify,
    /// What serves followers under the newest settings.
    newest: RefCell<Weak<H>>,
}

#[derive(Debug, Default)]
struct Places {
    list: Vec<Place>,
    free: Vec<usize>,
    /// Followers that wait for their turn. One that has ended may be left in it: the next follower
    /// of its place then has a turn without need.
    queue: VecDeque<usize>,
}

#[derive(Debug, Default)]
struct Place {
    /// `true`: there was a round since the follower has looked, or it has not seen all.
    is_called: bool,
    is_queued: bool,
    has_turn: bool,
    /// Of a follower that waits.
    waker: Option<Waker>,
}

impl Places {
    /// Queues a follower that is called and waits. Returns whether it did.
    fn enqueue(&mut self, index: usize) -> bool {
        let Some(place) = self.list.get_mut(index) else { return false };
        let is_due = place.is_called && place.waker.is_some() && !place.is_queued;
        if is_due {
            place.is_queued = true;
            self.queue.push_back(index);
        }
        is_due
    }
}

/// A follower's place; freed when dropped.
pub struct Registration<H> {
    worker: Rc<WorkerFollowers<H>>,
    index: usize,
}

impl<H> Default for WorkerFollowers<H> {
    fn default() -> Self {
        Self { places: RefCell::default(), has_queue: Notify::new(), newest: RefCell::default() }
    }
}

impl<H> WorkerFollowers<H> {
    /// Notes what serves followers under the newest settings.
    pub fn set_newest(&self, newest: &Rc<H>) {
        *self.newest.borrow_mut() = Rc::downgrade(newest);
    }

    /// Returns what serves followers under the newest settings; `None` while the worker ends.
    pub(crate) fn newest(&self) -> Option<Rc<H>> {
        self.newest.borrow().upgrade()
    }

    /// Adds a follower.
    pub fn register(self: &Rc<Self>) -> Registration<H> {
        let mut places = self.places.borrow_mut();
        let index = places.free.pop().unwrap_or_else(|| {
            places.list.push(Place::default());
            places.list.len() - 1
        });
        if let Some(place) = places.list.get_mut(index) {
            *place = Place::default();
        }
        Registration { worker: Rc::clone(self), index }
    }

    /// Wakes the followers whenever there is something for them. Without end.
    pub async fn attend(&self, follows: Option<Arc<Follows>>) -> Infallible {
        let Some(follows) = follows else { return std::future::pending().await };
        tokio::select! {
            never = self.call(&follows) => never,
            never = self.grant() => never,
        }
    }

    async fn call(&self, follows: &Follows) -> Infallible {
        let mut version = follows.version.subscribe();
        loop {
            if version.changed().await.is_err() {
                return std::future::pending().await;
            }
            self.call_all();
            tokio::time::sleep(ROUND_INTERVAL).await;
        }
    }

    fn call_all(&self) {
        let mut places = self.places.borrow_mut();
        for index in 0..places.list.len() {
            places.list[index].is_called = true;
            places.enqueue(index);
        }
        self.has_queue.notify_one();
    }

    async fn grant(&self) -> Infallible {
        loop {
            self.has_queue.notified().await;
            while self.grant_turns() > 0 {
                yield_to_ready_tasks().await;
                // Those too of which only the kernel knows.
                tokio::task::yield_now().await;
            }
        }
    }

    /// Wakes the first followers of the queue. Returns their number.
    fn grant_turns(&self) -> usize {
        let mut places = self.places.borrow_mut();
        let count = places.queue.len().min(TURNS_AT_ONCE);
        let first: Vec<usize> = places.queue.drain(..count).collect();
        let granted: Vec<Waker> = first
            .into_iter()
            .filter_map(|index| {
                let place = places.list.get_mut(index)?;
                (place.is_queued, place.has_turn) = (false, true);
                place.waker.take()
            })
            .collect();
        // The code of a waker is unknown here.
        drop(places);
        granted.into_iter().for_each(Waker::wake);
        count
    }
}

impl<H> Registration<H> {
    /// Waits for its turn after a round that was not waited for yet.
    pub async fn called(&self) {
        poll_fn(|cx| {
            let mut places = self.worker.places.borrow_mut();
            let Some(place) = places.list.get_mut(self.index) else { return Poll::Pending };
            if std::mem::take(&mut place.has_turn) {
                place.is_called = false;
                return Poll::Ready(());
            }
            place.waker = Some(cx.waker().clone());
            if places.enqueue(self.index) {
                self.worker.has_queue.notify_one();
            }
            Poll::Pending
        })
        .await;
    }

    /// Waits for another turn.
    pub async fn called_again(&self) {
        if let Some(place) = self.worker.places.borrow_mut().list.get_mut(self.index) {
            place.is_called = true;
        }
        self.called().await;
    }

    /// Returns what serves followers under the newest settings.
    pub fn newest(&self) -> Option<Rc<H>> {
        self.worker.newest()
    }
}

impl<H> Drop for Registration<H> {
    fn drop(&mut self) {
        let mut places = self.worker.places.borrow_mut();
        if let Some(place) = places.list.get_mut(self.index) {
            place.waker = None;
        }
        places.free.push(self.index);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::Context;

    use super::*;

    /// Returns whether a follower is called, if it has its turn.
    fn is_called(registration: &Registration<()>) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        let mut called = pin!(registration.called());
        let is_ready = called.as_mut().poll(&mut cx).is_ready();
        registration.worker.grant_turns();
        is_ready || called.poll(&mut cx).is_ready()
    }

    #[test]
    fn a_few_followers_have_their_turn_at_once() {
        let worker = Rc::new(WorkerFollowers::default());
        let all: Vec<Registration<()>> = (0..100).map(|_| worker.register()).collect();
        let mut cx = Context::from_waker(Waker::noop());
        let mut ready = || {
            let is_ready = |one: &&Registration<()>| pin!(one.called()).poll(&mut cx).is_ready();
            all.iter().filter(is_ready).count()
        };
        assert_eq!(ready(), 0);
        worker.call_all();
        for round in 0..100 / TURNS_AT_ONCE {
            assert_eq!(worker.grant_turns(), TURNS_AT_ONCE, "{round}");
            assert_eq!(ready(), TURNS_AT_ONCE, "{round}");
        }
        assert_eq!((worker.grant_turns(), ready(), worker.grant_turns()), (4, 4, 0));
        assert!(pin!(all[0].called_again()).poll(&mut cx).is_pending());
        assert_eq!(worker.grant_turns(), 1, "it has not seen all");
    }

    #[test]
    fn a_round_between_a_look_and_the_wait_is_not_missed() {
        let worker = Rc::new(WorkerFollowers::default());
        let first = worker.register();
        let second = worker.register();
        assert!(!is_called(&first));
        worker.call_all();
        assert!(is_called(&first) && !is_called(&first));
        drop(first);
        let third = worker.register();
        assert!(!is_called(&third), "a place that was used before");
        assert!(is_called(&second));
        assert_eq!(worker.places.borrow().list.len(), 2);
    }
}
