//! Inserts, updates and deletes: converts a command to its effects on the stored data and on
//! earlier writes of the same transaction.

use std::collections::BTreeMap;
use std::sync::Arc;

use mongodb::bson::{Bson, Document, RawDocumentBuf, doc, oid::ObjectId};

use super::failure::Failure;
use super::filter::filter_matches;
use super::indexes;
use super::store::{Effect, Ns, Operation, Store, Stored};
use super::update::{Changed, changed};
use super::value::canonical;
use super::wire::Request;

/// Writes of a command or of a transaction that are not applied yet.
#[derive(Default)]
pub struct Pending {
    pub effects: Vec<Effect>,
    newest: BTreeMap<(Ns, Vec<u8>), usize>,
}

impl Pending {
    fn add(&mut self, effect: Effect) {
        self.newest.insert((effect.ns.clone(), effect.key.clone()), self.effects.len());
        self.effects.push(effect);
    }
}

/// View of a write: the newest versions, its own writes first.
struct View<'a> {
    store: &'a Store,
    pending: &'a mut Pending,
    ns: Ns,
}

/// Executes a write command: adds its effects to `pending`, and returns the answer.
pub fn write(store: &Store, pending: &mut Pending, request: &Request) -> Result<Document, Failure> {
    let name = request.name();
    let collection = request
        .body
        .get_str(name)
        .map_err(|_| Failure::bad_value("a write without a collection"))?;
    let mut view =
        View { store, pending, ns: (request.database().to_owned(), collection.to_owned()) };
    let mut tally = Tally::default();
    let list = match name {
        "insert" => "documents",
        "update" => "updates",
        _ => "deletes",
    };
    for (index, raw) in request.documents(list).into_iter().enumerate() {
        let done = match name {
            "insert" => view.insert(raw).map(|()| tally.n += 1),
            "update" => view.update(&parsed(&raw)?, index, &mut tally),
            _ => view.delete(&parsed(&raw)?).map(|deleted| tally.n += deleted),
        };
        if let Err(failure) = done {
            tally.errors.push(
                doc! { "index": index as i32, "code": failure.code, "errmsg": failure.message },
            );
            if request.body.get_bool("ordered").unwrap_or(true) {
                break;
            }
        }
    }
    Ok(tally.reply(name))
}

#[derive(Default)]
struct Tally {
    n: i32,
    modified: i32,
    upserted: Vec<Document>,
    errors: Vec<Document>,
}

impl Tally {
    fn reply(self, name: &str) -> Document {
        let mut reply = doc! { "n": self.n };
        if name == "update" {
            reply.insert("nModified", self.modified);
        }
        if !self.upserted.is_empty() {
            reply.insert("upserted", self.upserted);
        }
        if !self.errors.is_empty() {
            reply.insert("writeErrors", self.errors);
        }
        reply.insert("ok", 1.0);
        reply
    }
}

