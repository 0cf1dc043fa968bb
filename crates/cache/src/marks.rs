//! Marks of the keys that snapshot batches have registered: a change, a flush, a gap or a loss
//! marks the keys that it concerns, under the lock of their collection and before the feed reports
//! its progress. An eviction marks nothing.
//!
//! Registered keys are bounded by `max_batch` times the requests in flight.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use hotrow_types::key::Key;

/// Changes of the registered keys of one collection.
#[derive(Debug)]
pub(crate) struct Marks {
    keys: HashMap<Key, Mark, FixedState>,
    /// Changes of every key.
    pub(crate) of_all: u64,
}

/// Changes of one registered key.
#[derive(Debug, Default)]
struct Mark {
    changes: u64,
    /// Requests that registered it.
    requests: usize,
}

impl Marks {
    pub(crate) fn new(hasher: FixedState) -> Self {
        Self { keys: HashMap::with_hasher(hasher), of_all: 0 }
    }

    /// Marks a key, if it is registered.
    pub(crate) fn changed(&mut self, key: &Key) {
        if !self.keys.is_empty()
            && let Some(mark) = self.keys.get_mut(key)
        {
            mark.changes += 1;
        }
    }

    /// Marks every key.
    pub(crate) fn all_changed(&mut self) {
        self.of_all += 1;
    }

    pub(crate) fn register(&mut self, key: &Key) -> u64 {
        let mark = self.keys.entry(key.clone()).or_default();
        mark.requests += 1;
        mark.changes
    }

    pub(crate) fn changes(&self, key: &Key) -> u64 {
        self.keys.get(key).map_or(0, |mark| mark.changes)
    }

    #[cfg(test)]
    #[cfg(not(feature = "shuttle"))]
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(crate) fn unregister(&mut self, key: &Key) {
        if let Some(mark) = self.keys.get_mut(key) {
            mark.requests -= 1;
            if mark.requests == 0 {
                self.keys.remove(key);
            }
        }
    }
}
