//! Stored data of the stand-in: collections with the document versions that a read may still see,
//! and the oplog.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mongodb::bson::{Bson, Document, RawDocumentBuf, Timestamp};

use super::event::TokenForm;

/// Time for which versions are kept for reads at a cluster time, in seconds.
const HISTORY_S: u64 = 10;

/// Database and collection.
pub type Ns = (String, String);
pub type Stored = Arc<RawDocumentBuf>;

/// Maximum number of oplog entries; older ones are deleted, as in a capped collection.
const OPLOG_ENTRIES_MAX: usize = 500_000;
/// Interval of the no-ops that an idle set writes.
const NOOP_EVERY: Duration = Duration::from_secs(10);

pub struct Store {
    collections: BTreeMap<Ns, Collection>,
    /// Oldest first.
    oplog: VecDeque<Entry>,
    /// Cluster time up to which the history is deleted.
    pruned_to: u64,
    /// Newest cluster time.
    now: u64,
    /// Newest cluster time visible to majority reads; `None`: all.
    visible: Option<u64>,
    /// Old versions are kept for reads at a cluster time.
    pub keeps_versions: bool,
    pub token_form: TokenForm,
}

/// Collection or view.
pub struct Collection {
    pub uuid: [u8; 16],
    /// Options of `create`.
    pub options: Document,
    /// Indexes in the form of `createIndexes`, without that of `_id`.
    pub indexes: Vec<Document>,
    documents: BTreeMap<Vec<u8>, Versions>,
    inserted: u64,
}

/// Versions of a document, oldest first; `None`: no document.
struct Versions {
    /// Rank in natural order.
    rank: u64,
    list: Vec<(u64, Option<Stored>)>,
}

#[derive(Clone)]
pub struct Entry {
    pub at: u64,
    /// Index within a transaction.
    pub index: u32,
    pub ns: Ns,
    pub uuid: [u8; 16],
    pub operation: Operation,
    pub id: Option<Bson>,
    /// Document after the operation.
    pub full: Option<Stored>,
}

#[derive(Clone)]
pub enum Operation {
    Insert,
    /// Update, with its description.
    Update(Document),
    Replace,
    Delete,
    Drop,
    Rename(Ns),
    DropDatabase,
}

/// Write of one document that is not applied yet.
#[derive(Clone)]
pub struct Effect {
    pub ns: Ns,
    pub key: Vec<u8>,
    pub id: Bson,
    pub operation: Operation,
    pub after: Option<Stored>,
}

impl Store {
    pub fn new() -> Self {
        let collections = BTreeMap::new();
        let mut store = Self {
            collections,
            oplog: VecDeque::new(),
            pruned_to: 0,
            now: 0,
            visible: None,
            keeps_versions: false,
            token_form: TokenForm::Mongodb,
        };
        store.tick();
        store
    }

    pub fn now(&mut self) -> u64 {
        if unix_s().saturating_sub(self.now >> 32) > NOOP_EVERY.as_secs() {
            self.tick();
        }
        self.now
    }

    /// Returns the newest cluster time visible to majority reads.
    pub fn visible(&self) -> u64 {
        self.visible.unwrap_or(self.now)
    }

    /// Advances to the next cluster time.
    pub fn tick(&mut self) -> u64 {
        self.now = (self.now + 1).max(unix_s() << 32 | 1);
        self.now
    }

    /// Advances to a later time received from a client.
    pub fn observe_time(&mut self, at: u64) {
        self.now = self.now.max(at);
    }

    /// Limits majority reads to the present state.
    pub fn hold(&mut self) {
        self.visible = Some(self.now);
    }

    /// Makes everything visible to majority reads.
    pub fn release(&mut self) {
        self.visible = None;
        for collection in self.collections.values_mut() {
            collection.documents.retain(|_, versions| versions.forget(self.now));
        }
    }

    /// Deletes the history up to now.
    pub fn prune(&mut self) {
        self.oplog.clear();
        self.pruned_to = self.now;
        // An oplog is never empty.
        self.tick();
    }

    pub fn pruned_to(&self) -> u64 {
        self.pruned_to
    }

    /// Returns the oplog entries after this position.
    pub fn after(&self, position: (u64, u32)) -> impl Iterator<Item = &Entry> {
        let from = self.oplog.partition_point(|entry| (entry.at, entry.index) <= position);
        self.oplog.range(from..)
    }

    pub fn collection(&self, ns: &Ns) -> Option<&Collection> {
        self.collections.get(ns)
    }

    pub fn collection_mut(&mut self, ns: &Ns) -> Option<&mut Collection> {
        self.collections.get_mut(ns)
    }

