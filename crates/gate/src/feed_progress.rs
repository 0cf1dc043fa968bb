//! Progress of a feed, for requests that wait for a position.

use std::time::Duration;

use hotrow_cache::{Cache, NotReached, StandbyBound};
use hotrow_measure::clock::Nanos;
use hotrow_source::ReadFailure;
use hotrow_types::key::CollectionId;
use hotrow_types::source::SourceId;
use hotrow_types::version::Position;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Progress of the feed, for requests that wait for a position.
#[derive(Debug, Default)]
pub struct FeedProgress {
    /// Notified whenever the feed progresses.
    moved: Notify,
    /// Incarnation of the log, and the time at which it replaced another one.
    log: Mutex<(Option<u64>, Option<Nanos>)>,
}

impl FeedProgress {
    /// Wakes the requests that wait, after the cache has applied changes.
    pub fn moved(&self) {
        self.moved.notify_waiters();
    }

    /// Records that a feed begins in a log.
    pub fn began(&self, incarnation: u64, now: Nanos) {
        let mut log = self.log.lock();
        if log.0.replace(incarnation).is_some_and(|before| before != incarnation) {
            log.1 = Some(now);
        }
    }

    /// Returns whether the log has replaced another one within `time`.
    pub fn is_new_log(&self, now: Nanos, time: Duration) -> bool {
        self.log.lock().1.is_some_and(|at| now.since(at) < time)
    }

    /// Waits until the feed has delivered what a standby's answer may show. Returns a point past
    /// all of it; `None` after `wait_max`.
    pub(crate) async fn delivered_through(
        &self,
        (cache, source): (&Cache<ReadFailure>, SourceId),
        floor: Position,
        bound: StandbyBound,
        wait_max: Duration,
    ) -> Option<Position> {
        let deadline = Instant::now() + wait_max;
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            // Registered before the check, so that progress in between is not missed.
            moved.as_mut().enable();
            let through = cache.delivered_through(source, floor, bound);
            if through.is_some() || tokio::time::timeout_at(deadline, moved).await.is_err() {
                return through;
            }
        }
    }

    /// Returns whether the feed passes the position within `wait_max`, and before `until`.
    ///
    /// # Errors
    /// The feed cannot pass it.
    pub async fn passes(
        &self,
        (cache, collection): (&Cache<ReadFailure>, CollectionId),
        wanted: Position,
        until: Instant,
        wait_max: Duration,
    ) -> Result<bool, NotReached> {
        let deadline = until.min(Instant::now() + wait_max);
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            // Registered before the check, so that progress in between is not missed.
            moved.as_mut().enable();
            if cache.has_passed(collection, &wanted)? {
                return Ok(true);
            }
            if tokio::time::timeout_at(deadline, moved).await.is_err() {
                return Ok(false);
            }
        }
    }
}
