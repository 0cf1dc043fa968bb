//! What the stand-in holds: collections with the versions of their documents that somebody may still see, and the oplog.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mongodb::bson::{Bson, Document, RawDocumentBuf, Timestamp};

/// Database and collection.
pub(super) type Ns = (String, String);
/// A document as it is stored.
pub(super) type Stored = Arc<RawDocumentBuf>;

/// Longest oplog; what is older goes, as in a capped collection.
const OPLOG_ENTRIES_MAX: usize = 500_000;
/// An idle set writes nothing but a no-op this often.
const NOOP_EVERY: Duration = Duration::from_secs(10);

/// Everything that a set stores.
pub(super) struct Store {
    collections: BTreeMap<Ns, Collection>,
    /// Oldest first.
    oplog: VecDeque<Entry>,
    /// The history up to here is gone.
    pruned_to: u64,
    /// The newest cluster time.
    now: u64,
    /// The newest cluster time that majority reads see; `None`: all.
    visible: Option<u64>,
}

/// A collection, or a view.
pub(super) struct Collection {
    pub(super) uuid: [u8; 16],
    /// As `create` was told.
    pub(super) options: Document,
    documents: BTreeMap<Vec<u8>, Versions>,
    inserted: u64,
}

/// A document through time, oldest first; `None`: there was none.
struct Versions {
    /// Its place in natural order.
    place: u64,
    list: Vec<(u64, Option<Stored>)>,
}

/// A line of the oplog.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) at: u64,
    /// Which of a transaction's.
    pub(super) index: u32,
    pub(super) ns: Ns,
    pub(super) uuid: [u8; 16],
    pub(super) what: What,
    /// `_id` of the document.
    pub(super) id: Option<Bson>,
    /// The document afterwards.
    pub(super) full: Option<Stored>,
}

/// What happened.
#[derive(Clone)]
pub(super) enum What {
    Insert,
    /// With its description.
    Update(Document),
    Replace,
    Delete,
    Drop,
    Rename(Ns),
    DropDatabase,
}

/// A write of one document that is still to be made.
#[derive(Clone)]
pub(super) struct Effect {
    pub(super) ns: Ns,
    pub(super) key: Vec<u8>,
    pub(super) id: Bson,
    pub(super) what: What,
    pub(super) after: Option<Stored>,
}

impl Store {
    pub(super) fn new() -> Self {
        let collections = BTreeMap::new();
        let mut store = Self { collections, oplog: VecDeque::new(), pruned_to: 0, now: 0, visible: None };
        store.tick();
        store
    }

    /// The newest cluster time.
    pub(super) fn now(&mut self) -> u64 {
        if unix_s().saturating_sub(self.now >> 32) > NOOP_EVERY.as_secs() {
            self.tick();
        }
        self.now
    }

    /// The newest cluster time that majority reads see.
    pub(super) fn visible(&self) -> u64 {
        self.visible.unwrap_or(self.now)
    }

    /// The next cluster time.
    pub(super) fn tick(&mut self) -> u64 {
        self.now = (self.now + 1).max(unix_s() << 32 | 1);
        self.now
    }

    /// Another member has told of a later time.
    pub(super) fn hear(&mut self, at: u64) {
        self.now = self.now.max(at);
    }

    /// From now on majority reads see nothing newer than now.
    pub(super) fn hold(&mut self) {
        self.visible = Some(self.now);
    }

    /// Majority reads see everything.
    pub(super) fn release(&mut self) {
        self.visible = None;
        for collection in self.collections.values_mut() {
            collection.documents.retain(|_, versions| versions.forget());
        }
    }

    /// The history up to now goes.
    pub(super) fn prune(&mut self) {
        self.oplog.clear();
        self.pruned_to = self.now;
        // There is no oplog without a newest line.
        self.tick();
    }

    pub(super) fn pruned_to(&self) -> u64 {
        self.pruned_to
    }

    /// What stands in the oplog after this place.
    pub(super) fn after(&self, place: (u64, u32)) -> impl Iterator<Item = &Entry> {
        let from = self.oplog.partition_point(|entry| (entry.at, entry.index) <= place);
        self.oplog.range(from..)
    }

    pub(super) fn collection(&self, ns: &Ns) -> Option<&Collection> {
        self.collections.get(ns)
    }

