//! What a collection is in the database, and how it is read.

use hotrow_cache::key::{CollectionId, KEY_PARTS_MAX, KeySchema};
use mongodb::Database;
use mongodb::bson::{Bson, Document as BsonDocument, doc, serialize_to_vec};
use mongodb::error::Error;

use super::bson::Document;
use super::error::{self, finding};
use super::json::Fields;
use super::keys::{self, KeyShape, Learned};
use crate::findings::Finding;
use crate::spec::{CollectionSpec, KeyTypeName};

/// Documents looked at where the type of `_id` is not configured.
const SAMPLE: i32 = 100;

/// A collection as reading and watching it needs to know.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Served {
    pub(crate) id: CollectionId,
    /// In the database.
    pub(crate) name: String,
    pub(crate) shape: KeyShape,
    /// What the database is asked to send; always with `_id`, by which an answer finds its key.
    pub(crate) projection: Option<BsonDocument>,
    pub(crate) fields: Fields,
}

impl Served {
    pub(crate) fn schema(&self) -> KeySchema {
        self.shape.schema(self.id)
    }
}

/// Looks at all collections. Each can be served, or there are findings.
///
/// # Errors
/// Of the driver: nothing is known then.
pub(crate) async fn collections(
    database: &Database,
    specs: &[CollectionSpec],
) -> Result<Vec<Result<Served, Vec<Finding>>>, Error> {
    let mut served = Vec::with_capacity(specs.len());
    let kinds = match kinds(database, specs).await {
        Ok(kinds) => kinds,
        Err(e) if error::code(&e) == Some(error::UNAUTHORIZED) => {
            let what =
                format!("the account may not list the collections of `{}`: {}", database.name(), error::text(&e));
            return Ok(vec![Err(vec![Finding::new(what, grant(database.name()))])]);
        }
        Err(e) => return Err(e),
    };
    for (i, spec) in specs.iter().enumerate() {
        let mut findings = check(spec, kinds.iter().find(|(name, _)| *name == spec.table).map(|(_, kind)| kind));
        let shape = if findings.is_empty() { shape(database, spec).await? } else { Err(Vec::new()) };
        served.push(match shape {
            Ok(shape) => {
                let (projection, fields) = selection(spec);
                // Collections are numbered with 16 bits.
                Ok(Served { id: CollectionId(i as u16), name: spec.table.clone(), shape, projection, fields })
            }
            Err(more) => {
                findings.extend(more);
                Err(findings)
            }
        });
    }
    Ok(served)
}

/// What allows an account everything that is needed.
pub(crate) fn grant(database: &str) -> String {
    format!("db.getSiblingDB(\"admin\").grantRolesToUser(\"<user>\", [{{ role: \"read\", db: \"{database}\" }}])")
}

/// What kind of collection a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kind {
    /// `collection`, `view` or `timeseries`.
    ty: String,
    capped: bool,
}

async fn kinds(database: &Database, specs: &[CollectionSpec]) -> Result<Vec<(String, Kind)>, Error> {
    let names: Vec<&str> = specs.iter().map(|s| s.table.as_str()).collect();
    // More than one batch holds (101) may be asked for.
    let batch = i32::try_from(names.len()).unwrap_or(i32::MAX).saturating_add(1);
    let command =
        doc! { "listCollections": 1, "filter": { "name": { "$in": names } }, "cursor": { "batchSize": batch } };
    let answer = database.run_command(command).await?;
    let batch = answer.get_document("cursor").and_then(|c| c.get_array("firstBatch")).cloned().unwrap_or_default();
    let kind = |entry: &Bson| {
        let entry = entry.as_document()?;
        let capped = entry.get_document("options").is_ok_and(|o| o.get_bool("capped").unwrap_or(false));
        Some((entry.get_str("name").ok()?.to_owned(), Kind { ty: entry.get_str("type").ok()?.to_owned(), capped }))
    };
    Ok(batch.iter().filter_map(kind).collect())
}

