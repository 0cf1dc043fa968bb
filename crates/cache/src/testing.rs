//! Door for the simulated world: what it checks and breaks inside of a cache.

use std::collections::HashMap;

use hotrow_measure::clock::Nanos;
use hotrow_types::key::{CollectionId, Key};
use hotrow_types::version::{Position, Version};

use crate::Cache;
use crate::record::{Owner, Record, RecordParts, Visibility};

impl<E: Clone> Cache<E> {
    /// Checks that the counters of each collection equal what the store holds.
    ///
    /// # Errors
    /// A description of the difference.
    pub fn check_accounting(&self) -> Result<(), String> {
        let counted: HashMap<CollectionId, [u64; 3]> = self.store.recount();
        for (id, stats) in (0..).map(CollectionId).zip(self.stats.iter()) {
            let stats = stats.snapshot();
            let booked = [stats.entries, stats.negative_entries, stats.bytes];
            let counted = counted.get(&id).copied().unwrap_or_default();
            if booked != counted {
                return Err(format!("counters of {id:?}: {booked:?}, the store: {counted:?}"));
            }
        }
        Ok(())
    }

    /// Returns how many reads of a collection are in flight or queued: none once all is quiet.
    pub fn flights(&self, collection: CollectionId) -> usize {
        self.collection(collection).0.fetch_queue.lock().in_flight.len()
    }

    /// Stores a record that no read of its key has returned: a mistake that scenarios plant.
    pub fn install(&self, key: &Key, body: &[u8], now: Nanos) {
        let (collection, _) = self.collection(key.collection());
        let position = Position { incarnation: 1, at: 1 };
        let record = Record::new(&RecordParts {
            key,
            body: Some(body),
            owner: Owner::Everybody,
            has_views: false,
            read_at: now,
            expires_at: Nanos::MAX,
            version: &Version::Log(position),
            position: Some(position),
            visibility: Visibility::Complete,
            epoch: collection.epoch(),
        });
        self.store.insert(key, &record);
    }
}