impl View<'_> {
    fn get(&self, key: &[u8]) -> Option<Stored> {
        match self.pending.newest.get(&(self.ns.clone(), key.to_vec())) {
            Some(index) => self.pending.effects[*index].after.clone(),
            None => self.store.newest(&self.ns, key).cloned(),
        }
    }

    /// Returns the documents that match the filter, at most `limit`.
    fn matching(
        &self,
        filter: &Document,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, Document, Stored)>, Failure> {
        let mut found = Vec::new();
        let keys: Vec<Vec<u8>> = match by_id(filter) {
            Some(id) => vec![canonical(id)],
            None => {
                let stored = self.store.all_at(&self.ns, u64::MAX);
                let own = self
                    .pending
                    .newest
                    .keys()
                    .filter(|(ns, _)| *ns == self.ns)
                    .map(|(_, key)| key.clone());
                let stored: Vec<Vec<u8>> =
                    stored.into_iter().map(|(key, _)| key.to_vec()).collect();
                let more: Vec<Vec<u8>> = own.filter(|key| !stored.contains(key)).collect();
                stored.into_iter().chain(more).collect()
            }
        };
        for key in keys {
            let Some(stored) = self.get(&key) else { continue };
            let fields = parsed(&stored)?;
            if filter_matches(filter, &fields)? {
                found.push((key, fields, stored));
                if found.len() == limit {
                    break;
                }
            }
        }
        Ok(found)
    }

    fn put(&mut self, id: Bson, operation: Operation, after: Option<RawDocumentBuf>) {
        let ns = self.ns.clone();
        let key = canonical(&id);
        self.pending.add(Effect { ns, key, id, operation, after: after.map(Arc::new) });
    }

    fn insert(&mut self, raw: RawDocumentBuf) -> Result<(), Failure> {
        let id = raw.get("_id").ok().flatten().and_then(|id| Bson::try_from(id).ok());
        let Some(id) = id else { return Err(Failure::bad_value("a document without _id")) };
        if matches!(id, Bson::Array(_) | Bson::RegularExpression(_) | Bson::Undefined) {
            return Err(Failure::new(2, "BadValue", "The '_id' value cannot be of this type"));
        }
        if self.get(&canonical(&id)).is_some() {
            return Err(indexes::duplicate(&self.ns, &Document::new()));
        }
        self.check_unique(&canonical(&id), &parsed(&raw)?)?;
        self.put(id, Operation::Insert, Some(raw));
        Ok(())
    }

    /// Checks that no other document has a value of this one in a unique index.
    fn check_unique(&self, key: &[u8], document: &Document) -> Result<(), Failure> {
        let unique = indexes::unique(self.store, &self.ns);
        if unique.is_empty() {
            return Ok(());
        }
        for (other, fields, _) in self.matching(&Document::new(), usize::MAX)? {
            if other != key
                && let Some(index) = unique.iter().find(|i| indexes::collide(i, &fields, document))
            {
                return Err(indexes::duplicate(&self.ns, index));
            }
        }
        Ok(())
    }

    fn update(
        &mut self,
        statement: &Document,
        index: usize,
        tally: &mut Tally,
    ) -> Result<(), Failure> {
        let filter =
            statement.get_document("q").map_err(|_| Failure::bad_value("an update without q"))?;
        let update = statement.get("u").ok_or_else(|| Failure::bad_value("an update without u"))?;
        let limit = if statement.get_bool("multi").unwrap_or(false) { usize::MAX } else { 1 };
        let found = self.matching(filter, limit)?;
        if found.is_empty() && statement.get_bool("upsert").unwrap_or(false) {
            let id = self.upsert(filter, update)?;
            tally.n += 1;
            tally.upserted.push(doc! { "index": index as i32, "_id": id });
        }
        for (_, before, _) in found {
            tally.n += 1;
            let id = before.get("_id").cloned().unwrap_or_default();
            match changed(&before, update)? {
                Changed::Nothing => continue,
                Changed::Fields { after, description } => {
                    self.check_unique(&canonical(&id), &after)?;
                    self.put(id, Operation::Update(description), Some(raw(&after)?))
                }
                Changed::Whole(after) => {
                    self.check_unique(&canonical(&id), &after)?;
                    self.put(id, Operation::Replace, Some(raw(&after)?))
                }
            }
            tally.modified += 1;
        }
        Ok(())
    }

    fn upsert(&mut self, filter: &Document, update: &Bson) -> Result<Bson, Failure> {
        let id = by_id(filter).cloned().unwrap_or_else(|| ObjectId::new().into());
        let mut before = doc! { "_id": id.clone() };
        let plain = filter
            .iter()
            .filter(|(name, value)| !name.contains('$') && value.as_document().is_none());
        before.extend(plain.map(|(name, value)| (name.clone(), value.clone())));
        let after = match changed(&before, update)? {
            Changed::Nothing => before,
            Changed::Fields { after, .. } | Changed::Whole(after) => after,
        };
        let key = canonical(&id);
        if self.get(&key).is_some() {
            return Err(indexes::duplicate(&self.ns, &Document::new()));
        }
        self.check_unique(&key, &after)?;
        self.put(id.clone(), Operation::Insert, Some(raw(&after)?));
        Ok(id)
    }

    fn delete(&mut self, statement: &Document) -> Result<i32, Failure> {
        let filter =
            statement.get_document("q").map_err(|_| Failure::bad_value("a delete without q"))?;
        let one = statement.get("limit").and_then(super::value::as_integer) == Some(1);
        let found = self.matching(filter, if one { 1 } else { usize::MAX })?;
        let deleted = found.len() as i32;
        for (_, fields, _) in found {
            self.put(fields.get("_id").cloned().unwrap_or_default(), Operation::Delete, None);
        }
        Ok(deleted)
    }
}

/// Returns the only `_id` that the filter can match, if it determines one.
pub fn by_id(filter: &Document) -> Option<&Bson> {
    match filter.get("_id")? {
        Bson::Document(operators)
            if operators.keys().next().is_some_and(|name| name.starts_with('$')) =>
        {
            operators.get("$eq")
        }
        Bson::RegularExpression(_) => None,
        id => Some(id),
    }
}

pub fn parsed(raw: &RawDocumentBuf) -> Result<Document, Failure> {
    Document::try_from(raw).map_err(|e| Failure::bad_value(&e.to_string()))
}

fn raw(fields: &Document) -> Result<RawDocumentBuf, Failure> {
    RawDocumentBuf::try_from(fields).map_err(|e| Failure::bad_value(&e.to_string()))
}
