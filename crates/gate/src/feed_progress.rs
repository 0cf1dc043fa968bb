//! Progress of a feed, for requests that wait for a position.

use std::time::Duration;

use hotrow_cache::{Cache, NotReached, StandbyBound};
use hotrow_source::ReadFailure;
use hotrow_types::key::CollectionId;
use hotrow_types::source::SourceId;
use hotrow_types::version::Position;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Progress of the feed, for requests that wait for a position.
#[derive(Debug, Default)]
pub struct FeedProgress {
    /// Notified whenever the feed progresses.
    moved: Notify,
}

impl FeedProgress {
    /// Wakes the requests that wait, after the cache has applied changes.
    pub fn moved(&self) {
        self.moved.notify_waiters();
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
