//! Waking the followers of one worker.
//!
//! The feed's thread wakes one task per worker, whatever the number of followers. That task wakes
//! the worker's followers, at most once per [`ROUND_INTERVAL`]: what is released within one round
//! reaches each follower with one write.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use super::Follows;
use crate::handle::Handler;

/// Least time between two rounds.
const ROUND_INTERVAL: Duration = Duration::from_millis(5);

/// The followers of a worker. One thread uses it.
#[derive(Debug, Default)]
pub(crate) struct WorkerFollowers {
    places: RefCell<Places>,
    /// The handler under the newest settings.
    newest: RefCell<Weak<Handler>>,
}

#[derive(Debug, Default)]
struct Places {
    list: Vec<Place>,
    free: Vec<usize>,
}

#[derive(Debug, Default)]
struct Place {
    /// `true`: there was a round since the follower has looked.
    is_called: bool,
    waker: Option<Waker>,
}

/// A follower's place; freed when dropped.
#[derive(Debug)]
pub(super) struct Registration {
    worker: Rc<WorkerFollowers>,
    index: usize,
}

impl WorkerFollowers {
    /// Notes the handler under the newest settings.
    pub(crate) fn set_newest(&self, handler: &Rc<Handler>) {
        *self.newest.borrow_mut() = Rc::downgrade(handler);
    }

    /// Returns the handler under the newest settings; `None` while the worker ends.
    pub(super) fn newest(&self) -> Option<Rc<Handler>> {
        self.newest.borrow().upgrade()
    }

    pub(super) fn register(self: &Rc<Self>) -> Registration {
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
    pub(crate) async fn attend(&self, follows: Option<Arc<Follows>>) -> Infallible {
        let Some(follows) = follows else { return std::future::pending().await };
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
        let called: Vec<Waker> = places
            .list
            .iter_mut()
            .filter_map(|place| {
                place.is_called = true;
                place.waker.take()
            })
            .collect();
        // The code of a waker is unknown here.
        drop(places);
        called.into_iter().for_each(Waker::wake);
    }
}

impl Registration {
    /// Waits for a round after the last one that was waited for.
    pub(super) async fn called(&self) {
        poll_fn(|cx| {
            let mut places = self.worker.places.borrow_mut();
            let Some(place) = places.list.get_mut(self.index) else { return Poll::Pending };
            if std::mem::take(&mut place.is_called) {
                return Poll::Ready(());
            }
            place.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Returns the handler under the newest settings.
    pub(super) fn newest_handler(&self) -> Option<Rc<Handler>> {
        self.worker.newest()
    }
}

impl Drop for Registration {
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

    fn is_called(registration: &Registration) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        pin!(registration.called()).poll(&mut cx).is_ready()
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