    /// The collections of a database.
    pub(super) fn collections<'a>(&'a self, database: &'a str) -> impl Iterator<Item = (&'a str, &'a Collection)> {
        let own = self.collections.iter().filter(move |((other, _), _)| other == database);
        own.map(|((_, name), collection)| (name.as_str(), collection))
    }

    /// The newest version of a document.
    pub(super) fn newest(&self, ns: &Ns, key: &[u8]) -> Option<&Stored> {
        self.collections.get(ns)?.documents.get(key)?.at(u64::MAX)
    }

    /// A document as it was at a cluster time.
    pub(super) fn at(&self, ns: &Ns, key: &[u8], time: u64) -> Option<&Stored> {
        self.collections.get(ns)?.documents.get(key)?.at(time)
    }

    /// All documents as they were at a cluster time, in natural order.
    pub(super) fn all_at(&self, ns: &Ns, time: u64) -> Vec<(&[u8], &Stored)> {
        let Some(collection) = self.collections.get(ns) else { return Vec::new() };
        let present = collection.documents.iter();
        let mut all: Vec<_> = present.filter_map(|(key, v)| Some((v.place, key.as_slice(), v.at(time)?))).collect();
        all.sort_by_key(|(place, ..)| *place);
        all.into_iter().map(|(_, key, stored)| (key, stored)).collect()
    }

    /// Makes the collection if there is none.
    pub(super) fn create(&mut self, ns: &Ns, options: Document) -> &mut Collection {
        let inserted = 0;
        self.collections.entry(ns.clone()).or_insert_with(|| Collection {
            uuid: mongodb::bson::Uuid::new().bytes(),
            options,
            documents: BTreeMap::new(),
            inserted,
        })
    }

    /// Makes the writes; in one transaction they all have one cluster time.
    pub(super) fn apply(&mut self, effects: Vec<Effect>, one_commit: bool) -> u64 {
        for (index, effect) in effects.into_iter().enumerate() {
            let at = if one_commit && index > 0 { self.now } else { self.tick() };
            let held = self.visible.is_some();
            let collection = self.create(&effect.ns, Document::new());
            let uuid = collection.uuid;
            collection.put(&effect.key, at, effect.after.clone(), held);
            let index = if one_commit { index as u32 } else { 0 };
            let Effect { ns, id, what, after, .. } = effect;
            self.log(Entry { at, index, ns, uuid, what, id: Some(id), full: after });
        }
        self.now
    }

    /// Drops a collection; `false`: there is none.
    pub(super) fn drop_collection(&mut self, ns: &Ns) -> bool {
        let Some(collection) = self.collections.remove(ns) else { return false };
        let at = self.tick();
        let entry =
            Entry { at, index: 0, ns: ns.clone(), uuid: collection.uuid, what: What::Drop, id: None, full: None };
        self.log(entry);
        true
    }

    /// Drops a database, its collections first.
    pub(super) fn drop_database(&mut self, database: &str) {
        let own: Vec<Ns> = self.collections.keys().filter(|(other, _)| other == database).cloned().collect();
        own.iter().for_each(|ns| _ = self.drop_collection(ns));
        let (at, ns) = (self.tick(), (database.to_owned(), String::new()));
        self.log(Entry { at, index: 0, ns, uuid: [0; 16], what: What::DropDatabase, id: None, full: None });
    }

    /// Gives a collection another name; what had that name goes.
    pub(super) fn rename(&mut self, from: &Ns, to: &Ns) -> bool {
        let Some(collection) = self.collections.remove(from) else { return false };
        self.drop_collection(to);
        let (at, what) = (self.tick(), What::Rename(to.clone()));
        self.log(Entry { at, index: 0, ns: from.clone(), uuid: collection.uuid, what, id: None, full: None });
        self.collections.insert(to.clone(), collection);
        true
    }

    fn log(&mut self, entry: Entry) {
        if self.oplog.len() == OPLOG_ENTRIES_MAX
            && let Some(gone) = self.oplog.pop_front()
        {
            self.pruned_to = gone.at;
        }
        self.oplog.push_back(entry);
    }
}

impl Collection {
    fn put(&mut self, key: &[u8], at: u64, after: Option<Stored>, held: bool) {
        self.inserted += 1;
        let new = Versions { place: self.inserted, list: Vec::new() };
        let versions = self.documents.entry(key.to_owned()).or_insert(new);
        if versions.at(u64::MAX).is_none() {
            versions.place = self.inserted;
        }
        versions.list.push((at, after));
        if !held && !versions.forget() {
            self.documents.remove(key);
        }
    }
}

impl Versions {
    fn at(&self, time: u64) -> Option<&Stored> {
        let newest = self.list.iter().rev().find(|(at, _)| *at <= time)?;
        newest.1.as_ref()
    }

    /// Forgets all but the newest version; whether that is a document.
    fn forget(&mut self) -> bool {
        self.list.drain(..self.list.len().saturating_sub(1));
        self.list.last().is_some_and(|(_, document)| document.is_some())
    }
}

/// A cluster time as BSON has it.
pub(super) fn timestamp(at: u64) -> Timestamp {
    Timestamp { time: (at >> 32) as u32, increment: at as u32 }
}

/// A cluster time as a number.
pub(super) fn number(at: Timestamp) -> u64 {
    u64::from(at.time) << 32 | u64::from(at.increment)
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