/// What is wrong with a collection without looking inside.
fn check(spec: &CollectionSpec, kind: Option<&Kind>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let name = &spec.table;
    let mut found = |what: String, mend: String| findings.push(finding(&spec.name, &what, mend));
    match kind {
        None => found(
            format!("there is no collection `{name}` in the database"),
            format!("correct `table`, or run db.createCollection(\"{name}\")"),
        ),
        Some(kind) if kind.ty != "collection" => found(
            format!("`{name}` is a {}, which has no change stream of its own", kind.ty),
            "serve the collection behind it".into(),
        ),
        Some(kind) if kind.capped => found(
            format!("`{name}` is capped: what falls out at its end is told by no change stream"),
            format!("copy it into an ordinary one: db.{name}.aggregate([{{ $out: \"<name>\" }}])"),
        ),
        Some(_) => {}
    }
    if name.starts_with("system.") {
        found(
            format!("`{name}` belongs to MongoDB itself and is in no change stream"),
            "serve another collection".into(),
        );
    }
    if key_fields(&spec.key).is_none() {
        found(
            format!("the key is {}; a change stream tells of deleted documents only their `_id`", spec.key.join(", ")),
            format!(
                "set `key` to \"_id\", or to one to {KEY_PARTS_MAX} fields of an `_id` that is a document: [\"_id.a\", \"_id.b\"]"
            ),
        );
    }
    let names = spec.columns.iter().flatten().chain(&spec.exclude);
    let mut names: Vec<&str> = names.map(String::as_str).collect();
    names.sort_unstable();
    for name in &names {
        if name.split('.').any(|part| part.is_empty() || part.starts_with('$')) {
            found(format!("`{name}` cannot be a field's path"), "correct `columns` or `exclude`".into());
        }
    }
    for name in spec.exclude.iter().filter(|name| name.starts_with("_id.")) {
        found(
            format!("`{name}` is a part of the key, which is needed as a whole"),
            "exclude `_id` as a whole, or nothing of it".into(),
        );
    }
    for pair in names.windows(2).filter(|pair| pair[1].strip_prefix(pair[0]).is_some_and(|rest| rest.starts_with('.')))
    {
        found(format!("`{}` is a part of `{}`, and both are named", pair[1], pair[0]), "name one of them".into());
    }
    findings
}

/// The fields of an `_id` that is a document, none for a plain `_id`; nothing when the key is neither.
fn key_fields(key: &[String]) -> Option<Vec<&str>> {
    match key {
        [id] if id == "_id" => Some(Vec::new()),
        fields if (1..=KEY_PARTS_MAX).contains(&fields.len()) => {
            let field = |f: &String| f.strip_prefix("_id.").is_some_and(|f| !f.is_empty() && !f.contains('.'));
            fields.iter().all(field).then(|| fields.iter().filter_map(|f| f.strip_prefix("_id.")).collect())
        }
        _ => None,
    }
}

/// The shape of the keys: as configured, else as a sample of the documents has it.
async fn shape(database: &Database, spec: &CollectionSpec) -> Result<Result<KeyShape, Vec<Finding>>, Error> {
    let fields = key_fields(&spec.key).unwrap_or_default();
    let parts = fields.len().max(1);
    let types = if spec.key_types.len() == parts {
        spec.key_types.clone()
    } else {
        let documents = sample(database, &spec.table).await?;
        match learned(spec, &fields, &documents) {
            Ok(types) => types,
            Err(finding) => return Ok(Err(vec![finding])),
        }
    };
    if fields.is_empty() {
        return Ok(Ok(KeyShape::Plain(types.first().copied().unwrap_or(KeyTypeName::ObjectId))));
    }
    Ok(Ok(KeyShape::Document(fields.into_iter().map(str::to_owned).zip(types).collect())))
}

/// Some documents' `_id`s.
async fn sample(database: &Database, name: &str) -> Result<Vec<Vec<u8>>, Error> {
    let pipeline = vec![doc! { "$sample": { "size": SAMPLE } }, doc! { "$project": { "_id": 1 } }];
    let command = doc! { "aggregate": name, "pipeline": pipeline, "cursor": { "batchSize": SAMPLE + 1 } };
    let answer = database.run_command(command).await?;
    let batch = answer.get_document("cursor").and_then(|c| c.get_array("firstBatch")).cloned().unwrap_or_default();
    Ok(batch.iter().filter_map(Bson::as_document).filter_map(|d| serialize_to_vec(d).ok()).collect())
}

