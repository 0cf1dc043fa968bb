//! The cache that readers use while a reload may replace it.

use std::sync::Arc;

use hotrow_cache::Cache;
use hotrow_source::ReadFailure;
use parking_lot::Mutex;

/// The cache under the settings in force, for readers that outlive them. Locked once per query.
pub struct CacheInForce(Mutex<Arc<Cache<ReadFailure>>>);

impl CacheInForce {
    /// Begins with this cache.
    pub fn new(cache: Arc<Cache<ReadFailure>>) -> Self {
        Self(Mutex::new(cache))
    }

    /// Returns the cache under the newest settings.
    pub fn get(&self) -> Arc<Cache<ReadFailure>> {
        Arc::clone(&self.0.lock())
    }

    /// Replaces it by the same cache under other settings.
    pub fn set(&self, cache: Arc<Cache<ReadFailure>>) {
        *self.0.lock() = cache;
    }
}
