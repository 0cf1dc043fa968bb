//! Delivery of the plugin's messages to the sink: changes of single records, or flushes of whole
//! collections.
//!
//! PostgreSQL sends the rows of a transaction together after its commit, and describes each table
//! before its first row. Rows are delivered in portions, also before the end of their transaction;
//! each carries the transaction as its mark.

use std::collections::{HashMap, HashSet};

use hotrow_types::key::{Key, KeySchema};
use hotrow_types::version::ChangeId;

pub(crate) use self::row_change::Role;
use self::row_change::{RowChange, RowTarget};
use super::pgoutput::{DecodeError, Message, Relation, relation_of_row};
use super::wire::replication::Lsn;
use hotrow_source::{Change, FlushCause, Sink};

mod keys;
mod row_change;

/// Most different keys of one collection in one transaction that are delivered one by one; beyond
/// that the collection is flushed.
pub(crate) const KEYS_PER_TRANSACTION_MAX: usize = 10_000;
/// Most changes handed to the sink at once.
const PORTION: usize = 1_000;
/// Most tables whose description is kept. A publication that lists only served tables never has
/// more; each costs a catalogue check.
const DESCRIBED_MAX: usize = 10_000;
/// `relreplident` of a table whose old rows are logged as a whole.
const IDENTITY_FULL: u8 = b'f';

/// A table as the feed follows it for one collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Followed {
    /// Number of the collection.
    pub(crate) collection: usize,
    /// OIDs of the table and of the tables that it is a partition of.
    pub(crate) oids: Vec<u32>,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Columns with the collection's key, in the order of the configuration.
    pub(crate) key: Vec<String>,
    pub(crate) role: Role,
}

/// Effect of a message on the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// No effect.
    Continue,
    /// A transaction is complete: everything before this position is delivered.
    Committed(Lsn),
    /// A table has another shape or identity than before: the catalogue must be checked.
    Reshaped,
}

/// Decodes messages and delivers them to the sink.
pub(crate) struct Delivery<'a> {
    schemas: &'a [KeySchema],
    sink: &'a dyn Sink,
    /// Tables of the collections that can be served.
    followed: Vec<Followed>,
    described: HashMap<u32, Described>,
    transaction: Option<Transaction>,
    portion: Vec<Change>,
    /// Newest `xmax` of this session's snapshots, in which transaction numbers have 64 bits.
    xmax: u64,
}

/// The last description of a table in the stream.
struct Described {
    namespace: String,
    name: String,
    /// As in [`Relation::identity`].
    identity: u8,
    columns: Vec<Column>,
    /// Collections to which its rows belong.
    targets: Vec<RowTarget>,
}

#[derive(Clone, PartialEq, Eq)]
struct Column {
    name: String,
    type_oid: u32,
    modifier: i32,
    is_key: bool,
}

struct Transaction {
    mark: ChangeId,
    /// Per collection, the changes of this transaction that were delivered.
    delivered: HashMap<usize, Delivered>,
}

enum Delivered {
    Keys(HashSet<Key>),
    Flushed,
}

impl<'a> Delivery<'a> {
    /// `xmax` is that of a snapshot taken in this session.
    pub(crate) fn new(
        schemas: &'a [KeySchema],
        sink: &'a dyn Sink,
        followed: Vec<Followed>,
        xmax: u64,
    ) -> Self {
        Self {
            schemas,
            sink,
            followed,
            described: HashMap::new(),
            transaction: None,
            portion: Vec::with_capacity(PORTION),
            xmax,
        }
    }

    /// Records the `xmax` of a newer snapshot.
    pub(crate) fn record_xmax(&mut self, xmax: u64) {
        self.xmax = self.xmax.max(xmax);
    }

    /// Replaces the followed tables after a change of the catalogue.
    pub(crate) fn set_followed(&mut self, followed: Vec<Followed>) {
        self.followed = followed;
        let followed = &self.followed;
        for (oid, described) in &mut self.described {
            described.targets = targets(followed, *oid, described);
        }
    }

