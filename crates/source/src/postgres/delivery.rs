//! From the plugin's messages to the sink: whose record changed, or that a whole collection must go.
//!
//! PostgreSQL sends a transaction's rows when it has committed, all of them at once, with their tables described before
//! their first row. Rows are handed on in portions, also before the end of their transaction: each carries the
//! transaction as its mark.

use std::collections::{HashMap, HashSet};

use hotrow_cache::key::{Key, KeySchema};
use hotrow_cache::version::Mark;

use super::pgoutput::{DecodeError, Message, Old, Relation, Tuple, relation_of_row};
use super::wire::replication::Lsn;
use crate::{Change, FlushCause, Sink};

mod keys;

/// More different keys of one collection in one transaction are not listed: the collection is flushed.
pub(crate) const KEYS_PER_TRANSACTION_MAX: usize = 10_000;
/// Changes handed to the sink at once.
const PORTION: usize = 1_000;
/// Most tables whose description is kept; more are in no publication that lists what is served, and cost a look each.
const DESCRIBED_MAX: usize = 10_000;

/// A collection as the feed follows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Followed {
    /// The table's oid and those of the tables that it is a partition of.
    pub(crate) oids: Vec<u32>,
    /// The table's schema.
    pub(crate) namespace: String,
    /// The table's name.
    pub(crate) name: String,
    /// Key columns in the order of the configuration.
    pub(crate) key: Vec<String>,
}

/// What a message brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Nothing that concerns the session.
    In,
    /// A transaction is complete: everything before this position is delivered.
    Committed(Lsn),
    /// A table does not look as it did: time to look at the catalogue.
    Reshaped,
}

/// Takes messages in and tells the sink.
pub(crate) struct Delivery<'a> {
    schemas: &'a [KeySchema],
    sink: &'a dyn Sink,
    /// Per collection; none where it cannot be served.
    followed: Vec<Option<Followed>>,
    described: HashMap<u32, Described>,
    transaction: Option<Transaction>,
    portion: Vec<Change>,
    /// Upper half and more of the transactions' numbers: no snapshot of this session ended below.
    xmax: u64,
}

/// A table as the stream described it last.
struct Described {
    namespace: String,
    name: String,
    columns: Vec<Column>,
    /// Which collections its rows belong to, and where their key columns are.
    targets: Vec<Target>,
}

#[derive(Clone, PartialEq, Eq)]
struct Column {
    name: String,
    type_oid: u32,
    modifier: i32,
    is_key: bool,
}

#[derive(Clone)]
struct Target {
    collection: usize,
    /// Places of the key columns; none when the table lacks one of them.
    places: Option<Vec<usize>>,
}

struct Transaction {
    mark: Mark,
    /// Per collection what was told of this transaction.
    told: HashMap<usize, Told>,
}

enum Told {
    Keys(HashSet<Key>),
    Flushed,
}

impl<'a> Delivery<'a> {
    /// `xmax` is that of a snapshot taken in this session.
    pub(crate) fn new(
        schemas: &'a [KeySchema],
        sink: &'a dyn Sink,
        followed: Vec<Option<Followed>>,
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

    /// A newer snapshot ended here.
    pub(crate) fn saw_xmax(&mut self, xmax: u64) {
        self.xmax = self.xmax.max(xmax);
    }

    /// The catalogue says so now.
    pub(crate) fn follow(&mut self, followed: Vec<Option<Followed>>) {
        self.followed = followed;
        let followed = &self.followed;
        for (oid, described) in &mut self.described {
            described.targets = targets(followed, *oid, &described.namespace, &described.name, &described.columns);
        }
    }

    /// Takes one message in.
    ///
    /// # Errors
    /// When it is none of the protocol, or comes where it cannot.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<Taken, DeliveryError> {
        match Message::decode(bytes)? {
            Message::Begin { xid, .. } => {
                let mark = Mark::Transaction(widen(xid, self.xmax));
                self.transaction = Some(Transaction { mark, told: HashMap::new() });
            }
            Message::Commit { end_lsn } => {
                self.hand_over();
                self.transaction = None;
                return Ok(Taken::Committed(Lsn(end_lsn)));
            }
            Message::Relation(relation) => return self.describe(&relation),
            Message::Insert { relation, new } => self.changed(relation, None, Some(new))?,
            Message::Update { relation, old, new } => self.changed(relation, old, Some(new))?,
            Message::Delete { relation, old } => self.changed(relation, Some(old), None)?,
            Message::Truncate(oids) => {
                for oid in oids.iter() {
                    self.flush_table(oid)?;
                }
            }
            Message::Origin | Message::Type | Message::Logical => {}
        }
        Ok(Taken::In)
    }

    /// Takes the front of a message that is too long to be kept.
    ///
    /// # Errors
    /// When it is none of a row.
    pub(crate) fn take_front(&mut self, bytes: &[u8]) -> Result<(), DeliveryError> {
        let oid = relation_of_row(bytes).ok_or(DeliveryError::HugeMessage)?;
        self.flush_table(oid)
    }

    /// Hands over what is collected; to be called before the feed waits.
    pub(crate) fn hand_over(&mut self) {
        if !self.portion.is_empty() {
            self.sink.changes(&self.portion);
            self.portion.clear();
        }
    }

