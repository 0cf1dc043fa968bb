//! Hooks through which tests hold a query at a known point, for all engines.

use std::sync::Arc;

use hotrow_types::key::{CollectionId, Key};

/// Closure of [`Hooks`]; receives the collection and the keys of a query.
pub type Hook = Arc<dyn Fn(CollectionId, &[Key]) + Send + Sync>;

/// Hooks around a query, so that tests can force an order of events. By default they do nothing. A
/// hook that waits blocks the reader: a reader's thread (SQLite) or the calling task (PostgreSQL).
#[derive(Clone, Default)]
pub struct Hooks {
    /// Called before the query is sent.
    pub before_read: Option<Hook>,
    /// Called between the database's answer and its delivery.
    pub after_read: Option<Hook>,
}

impl Hooks {
    /// Calls the hook before a query is sent.
    pub fn before_read(&self, collection: CollectionId, keys: &[Key]) {
        if let Some(hook) = &self.before_read {
            hook(collection, keys);
        }
    }

    /// Calls the hook after a query has been answered.
    pub fn after_read(&self, collection: CollectionId, keys: &[Key]) {
        if let Some(hook) = &self.after_read {
            hook(collection, keys);
        }
    }
}