    /// Processes one message.
    ///
    /// # Errors
    /// The message is not part of the protocol, or is not permitted at this point.
    pub(crate) fn process(&mut self, bytes: &[u8]) -> Result<Effect, DeliveryError> {
        match Message::decode(bytes)? {
            Message::Begin { xid, final_lsn } => {
                let xid = widen(xid, self.xmax);
                let mark = ChangeId::Transaction { xid, commit: final_lsn };
                self.transaction = Some(Transaction { mark, delivered: HashMap::new() });
            }
            Message::Commit { end_lsn } => {
                self.flush_portion();
                self.transaction = None;
                return Ok(Effect::Committed(Lsn(end_lsn)));
            }
            Message::Relation(relation) => return self.describe(&relation),
            Message::Insert { relation, new } => {
                self.changed(relation, RowChange::Insert { new })?
            }
            Message::Update { relation, old, new } => {
                self.changed(relation, RowChange::Update { old, new })?
            }
            Message::Delete { relation, old } => {
                self.changed(relation, RowChange::Delete { old })?
            }
            Message::Truncate(oids) => {
                for oid in oids.iter() {
                    self.flush_table(oid)?;
                }
            }
            Message::Origin | Message::Type | Message::Logical => {}
        }
        Ok(Effect::Continue)
    }

    /// Processes the beginning of a message that is too long to be kept.
    ///
    /// # Errors
    /// The message is not a row's.
    pub(crate) fn process_front(&mut self, bytes: &[u8]) -> Result<(), DeliveryError> {
        let oid = relation_of_row(bytes).ok_or(DeliveryError::HugeMessage)?;
        self.flush_table(oid)
    }

    /// Delivers the collected changes. Call it before the feed waits.
    pub(crate) fn flush_portion(&mut self) {
        if !self.portion.is_empty() {
            self.sink.changes(&self.portion);
            self.portion.clear();
        }
    }

    fn describe(&mut self, relation: &Relation<'_>) -> Result<Effect, DeliveryError> {
        let columns: Vec<Column> = relation
            .columns()
            .map(|c| Column {
                name: c.name.to_owned(),
                type_oid: c.type_oid,
                modifier: c.modifier,
                is_key: c.is_key,
            })
            .collect();
        if self.described.len() >= DESCRIBED_MAX && !self.described.contains_key(&relation.oid) {
            // The server describes a table once; without its description its rows are meaningless.
            return Err(DeliveryError::TooManyTables);
        }
        let mut described = Described {
            namespace: relation.namespace.to_owned(),
            name: relation.name.to_owned(),
            identity: relation.identity,
            columns,
            targets: Vec::new(),
        };
        described.targets = targets(&self.followed, relation.oid, &described);
        let is_new_table = described.targets.iter().any(|target| !target.is_known);
        let before = self.described.get(&relation.oid);
        let is_reshaped =
            before.is_some_and(|b| b.columns != described.columns || b.name != described.name);
        self.described.insert(relation.oid, described);
        if !is_reshaped && !is_new_table {
            return Ok(Effect::Continue);
        }
        for collection in self.collections_of(relation.oid) {
            self.flush(collection, FlushCause::Schema)?;
        }
        Ok(Effect::Reshaped)
    }

    /// Returns the collections to which rows of this table belong.
    fn collections_of(&self, oid: u32) -> Vec<usize> {
        let described =
            self.described.get(&oid).map(|d| d.targets.iter().map(|t| t.collection).collect());
        described.unwrap_or_else(|| {
            let followed = self.followed.iter().filter(|f| f.oids.contains(&oid));
            followed.map(|f| f.collection).collect()
        })
    }

    fn changed(&mut self, oid: u32, change: RowChange<'_>) -> Result<(), DeliveryError> {
        let described = self.described.get(&oid).ok_or(DeliveryError::Undescribed(oid))?;
        let mut found = Vec::new();
        let mut unknown_rows = Vec::new();
        for target in &described.targets {
            let schema =
                self.schemas.get(target.collection).ok_or(DeliveryError::Undescribed(oid))?;
            match change.keys(schema, target) {
                Some(keys) => found.extend(keys.into_iter().map(|key| (target.collection, key))),
                None => unknown_rows.push(target.collection),
            }
        }
        for (collection, key) in found {
            self.key(collection, key)?;
        }
        for collection in unknown_rows {
            self.flush(collection, FlushCause::Bulk)?;
        }
        Ok(())
    }

