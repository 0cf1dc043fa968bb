//! What a transaction changed, until it can be told.

use std::collections::{HashMap, HashSet};

use hotrow_cache::key::Key;
use hotrow_cache::version::Mark;

use super::super::binlog::Xid;
use super::{KEYS_PER_TRANSACTION_MAX, Out};
use crate::{Change, FlushCause};

/// Changes handed to the sink at once.
const PORTION: usize = 1_000;
/// Most prepared transactions that are held; the commit of one more flushes everything.
const HELD_MAX: usize = 1_000;
/// Most keys of all of them; of one more transaction, whole collections are held instead.
const HELD_KEYS_MAX: usize = 100_000;

/// Per collection what changed.
#[derive(Debug, Default)]
pub(super) struct Told(HashMap<usize, Extent>);

#[derive(Debug)]
enum Extent {
    Keys(HashSet<Key>),
    All(FlushCause),
}

impl Told {
    /// Any record of the collection may have changed.
    pub(super) fn flush(&mut self, collection: usize, cause: FlushCause) {
        match self.0.get_mut(&collection) {
            // A change of shape says more.
            Some(Extent::All(before)) if *before == FlushCause::Schema => {}
            _ => drop(self.0.insert(collection, Extent::All(cause))),
        }
    }

    /// These records changed.
    pub(super) fn list(&mut self, collection: usize, found: HashSet<Key>) {
        let Extent::Keys(keys) = self.0.entry(collection).or_insert_with(|| Extent::Keys(HashSet::new())) else {
            return;
        };
        keys.extend(found);
        if keys.len() > KEYS_PER_TRANSACTION_MAX {
            self.flush(collection, FlushCause::Bulk);
        }
    }

    /// Hands everything to the sink. `end` is the point where the transaction ends.
    pub(super) fn tell(self, out: Out<'_>, mark: Mark, end: u64) {
        let Out { schemas, sink, recent } = out;
        let mut portion = Vec::new();
        for (collection, extent) in self.0 {
            let Some(schema) = schemas.get(collection) else { continue };
            match extent {
                Extent::All(cause) => {
                    recent.flushing(end);
                    sink.flush(schema.collection(), cause, Some(mark));
                }
                Extent::Keys(keys) => {
                    keys.iter().for_each(|key| recent.telling(key, end));
                    portion.extend(keys.into_iter().map(|key| Change { key, mark }));
                }
            }
        }
        portion.chunks(PORTION).for_each(|changes| sink.changes(changes));
    }

    fn keys(&self) -> usize {
        let count = |extent: &Extent| if let Extent::Keys(keys) = extent { keys.len() } else { 0 };
        self.0.values().map(count).sum()
    }

    fn without_keys(self) -> Self {
        Self(self.0.into_keys().map(|collection| (collection, Extent::All(FlushCause::Bulk))).collect())
    }
}

/// Prepared transactions.
#[derive(Debug, Default)]
pub(super) struct Held {
    of: HashMap<Xid, Told>,
    keys: usize,
}

impl Held {
    pub(super) fn hold(&mut self, xid: Xid, told: Told) {
        // The same name again: the one before was ended where no log tells of it.
        self.release(&xid);
        if self.of.len() >= HELD_MAX {
            tracing::warn!(
                "more than {HELD_MAX} transactions are prepared (XA); the commit of this one flushes everything"
            );
            return;
        }
        let told = if self.keys + told.keys() > HELD_KEYS_MAX { told.without_keys() } else { told };
        self.keys += told.keys();
        self.of.insert(xid, told);
    }

    pub(super) fn release(&mut self, xid: &Xid) -> Option<Told> {
        let told = self.of.remove(xid)?;
        self.keys -= told.keys();
        Some(told)
    }
}