fn learned(spec: &CollectionSpec, fields: &[&str], documents: &[Vec<u8>]) -> Result<Vec<KeyTypeName>, Finding> {
    let names: Vec<Option<&str>> =
        if fields.is_empty() { vec![None] } else { fields.iter().map(|f| Some(*f)).collect() };
    let mut types = Vec::new();
    for name in names {
        let ids = documents.iter().filter_map(|d| keys::field(Document::new(d).ok()?.get("_id"), name));
        types.push(match keys::learn(ids) {
            Learned::One(ty) => ty,
            Learned::Nothing => {
                tracing::info!(
                    collection = %spec.name,
                    "the collection is empty: its ids are taken for ObjectIds; set `key_type` if they will be others"
                );
                KeyTypeName::ObjectId
            }
            Learned::Mixed => {
                let what = format!("the values of `{}` are of several types, or of one that is no id", spec.key.join(", "));
                return Err(finding(
                    &spec.name,
                    &what,
                    "set `key_type` to the one to be served: \"objectid\", \"text\", \"integer\", \"uuid\" or \"bytes\"; documents with another `_id` are then not served",
                ));
            }
        });
    }
    let words: Vec<&str> = types.iter().map(|ty| keys::word(*ty)).collect();
    tracing::debug!(collection = %spec.name, key_type = ?words, "the type of the ids, from a sample");
    Ok(types)
}

/// What to ask for, and what of it to write.
fn selection(spec: &CollectionSpec) -> (Option<BsonDocument>, Fields) {
    let excluded = |name: &str| spec.exclude.iter().any(|e| e == name);
    let Some(columns) = &spec.columns else {
        // `_id` is fetched all the same.
        let projection: BsonDocument =
            spec.exclude.iter().filter(|e| *e != "_id").map(|e| (e.clone(), Bson::Int32(0))).collect();
        return ((!projection.is_empty()).then_some(projection), Fields::AsTheyCome { with_id: !excluded("_id") });
    };
    let mut projection: BsonDocument = doc! { "_id": 1 };
    let mut order: Vec<String> = Vec::new();
    for column in columns.iter().filter(|c| !excluded(c)) {
        let top = column.split('.').next().unwrap_or(column);
        if top != "_id" {
            projection.insert(column.clone(), 1);
        }
        if !order.iter().any(|o| o == top) {
            order.push(top.to_owned());
        }
    }
    (Some(projection), Fields::InOrder(order))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(key: &[&str], columns: Option<&[&str]>, exclude: &[&str]) -> CollectionSpec {
        let owned = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        CollectionSpec {
            name: "c".into(),
            table: "things".into(),
            key: owned(key),
            key_types: Vec::new(),
            columns: columns.map(owned),
            exclude: owned(exclude),
        }
    }

    fn plain() -> Kind {
        Kind { ty: "collection".into(), capped: false }
    }

    #[test]
    fn each_thing_in_the_way_is_a_finding_of_its_own() {
        let said = |spec: &CollectionSpec, kind: Option<Kind>| {
            check(spec, kind.as_ref()).into_iter().map(|f| f.what).collect::<Vec<_>>().join("; ")
        };
        let id = spec(&["_id"], None, &[]);
        assert_eq!(said(&id, Some(plain())), "");
        assert!(said(&id, None).contains("no collection `things`"));
        assert!(said(&id, Some(Kind { ty: "view".into(), capped: false })).contains("is a view"));
        assert!(said(&id, Some(Kind { ty: "collection".into(), capped: true })).contains("capped"));
        for key in [&["sku"][..], &["_id", "_id.a"], &["_id."], &["_id.a.b"], &["_id.a"; 5]] {
            assert!(said(&spec(key, None, &[]), Some(plain())).contains("only their `_id`"), "{key:?}");
        }
        assert_eq!(said(&spec(&["_id.a", "_id.b"], None, &[]), Some(plain())), "");
        assert!(said(&spec(&["_id"], Some(&["a", "a.b"]), &[]), Some(plain())).contains("both are named"));
        assert!(said(&spec(&["_id.a"], None, &["_id.a"]), Some(plain())).contains("part of the key"));
        assert!(said(&spec(&["_id"], Some(&["$a"]), &[]), Some(plain())).contains("path"));
        let both = said(&spec(&["sku"], None, &["a."]), None);
        assert_eq!(both.matches(';').count(), 3, "{both}");
    }

    #[test]
    fn the_id_is_fetched_always_and_written_where_it_is_served() {
        assert_eq!(selection(&spec(&["_id"], None, &[])), (None, Fields::AsTheyCome { with_id: true }));
        let (projection, fields) = selection(&spec(&["_id"], None, &["_id", "secret"]));
        assert_eq!((projection, fields), (Some(doc! { "secret": 0 }), Fields::AsTheyCome { with_id: false }));
        let (projection, fields) = selection(&spec(&["_id"], Some(&["b.x", "a", "b.y", "z"]), &["z"]));
        assert_eq!(projection, Some(doc! { "_id": 1, "b.x": 1, "a": 1, "b.y": 1 }));
        assert_eq!(fields, Fields::InOrder(vec!["b".into(), "a".into()]));
    }
}