    fn key(&mut self, collection: usize, key: Key) -> Result<(), DeliveryError> {
        let transaction = self.transaction.as_mut().ok_or(DeliveryError::OutsideTransaction)?;
        match transaction
            .delivered
            .entry(collection)
            .or_insert_with(|| Delivered::Keys(HashSet::new()))
        {
            // The flush carries the mark, so nothing that does not contain this change is cached
            // after it.
            Delivered::Flushed => return Ok(()),
            Delivered::Keys(keys) if keys.contains(&key) => return Ok(()),
            Delivered::Keys(keys) if keys.len() < KEYS_PER_TRANSACTION_MAX => {
                keys.insert(key.clone());
            }
            Delivered::Keys(_) => return self.flush(collection, FlushCause::Bulk),
        }
        self.portion.push(Change { key, mark: transaction.mark });
        if self.portion.len() >= PORTION {
            self.flush_portion();
        }
        Ok(())
    }

    fn flush_table(&mut self, oid: u32) -> Result<(), DeliveryError> {
        for collection in self.collections_of(oid) {
            self.flush(collection, FlushCause::Bulk)?;
        }
        Ok(())
    }

    fn flush(&mut self, collection: usize, cause: FlushCause) -> Result<(), DeliveryError> {
        // First the changes before it, in the order of the log.
        self.flush_portion();
        let transaction = self.transaction.as_mut().ok_or(DeliveryError::OutsideTransaction)?;
        let delivered = transaction.delivered.insert(collection, Delivered::Flushed);
        if !matches!(delivered, Some(Delivered::Flushed))
            && let Some(schema) = self.schemas.get(collection)
        {
            self.sink.flush(schema.collection(), cause, Some(transaction.mark));
        }
        Ok(())
    }
}

/// Returns the collections to which a table's rows belong: by OID, or by name if a table of that
/// name was created anew.
fn targets(followed: &[Followed], oid: u32, table: &Described) -> Vec<RowTarget> {
    let is_same = |f: &&Followed| {
        f.oids.contains(&oid) || (f.namespace == table.namespace && f.name == table.name)
    };
    let place = |key: &String| table.columns.iter().position(|c| c.name == *key);
    let target = |followed: &Followed| {
        let places: Option<Vec<usize>> = followed.key.iter().map(place).collect();
        let own_oid = match followed.role {
            Role::Child { oid } => oid,
            Role::Record | Role::Alias => None,
        };
        let is_key = |place: &usize| table.columns[*place].is_key;
        RowTarget {
            collection: followed.collection,
            is_known: followed.oids.contains(&oid),
            is_identity: own_oid == Some(oid)
                && table.identity != IDENTITY_FULL
                && places.as_ref().is_some_and(|places| places.iter().all(is_key)),
            places,
            role: followed.role,
        }
    };
    followed.iter().filter(is_same).map(target).collect()
}

/// Returns a transaction's 64-bit number from the 32 bits in the stream and a snapshot's `xmax` of
/// the same session. The two are never 2^31 apart, because PostgreSQL itself could not compare them
/// then. Source: PostgreSQL documentation, "Transactions and Identifiers".
pub(crate) fn widen(xid: u32, xmax: u64) -> u64 {
    // Intended truncation to the lower half; the distance is a signed number.
    let distance = xid.wrapping_sub(xmax as u32).cast_signed();
    xmax.saturating_add_signed(i64::from(distance))
}

/// Error of a message; it ends the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DeliveryError {
    #[error("a message of the feed cannot be read: {0}")]
    Decode(#[from] DecodeError),
    #[error("the feed sent a row of a table (oid {0}) that it had not described")]
    Undescribed(u32),
    #[error("the feed sent a row outside of a transaction")]
    OutsideTransaction,
    #[error("the feed sent a huge message that is not a row's")]
    HugeMessage,
    #[error(
        "the publication has more than {DESCRIBED_MAX} tables; publish only those that are served"
    )]
    TooManyTables,
}

#[cfg(test)]
mod tests;
