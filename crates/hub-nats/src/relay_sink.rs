//! What the engine's feed reports, for the publisher.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hotrow_hub::message::{Event, FlushReason, Mark};
use hotrow_hub::publisher::{Publisher, mark_of};
use hotrow_hub::tag::Tag;
use hotrow_measure::clock::Nanos;
use hotrow_source::looks::Looks;
use hotrow_source::origin::Origins;
use hotrow_source::place::Place;
use hotrow_source::{Change, FlushCause, LossCause, Sink};
use hotrow_types::key::CollectionId;
use hotrow_types::landmark::Landmark;
use hotrow_types::version::{ChangeId, Position, Version};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// State of a term, shared by the feed and the task that publishes.
pub(crate) struct Shared {
    pub(crate) publisher: Mutex<Publisher>,
    /// Something waits to be published.
    pub(crate) changed: Notify,
    /// Time before which every commit was delivered; 0 while no feed runs.
    pub(crate) delivered_at: AtomicU64,
    /// Time until which the lease is owned.
    pub(crate) owned_until: Mutex<Instant>,
    /// What the feed waits for before it can start.
    pub(crate) waits_for: Mutex<Option<String>>,
}

pub(crate) struct RelaySink {
    pub(crate) shared: Arc<Shared>,
    pub(crate) tags: Arc<[Tag]>,
    pub(crate) origins: Arc<Origins>,
}

impl RelaySink {
    fn tag(&self, collection: CollectionId) -> Option<Tag> {
        self.tags.get(usize::from(collection.0)).copied()
    }

    fn publish(&self, act: impl FnOnce(&mut Publisher)) {
        act(&mut self.shared.publisher.lock());
        self.shared.changed.notify_one();
    }
}

/// Returns the mark for messages. The configuration refuses engines whose marks they cannot carry.
fn mark(change: ChangeId) -> Option<Mark> {
    let mark = mark_of(change);
    if mark.is_none() {
        tracing::error!(?change, "the hub cannot carry this change; please report it");
    }
    mark
}

impl Sink for RelaySink {
    fn changes(&self, changes: &[Change]) {
        self.publish(|publisher| {
            for change in changes {
                let event = self.tag(change.key.collection()).zip(mark(change.mark));
                let Some((collection, mark)) = event else {
                    publisher.failed("a change cannot be published");
                    continue;
                };
                let key = change.key.encoded_columns().into();
                publisher.deliver(Event::Change { collection, key, mark });
            }
        });
    }

    fn flush(&self, collection: CollectionId, cause: FlushCause, change: Option<ChangeId>) {
        let cause = match cause {
            FlushCause::Schema => FlushReason::Schema,
            FlushCause::Unlisted => FlushReason::Unlisted,
            FlushCause::Bulk | FlushCause::Gap => FlushReason::Bulk,
        };
        let Some(collection) = self.tag(collection) else { return };
        self.publish(|publisher| {
            publisher.deliver(Event::Flush { collection, cause, mark: change.and_then(mark) });
        });
    }

    fn open_gap(&self, collection: CollectionId, detail: &str) {
        let Some(collection) = self.tag(collection) else { return };
        let detail = detail.to_owned();
        self.publish(|publisher| publisher.deliver(Event::OpenGap { collection, detail }));
    }

    fn close_gap(&self, collection: CollectionId) {
        let Some(collection) = self.tag(collection) else { return };
        self.publish(|publisher| publisher.deliver(Event::CloseGap { collection }));
    }

    fn loss(&self, cause: LossCause, detail: &str) {
        self.shared.delivered_at.store(0, Ordering::Release);
        // One of fewer than 256 causes.
        self.publish(|publisher| publisher.feed_lost(cause as u8, detail));
    }

    fn started(&self, position: Option<Position>) {
        let at = position.map_or(0, |position| position.at);
        self.publish(|publisher| publisher.feed_started(self.origin(), at));
    }

    fn advance(&self, probe_sent_at: Nanos, position: Option<Position>, visible: Option<&Version>) {
        self.shared.delivered_at.store(probe_sent_at.0, Ordering::Release);
        let at = position.map_or(0, |position| position.at);
        self.publish(|publisher| publisher.advance(probe_sent_at, at, visible));
    }

    fn looks(&self) -> Option<&Looks> {
        None
    }
}

impl RelaySink {
    fn origin(&self) -> String {
        self.origins.current().map(|origin| origin.name).unwrap_or_default()
    }

    /// Adds the collections and their keys to a digest of the engine.
    fn digest(&self, watched: u64) -> u64 {
        let mut hasher = DefaultHasher::new();
        (watched, &self.tags).hash(&mut hasher);
        hasher.finish()
    }
}

impl Place for RelaySink {
    fn resumed(&self, position: Position, watched: u64) {
        let watched = Some(self.digest(watched));
        self.publish(|publisher| publisher.feed_resumed(self.origin(), position.at, watched));
    }

    fn settled(&self) {
        self.publish(Publisher::settled);
    }

    fn watching(&self, watched: Option<u64>) {
        let watched = watched.map(|watched| self.digest(watched));
        self.publish(|publisher| publisher.watching(watched));
    }

    fn confirmable(&self) -> u64 {
        self.shared.publisher.lock().confirmable()
    }

    fn landmark(&self) -> Option<Landmark> {
        self.shared.publisher.lock().landmark()
    }

    fn passed(&self, landmark: Landmark) {
        self.publish(|publisher| publisher.passed(landmark));
    }

    fn is_entitled(&self) -> bool {
        Instant::now() < *self.shared.owned_until.lock()
    }

    fn waits_for(&self, what: Option<&str>) {
        *self.shared.waits_for.lock() = what.map(str::to_owned);
    }
}