    fn describe(&mut self, relation: &Relation<'_>) -> Result<Taken, DeliveryError> {
        let columns: Vec<Column> = relation
            .columns()
            .map(|c| Column { name: c.name.to_owned(), type_oid: c.type_oid, modifier: c.modifier, is_key: c.is_key })
            .collect();
        let (namespace, name) = (relation.namespace.to_owned(), relation.name.to_owned());
        let targets = targets(&self.followed, relation.oid, &namespace, &name, &columns);
        if self.described.len() >= DESCRIBED_MAX && !self.described.contains_key(&relation.oid) {
            // The server describes a table once: without its description its rows mean nothing.
            return Err(DeliveryError::TooManyTables);
        }
        let unknown = |t: &Target| {
            let followed = self.followed.get(t.collection).and_then(Option::as_ref);
            followed.is_some_and(|f| !f.oids.contains(&relation.oid))
        };
        let is_new_table = targets.iter().any(unknown);
        let described = Described { namespace, name, columns, targets };
        let before = self.described.get(&relation.oid);
        let is_reshaped = before.is_some_and(|b| b.columns != described.columns || b.name != described.name);
        self.described.insert(relation.oid, described);
        if !is_reshaped && !is_new_table {
            return Ok(Taken::In);
        }
        for collection in self.collections_of(relation.oid) {
            self.flush(collection, FlushCause::Schema)?;
        }
        Ok(Taken::Reshaped)
    }

    /// The collections that rows of this table belong to.
    fn collections_of(&self, oid: u32) -> Vec<usize> {
        let described = self.described.get(&oid).map(|d| d.targets.iter().map(|t| t.collection).collect());
        described.unwrap_or_else(|| {
            let is_followed = |f: &Option<Followed>| f.as_ref().is_some_and(|f| f.oids.contains(&oid));
            (0..self.followed.len()).filter(|i| is_followed(&self.followed[*i])).collect()
        })
    }

    fn changed(&mut self, oid: u32, old: Option<Old<'_>>, new: Option<Tuple<'_>>) -> Result<(), DeliveryError> {
        let described = self.described.get(&oid).ok_or(DeliveryError::Undescribed(oid))?;
        let (mut found, mut lost) = (Vec::new(), Vec::new());
        for target in &described.targets {
            let schema = self.schemas.get(target.collection).ok_or(DeliveryError::Undescribed(oid))?;
            let Some(places) = target.places.as_deref() else {
                lost.push(target.collection);
                continue;
            };
            let before = old.map(|old| keys::of_old(schema, places, old));
            let now = new.map(|new| keys::of_new(schema, places, new, old));
            for read in [before, now].into_iter().flatten() {
                match read {
                    keys::Read::Key(key) => found.push((target.collection, key)),
                    // No URL can name such a row.
                    keys::Read::NoKey => {}
                    keys::Read::Unknown => lost.push(target.collection),
                }
            }
        }
        for (collection, key) in found {
            self.key(collection, key)?;
        }
        for collection in lost {
            self.flush(collection, FlushCause::Bulk)?;
        }
        Ok(())
    }

    fn key(&mut self, collection: usize, key: Key) -> Result<(), DeliveryError> {
        let transaction = self.transaction.as_mut().ok_or(DeliveryError::OutsideTransaction)?;
        match transaction.told.entry(collection).or_insert_with(|| Told::Keys(HashSet::new())) {
            // The flush carries the mark, so nothing that does not see this change is kept after it.
            Told::Flushed => return Ok(()),
            Told::Keys(keys) if keys.contains(&key) => return Ok(()),
            Told::Keys(keys) if keys.len() < KEYS_PER_TRANSACTION_MAX => {
                keys.insert(key.clone());
            }
            Told::Keys(_) => return self.flush(collection, FlushCause::Bulk),
        }
        self.portion.push(Change { key, mark: transaction.mark });
        if self.portion.len() >= PORTION {
            self.hand_over();
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
        // In the order of the log.
        self.hand_over();
        let transaction = self.transaction.as_mut().ok_or(DeliveryError::OutsideTransaction)?;
        let told = transaction.told.insert(collection, Told::Flushed);
        if !matches!(told, Some(Told::Flushed))
            && let Some(schema) = self.schemas.get(collection)
        {
            self.sink.flush(schema.collection(), cause, Some(transaction.mark));
        }
        Ok(())
    }
}

/// Which collections a table's rows belong to: by oid, or by name when a table of that name was made anew.
fn targets(followed: &[Option<Followed>], oid: u32, namespace: &str, name: &str, columns: &[Column]) -> Vec<Target> {
    let is_same = |f: &Followed| f.oids.contains(&oid) || (f.namespace == namespace && f.name == name);
    let place = |key: &String| columns.iter().position(|c| c.name == *key);
    let target = |(collection, f): (usize, &Option<Followed>)| {
        let followed = f.as_ref().filter(|f| is_same(f))?;
        Some(Target { collection, places: followed.key.iter().map(place).collect() })
    };
    followed.iter().enumerate().filter_map(target).collect()
}

/// A transaction's 64-bit number, from the 32 bits that the stream carries and a snapshot's `xmax` of the same session:
/// the two are never 2^31 apart, for PostgreSQL itself could not compare them then.
/// Source: PostgreSQL documentation, "Transactions and Identifiers".
pub(crate) fn widen(xid: u32, xmax: u64) -> u64 {
    // The lower half, and the distance as a signed number, are what is meant.
    let distance = xid.wrapping_sub(xmax as u32).cast_signed();
    xmax.saturating_add_signed(i64::from(distance))
}

/// Why messages cannot be taken in: the session must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DeliveryError {
    #[error("a message of the feed cannot be read: {0}")]
    Decode(#[from] DecodeError),
    #[error("the feed sent a row of a table (oid {0}) that it had not described")]
    Undescribed(u32),
    #[error("the feed sent a row outside of a transaction")]
    OutsideTransaction,
    #[error("the feed sent a huge message that is no row")]
    HugeMessage,
    #[error("the publication has more than {DESCRIBED_MAX} tables; publish only those that are served")]
    TooManyTables,
}

#[cfg(test)]
mod tests;