    /// Returns the collections of a database.
    pub fn collections<'a>(
        &'a self,
        database: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a Collection)> {
        let own = self.collections.iter().filter(move |((other, _), _)| other == database);
        own.map(|((_, name), collection)| (name.as_str(), collection))
    }

    pub fn newest(&self, ns: &Ns, key: &[u8]) -> Option<&Stored> {
        self.collections.get(ns)?.documents.get(key)?.at(u64::MAX)
    }

    /// Returns a document as it was at a cluster time.
    pub fn at(&self, ns: &Ns, key: &[u8], time: u64) -> Option<&Stored> {
        self.collections.get(ns)?.documents.get(key)?.at(time)
    }

    /// Returns all documents as they were at a cluster time, in natural order.
    pub fn all_at(&self, ns: &Ns, time: u64) -> Vec<(&[u8], &Stored)> {
        let Some(collection) = self.collections.get(ns) else { return Vec::new() };
        let present = collection.documents.iter();
        let mut all: Vec<_> =
            present.filter_map(|(key, v)| Some((v.rank, key.as_slice(), v.at(time)?))).collect();
        all.sort_by_key(|(rank, ..)| *rank);
        all.into_iter().map(|(_, key, stored)| (key, stored)).collect()
    }

    /// Creates the collection if it does not exist.
    pub fn create(&mut self, ns: &Ns, options: Document) -> &mut Collection {
        let inserted = 0;
        self.collections.entry(ns.clone()).or_insert_with(|| Collection {
            uuid: mongodb::bson::Uuid::new().bytes(),
            options,
            indexes: Vec::new(),
            documents: BTreeMap::new(),
            inserted,
        })
    }

    /// Applies writes; with `one_commit` they all get one cluster time.
    pub fn apply(&mut self, effects: Vec<Effect>, one_commit: bool) -> u64 {
        for (index, effect) in effects.into_iter().enumerate() {
            let at = if one_commit && index > 0 { self.now } else { self.tick() };
            let held = self.visible.is_some() || self.keeps_versions;
            let collection = self.create(&effect.ns, Document::new());
            let uuid = collection.uuid;
            collection.put(&effect.key, at, effect.after.clone(), held);
            let index = if one_commit { index as u32 } else { 0 };
            let Effect { ns, id, operation, after, .. } = effect;
            self.log(Entry { at, index, ns, uuid, operation, id: Some(id), full: after });
        }
        self.now
    }

    /// Drops a collection; returns `false` if there is none.
    pub fn drop_collection(&mut self, ns: &Ns) -> bool {
        let Some(collection) = self.collections.remove(ns) else { return false };
        let at = self.tick();
        let entry = Entry {
            at,
            index: 0,
            ns: ns.clone(),
            uuid: collection.uuid,
            operation: Operation::Drop,
            id: None,
            full: None,
        };
        self.log(entry);
        true
    }

    /// Drops a database, its collections first.
    pub fn drop_database(&mut self, database: &str) {
        let own: Vec<Ns> =
            self.collections.keys().filter(|(other, _)| other == database).cloned().collect();
        own.iter().for_each(|ns| _ = self.drop_collection(ns));
        let at = self.tick();
        let ns = (database.to_owned(), String::new());
        self.log(Entry {
            at,
            index: 0,
            ns,
            uuid: [0; 16],
            operation: Operation::DropDatabase,
            id: None,
            full: None,
        });
    }

    /// Renames a collection; replaces an existing one of that name.
    pub fn rename(&mut self, from: &Ns, to: &Ns) -> bool {
        let Some(collection) = self.collections.remove(from) else { return false };
        self.drop_collection(to);
        let at = self.tick();
        let operation = Operation::Rename(to.clone());
        self.log(Entry {
            at,
            index: 0,
            ns: from.clone(),
            uuid: collection.uuid,
            operation,
            id: None,
            full: None,
        });
        self.collections.insert(to.clone(), collection);
        true
    }

    fn log(&mut self, entry: Entry) {
        if self.oplog.len() == OPLOG_ENTRIES_MAX
            && let Some(oldest) = self.oplog.pop_front()
        {
            self.pruned_to = oldest.at;
        }
        self.oplog.push_back(entry);
    }
}

impl Collection {
    fn put(&mut self, key: &[u8], at: u64, after: Option<Stored>, held: bool) {
        self.inserted += 1;
        let new = Versions { rank: self.inserted, list: Vec::new() };
        let versions = self.documents.entry(key.to_owned()).or_insert(new);
        if versions.at(u64::MAX).is_none() {
            versions.rank = self.inserted;
        }
        versions.list.push((at, after));
        if !held && !versions.forget(at) {
            self.documents.remove(key);
        }
    }
}

impl Versions {
    fn at(&self, time: u64) -> Option<&Stored> {
        let newest = self.list.iter().rev().find(|(at, _)| *at <= time)?;
        newest.1.as_ref()
    }

    /// Forgets what no read at a cluster time of the last [`HISTORY_S`] sees; returns whether
    /// something is left.
    fn forget(&mut self, now: u64) -> bool {
        let begin = now.saturating_sub(HISTORY_S << 32);
        let first = self.list.iter().rposition(|(at, _)| *at <= begin).unwrap_or(0);
        self.list.drain(..first);
        self.list.len() > 1 || self.list.iter().any(|(at, own)| own.is_some() || *at > begin)
    }
}

/// Converts a cluster time to BSON.
pub fn timestamp(at: u64) -> Timestamp {
    Timestamp { time: (at >> 32) as u32, increment: at as u32 }
}

/// Converts a cluster time to a number.
pub fn number(at: Timestamp) -> u64 {
    u64::from(at.time) << 32 | u64::from(at.increment)
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
