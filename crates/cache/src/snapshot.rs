//! Snapshot batches: records of several keys as they were at one point of the log.
//!
//! A record shows its key at some point of the log, and nothing past the position that it carries.
//! If the feed has applied the log up to that position, and no change of the key has been delivered
//! since, the record is that of the applied point. So a request registers its keys, takes records,
//! waits until the feed has passed the largest of their positions, and asks which keys have changed
//! (`marks`).
//!
//! A record of memory whose position the feed had passed *before* it was taken needs neither the
//! registration nor the wait: a change would have removed it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use hotrow_measure::clock::Nanos;
use hotrow_types::key::{CollectionId, Key};
use hotrow_types::version::{Position, Version};

use crate::cache::Cache;
use crate::config::CollectionPolicy;
use crate::fetch_queue::FetchQueue;
use crate::record::{Epoch, Record, RecordParts, Visibility, owned_row};
use crate::safeguards::Safeguard;

/// Keys of one collection that a snapshot batch has registered.
struct Registered {
    collection: CollectionId,
    keys: Vec<Key>,
    /// Per key, the changes counted so far.
    seen: Vec<u64>,
    of_all: u64,
    /// The read transaction, for the fence, and the epoch in which it was sent.
    query: Option<(u64, Epoch)>,
}

/// The registered keys of a snapshot batch. Dropped, it unregisters them.
pub struct SnapshotKeys<E: Clone> {
    cache: Arc<Cache<E>>,
    parts: Vec<Registered>,
}

impl<E: Clone> Cache<E> {
    /// Registers the distinct keys of a snapshot batch: those of each collection, which is named
    /// once. Call it before their records are looked up.
    pub fn register_snapshot<'a>(
        self: &Arc<Self>,
        parts: impl IntoIterator<Item = (CollectionId, &'a [Key])>,
    ) -> SnapshotKeys<E> {
        let parts = parts.into_iter().map(|(collection, keys)| {
            let mut fetches = self.collection(collection).0.fetch_queue.lock();
            let seen = keys.iter().map(|key| fetches.marks.register(key)).collect();
            let of_all = fetches.marks.of_all;
            Registered { collection, keys: keys.to_vec(), seen, of_all, query: None }
        });
        SnapshotKeys { cache: Arc::clone(self), parts: parts.collect() }
    }

    /// Returns whether several keys may name one record of the collection. A change is delivered
    /// under one of them and marks no other.
    pub fn has_several_spellings(&self, collection: CollectionId) -> bool {
        self.collection(collection).0.has_aliases.load(Relaxed)
    }

    /// Returns the record of a row that a read transaction found, or of its absence.
    pub fn snapshot_record(
        &self,
        key: &Key,
        row: Option<&[u8]>,
        (version, position): (&Version, Position),
        read_at: Nanos,
    ) -> Record {
        let policy: &CollectionPolicy = self.policy(key.collection());
        let (owner, body) = owned_row(policy, row);
        let record = Record::new(&RecordParts {
            key,
            body,
            owner,
            has_views: policy.has_views,
            read_at,
            expires_at: read_at,
            version,
            position: Some(position),
            visibility: Visibility::Complete,
            epoch: self.collection(key.collection()).0.epoch(),
        });
        // No lease guards it.
        record.note_unproven();
        record
    }
}

impl<E: Clone> SnapshotKeys<E> {
    /// Returns, per collection, the places of keys that have changed since they were registered or
    /// returned here last. Read the applied point of the log before.
    pub fn take_changed(&mut self) -> Vec<Vec<usize>> {
        let cache = Arc::clone(&self.cache);
        let is_enabled = cache.safeguards.has(Safeguard::SnapshotMarks);
        let changed = self.parts.iter_mut().map(|part| {
            let (collection, _) = cache.collection(part.collection);
            let fetches = collection.fetch_queue.lock();
            let marks = &fetches.marks;
            // In a gap changes are not delivered, or in part.
            let is_all = part.of_all != marks.of_all || collection.has_gap();
            part.of_all = marks.of_all;
            let mut places = Vec::new();
            for (place, (key, seen)) in part.keys.iter().zip(&mut part.seen).enumerate() {
                let changes = marks.changes(key);
                if (is_all || *seen != changes) && is_enabled {
                    places.push(place);
                }
                *seen = changes;
            }
            places
        });
        changed.collect()
    }

    /// Notes that a read transaction of all keys is about to be sent: until [`Self::lacks`], the
    /// fence forgets no change that it may not see.
    pub fn transaction_sent(&mut self) {
        let cache = Arc::clone(&self.cache);
        for part in &mut self.parts {
            let (collection, _) = cache.collection(part.collection);
            let mut fetches = collection.fetch_queue.lock();
            end_query(&mut fetches, part);
            part.query = Some((fetches.fence.query_sent(), collection.epoch()));
        }
    }

    /// Returns whether the transaction may lack a change of its keys up to the point `end` of the
    /// log, which the feed has passed: its rows are not those of that point.
    pub fn lacks(&mut self, version: &Version, end: &Position) -> bool {
        let cache = Arc::clone(&self.cache);
        let is_enabled = cache.safeguards.has(Safeguard::SnapshotFence);
        let mut lacks = false;
        for part in &mut self.parts {
            let (collection, _) = cache.collection(part.collection);
            let mut fetches = collection.fetch_queue.lock();
            // A feed that starts forgets what its predecessor delivered.
            let is_same_epoch = part.query.is_some_and(|(_, epoch)| epoch == collection.epoch());
            let fence = &fetches.fence;
            // Another spelling of a key may be the one that the feed reports.
            let has_spellings = collection.has_aliases.load(Relaxed);
            let is_hidden =
                |key: &Key| fence.hides_up_to((!has_spellings).then_some(key), version, end.at);
            let is_hidden = is_enabled && !fence.is_open() && part.keys.iter().any(is_hidden);
            lacks |= is_hidden || !is_same_epoch || collection.has_gap();
            end_query(&mut fetches, part);
        }
        lacks
    }
}

fn end_query<E: Clone>(fetches: &mut FetchQueue<E>, part: &mut Registered) {
    if let Some((query, _)) = part.query.take() {
        fetches.fence.query_ended(query);
    }
}

impl<E: Clone> Drop for SnapshotKeys<E> {
    fn drop(&mut self) {
        for part in &mut self.parts {
            let mut fetches = self.cache.collection(part.collection).0.fetch_queue.lock();
            end_query(&mut fetches, part);
            part.keys.iter().for_each(|key| fetches.marks.unregister(key));
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
