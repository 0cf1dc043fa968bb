//! Places where tests can hold a query, whatever the engine.

use std::sync::Arc;

use hotrow_cache::key::{CollectionId, Key};

/// What a [`Hooks`] closure gets: the collection and the keys of a query.
pub type Hook = Arc<dyn Fn(CollectionId, &[Key]) + Send + Sync>;

/// Places where tests can hold a query, to force an order of events. By default nothing happens there. A hook that waits blocks
/// whoever reads: a reader's thread (SQLite), the task that asked (PostgreSQL).
#[derive(Clone, Default)]
pub struct Hooks {
    /// Called before the query is sent.
    pub before_read: Option<Hook>,
    /// Called between the database's answer and its delivery.
    pub after_read: Option<Hook>,
}

impl Hooks {
    pub(crate) fn before_read(&self, collection: CollectionId, keys: &[Key]) {
        if let Some(hook) = &self.before_read {
            hook(collection, keys);
        }
    }

    pub(crate) fn after_read(&self, collection: CollectionId, keys: &[Key]) {
        if let Some(hook) = &self.after_read {
            hook(collection, keys);
        }
    }
}
