//! Changes of a transaction, collected until its commit.

use std::collections::{HashMap, HashSet};

use hotrow_types::key::{Key, KeySchema};
use hotrow_types::version::ChangeId;

use super::super::binlog::Xid;
use super::super::embedded_rules::EmbeddedRules;
use super::super::recent::Recent;
use hotrow_source::{Change, FlushCause, Sink};

/// Maximum of distinct keys per collection and transaction. Beyond it the collection is flushed.
pub(crate) const KEYS_PER_TRANSACTION_MAX: usize = 10_000;
/// Maximum of changes per call of the sink.
const CHANGES_PER_CALL_MAX: usize = 1_000;
/// Maximum of held prepared transactions. The commit of a further one flushes everything.
const PREPARED_MAX: usize = 1_000;
/// Maximum of keys in all of them. A further transaction is held as flushes of whole collections.
const PREPARED_KEYS_MAX: usize = 100_000;

/// Receivers of changes.
#[derive(Clone, Copy)]
pub(crate) struct ChangeReceivers<'a> {
    pub(crate) schemas: &'a [KeySchema],
    pub(crate) sink: &'a dyn Sink,
    /// Receives changes before the sink.
    pub(crate) recent: &'a Recent,
    pub(crate) rules: EmbeddedRules,
}

/// Changes of a transaction per collection.
#[derive(Debug, Default)]
pub(super) struct TxChanges(HashMap<usize, Extent>);

#[derive(Debug)]
enum Extent {
    Keys(HashSet<Key>),
    All(FlushCause),
}

impl TxChanges {
    /// Records that any record of the collection may have changed.
    pub(super) fn flush(&mut self, collection: usize, cause: FlushCause) {
        match self.0.get_mut(&collection) {
            // A schema change is the stronger cause.
            Some(Extent::All(before)) if *before == FlushCause::Schema => {}
            _ => drop(self.0.insert(collection, Extent::All(cause))),
        }
    }

    /// Records changed keys.
    pub(super) fn add(&mut self, collection: usize, found: HashSet<Key>) {
        let Extent::Keys(keys) =
            self.0.entry(collection).or_insert_with(|| Extent::Keys(HashSet::new()))
        else {
            return;
        };
        keys.extend(found);
        if keys.len() > KEYS_PER_TRANSACTION_MAX {
            self.flush(collection, FlushCause::Bulk);
        }
    }

    /// Delivers everything to the sink. `end` is the end of the transaction.
    pub(super) fn deliver(self, receivers: ChangeReceivers<'_>, mark: ChangeId, end: u64) {
        let ChangeReceivers { schemas, sink, recent, .. } = receivers;
        let mut key_changes = Vec::new();
        if !self.0.is_empty() {
            recent.record_commit(mark, end);
        }
        for (collection, extent) in self.0 {
            let Some(schema) = schemas.get(collection) else { continue };
            match extent {
                Extent::All(cause) => {
                    recent.record_flush(end);
                    sink.flush(schema.collection(), cause, Some(mark));
                }
                Extent::Keys(keys) => {
                    keys.iter().for_each(|key| recent.record_change(key, end));
                    key_changes.extend(keys.into_iter().map(|key| Change { key, mark }));
                }
            }
        }
        key_changes.chunks(CHANGES_PER_CALL_MAX).for_each(|chunk| sink.changes(chunk));
    }

    fn keys(&self) -> usize {
        let count = |extent: &Extent| if let Extent::Keys(keys) = extent { keys.len() } else { 0 };
        self.0.values().map(count).sum()
    }

    fn without_keys(self) -> Self {
        Self(
            self.0
                .into_keys()
                .map(|collection| (collection, Extent::All(FlushCause::Bulk)))
                .collect(),
        )
    }
}

/// Prepared transactions.
#[derive(Debug, Default)]
pub(super) struct PreparedTransactions {
    of: HashMap<Xid, TxChanges>,
    keys: usize,
}

impl PreparedTransactions {
    pub(super) fn add(&mut self, xid: Xid, changes: TxChanges) {
        // A repeated name: the earlier transaction ended without a trace in the log.
        self.remove(&xid);
        if self.of.len() >= PREPARED_MAX {
            tracing::warn!(
                "more than {PREPARED_MAX} transactions are prepared (XA); the commit of this one \
                 flushes everything"
            );
            return;
        }
        let changes = if self.keys + changes.keys() > PREPARED_KEYS_MAX {
            changes.without_keys()
        } else {
            changes
        };
        self.keys += changes.keys();
        self.of.insert(xid, changes);
    }

    pub(super) fn remove(&mut self, xid: &Xid) -> Option<TxChanges> {
        let changes = self.of.remove(xid)?;
        self.keys -= changes.keys();
        Some(changes)
    }
}
