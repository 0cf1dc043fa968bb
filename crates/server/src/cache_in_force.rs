//! The cache that readers use while a reload may replace it.

use std::sync::Arc;

use hotrow_cache::Cache;
use hotrow_source::ReadFailure;
use parking_lot::Mutex;

/// The cache under the settings in force, for readers that outlive them. Locked once per query.
pub(crate) struct CacheInForce(Mutex<Arc<Cache<ReadFailure>>>);

impl CacheInForce {
    pub(crate) fn new(cache: Arc<Cache<ReadFailure>>) -> Self {
        Self(Mutex::new(cache))
    }

    pub(crate) fn get(&self) -> Arc<Cache<ReadFailure>> {
        Arc::clone(&self.0.lock())
    }

    pub(crate) fn set(&self, cache: Arc<Cache<ReadFailure>>) {
        *self.0.lock() = cache;
    }
}
