//! Indexes: their commands, the uniqueness of their values, and hints. Queries scan all documents.

use mongodb::bson::{Bson, Document, doc};

use super::failure::Failure;
use super::store::{Ns, Store};
use super::value::{as_integer, at_path, canonical};

/// Name of the index that every collection has.
const OF_ID: &str = "_id_";

pub fn create(store: &mut Store, ns: &Ns, body: &Document) -> Result<Document, Failure> {
    let specs = body.get_array("indexes").map(Vec::as_slice).unwrap_or_default();
    let indexes = &mut store.create(ns, Document::new()).indexes;
    let before = indexes.len();
    for spec in specs {
        let spec = spec.as_document().ok_or_else(|| Failure::bad_value("no index"))?;
        let name = spec.get_str("name").map_err(|_| Failure::bad_value("an index has a name"))?;
        match indexes.iter().find(|index| is_named(index, name)) {
            None => indexes.push(spec.clone()),
            Some(same) if same == spec => {}
            Some(_) => {
                let text = "An existing index has the same name as the requested index";
                return Err(Failure::new(86, "IndexKeySpecsConflict", text));
            }
        }
    }
    let after = indexes.len();
    store.tick();
    Ok(doc! {
        "numIndexesBefore": before as i32 + 1, "numIndexesAfter": after as i32 + 1, "ok": 1.0,
    })
}

pub fn drop(store: &mut Store, ns: &Ns, body: &Document) -> Result<Document, Failure> {
    let name = body.get_str("index").unwrap_or_default();
    let indexes = &mut store.collection_mut(ns).ok_or_else(no_collection)?.indexes;
    let before = indexes.len();
    indexes.retain(|index| name != "*" && !is_named(index, name));
    if indexes.len() == before && name != "*" {
        let text = format!("index not found with name [{name}]");
        return Err(Failure::new(27, "IndexNotFound", &text));
    }
    store.tick();
    Ok(doc! { "nIndexesWas": before as i32 + 1, "ok": 1.0 })
}

pub fn list(store: &Store, ns: &Ns) -> Result<Document, Failure> {
    let collection = store.collection(ns).ok_or_else(no_collection)?;
    let of_id = doc! { "v": 2, "key": { "_id": 1 }, "name": OF_ID };
    let own = collection.indexes.iter().map(|index| {
        let mut listed = doc! { "v": 2 };
        listed.extend(index.clone());
        listed
    });
    let batch: Vec<Document> = std::iter::once(of_id).chain(own).collect();
    let ns = format!("{}.{}", ns.0, ns.1);
    Ok(doc! { "cursor": { "id": 0_i64, "ns": ns, "firstBatch": batch }, "ok": 1.0 })
}

/// Executes `collMod` of an index: sets the options that it names.
pub fn modify(store: &mut Store, ns: &Ns, body: &Document) -> Result<Document, Failure> {
    let change = body.get_document("index").map_err(|_| Failure::bad_value("only of an index"))?;
    let indexes = &mut store.collection_mut(ns).ok_or_else(no_collection)?.indexes;
    let index = indexes.iter_mut().find(|index| index.get("name") == change.get("name"));
    let index = index.ok_or_else(|| Failure::new(27, "IndexNotFound", "cannot find index"))?;
    index.extend(change.clone());
    store.tick();
    Ok(doc! { "ok": 1.0 })
}

/// Checks that a query may use the index that it names.
pub fn check_hint(store: &Store, ns: &Ns, hint: Option<&Bson>) -> Result<(), Failure> {
    let Some(Bson::String(name)) = hint else { return Ok(()) };
    let Some(collection) = store.collection(ns) else { return Ok(()) };
    let is_it =
        |index: &Document| is_named(index, name) && !index.get_bool("hidden").unwrap_or(false);
    if name == OF_ID || collection.indexes.iter().any(is_it) {
        return Ok(());
    }
    Err(Failure::bad_value("hint provided does not correspond to an existing index"))
}

/// Returns the unique indexes over all documents.
pub fn unique(store: &Store, ns: &Ns) -> Vec<Document> {
    let all = store.collection(ns).map(|own| own.indexes.as_slice()).unwrap_or_default();
    let is_unique = |index: &&Document| {
        index.get_bool("unique").unwrap_or(false) && !index.contains_key("partialFilterExpression")
    };
    all.iter().filter(is_unique).cloned().collect()
}

/// Returns whether two documents have a value of the index in common.
pub fn collide(index: &Document, one: &Document, other: &Document) -> bool {
    let own = values(index, one);
    values(index, other).iter().any(|value| own.contains(value))
}

/// Returns the values of a document in an index: several if a field is an array.
fn values(index: &Document, document: &Document) -> Vec<Vec<u8>> {
    let Ok(key) = index.get_document("key") else { return Vec::new() };
    let found: Vec<Option<&Bson>> = key.keys().map(|path| at_path(document, path)).collect();
    if index.get("sparse").is_some_and(is_true) && found.iter().all(Option::is_none) {
        return Vec::new();
    }
    found.into_iter().fold(vec![Vec::new()], |all, value| {
        let alternatives = match value {
            Some(Bson::Array(elements)) if !elements.is_empty() => elements.clone(),
            value => vec![value.cloned().unwrap_or(Bson::Null)],
        };
        let with = |front: &Vec<u8>, value: &Bson| {
            let own = canonical(value);
            [front, &(own.len() as u32).to_be_bytes()[..], &own].concat()
        };
        all.iter().flat_map(|front| alternatives.iter().map(move |v| with(front, v))).collect()
    })
}

fn is_named(index: &Document, name: &str) -> bool {
    index.get_str("name").is_ok_and(|own| own == name)
}

fn is_true(value: &Bson) -> bool {
    matches!(value, Bson::Boolean(true)) || as_integer(value).is_some_and(|n| n != 0)
}

pub fn duplicate(ns: &Ns, index: &Document) -> Failure {
    let name = index.get_str("name").unwrap_or(OF_ID);
    let text =
        format!("E11000 duplicate key error collection: {}.{} index: {name} dup key", ns.0, ns.1);
    Failure::new(11000, "DuplicateKey", &text)
}

fn no_collection() -> Failure {
    Failure::new(26, "NamespaceNotFound", "ns does not exist")
}
