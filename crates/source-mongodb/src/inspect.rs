//! Inspection of collections: keys, projection and served fields.

use hotrow_types::key::{CollectionId, KEY_PARTS_MAX, Key, KeySchema};
use mongodb::Database;
use mongodb::bson::{Bson, Document as BsonDocument, doc, serialize_to_vec};
use mongodb::error::Error;

use super::alias::AliasFields;
use super::bson::Document;
use super::error::{self, finding};
use super::json::Fields;
use super::keys::{self, KeyShape, SampledType};
use hotrow_source::preflight::{Finding, suggested};
use hotrow_source::spec::{CollectionConfig, Follow, KeyTypeName};

mod aliases;

/// Number of sampled documents if the type of `_id` is not configured.
const SAMPLE: i32 = 100;

/// Collection, as far as reads and the feed need it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Served {
    pub(crate) id: CollectionId,
    /// Name in the database.
    pub(crate) name: String,
    pub(crate) shape: KeyShape,
    /// Projection sent to the database; always with `_id`, by which a document finds its key.
    pub(crate) projection: Option<BsonDocument>,
    pub(crate) fields: Fields,
    /// Field that names the tenant.
    pub(crate) tenant: Option<String>,
    /// Fields by which an alias looks documents up. The other settings are those of the collection
    /// whose records it finds.
    pub(crate) alias: Option<AliasFields>,
}

impl Served {
    pub(crate) fn schema(&self) -> KeySchema {
        match &self.alias {
            None => self.schema_of_id(),
            Some(alias) => alias.schema(self.id),
        }
    }

    /// Returns the schema of `_id`s, which for an alias is that of its records' keys.
    pub(crate) fn schema_of_id(&self) -> KeySchema {
        self.shape.schema(self.id)
    }

    /// Returns the filter that finds the documents of these keys.
    pub(crate) fn filter(&self, keys: &[Key]) -> BsonDocument {
        match (&self.alias, keys) {
            (Some(alias), keys) => alias.filter(keys),
            (None, [key]) => doc! { "_id": self.shape.id(key) },
            (None, keys) => {
                let ids: Vec<Bson> = keys.iter().map(|key| self.shape.id(key)).collect();
                doc! { "_id": { "$in": ids } }
            }
        }
    }
}

/// Inspects all collections. Each one can be served, or has findings.
pub(crate) async fn collections(
    database: &Database,
    specs: &[CollectionConfig],
    follow: Follow,
) -> Result<Vec<Result<Served, Vec<Finding>>>, Error> {
    let mut served = Vec::with_capacity(specs.len());
    let collection_kinds = match collection_kinds(database, specs).await {
        Ok(collection_kinds) => collection_kinds,
        Err(e) if error::code(&e) == Some(error::UNAUTHORIZED) => {
            let what = format!(
                "the account may not list the collections of `{}`: {}",
                database.name(),
                error::text(&e)
            );
            return Ok(vec![Err(vec![Finding::new(what, grant(database.name()))])]);
        }
        Err(e) => return Err(e),
    };
    for (i, spec) in specs.iter().enumerate() {
        if spec.is_alias {
            let of = aliases::base(specs, spec).and_then(|place| served.get(place));
            served.push(match of {
                Some(Ok(of)) => aliases::alias(database, spec, specs, of, i).await?,
                // The findings are those of its collection.
                _ => Err(Vec::new()),
            });
            continue;
        }
        let kind = collection_kinds.iter().find(|(name, _)| *name == spec.table);
        let mut findings = check(spec, kind.map(|(_, kind)| kind));
        findings.retain(|finding| follow.is_kept_by(finding));
        if kind.is_none()
            && let Some(finding) = findings.first_mut()
        {
            // Without them the finding is still right.
            let names = database.list_collection_names().await.unwrap_or_default();
            finding.problem.push_str(&suggested(&spec.table, &names));
        }
        let shape =
            if findings.is_empty() { shape(database, spec).await? } else { Err(Vec::new()) };
        served.push(match shape {
            Ok(shape) => {
                let (projection, fields) = selection(spec);
                // Collections are numbered with 16 bits.
                Ok(Served {
                    id: CollectionId(i as u16),
                    name: spec.table.clone(),
                    shape,
                    projection,
                    fields,
                    tenant: spec.tenant.clone(),
                    alias: None,
                })
            }
            Err(more) => {
                findings.extend(more);
                Err(findings)
            }
        });
    }
    Ok(served)
}

/// Returns the command that grants an account all needed privileges.
pub(crate) fn grant(database: &str) -> String {
    format!(
        "db.getSiblingDB(\"admin\").grantRolesToUser(\"<user>\", \
         [{{ role: \"read\", db: \"{database}\" }}])"
    )
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct CollectionKind {
    /// `collection`, `view` or `timeseries`.
    ty: String,
    capped: bool,
}

async fn collection_kinds(
    database: &Database,
    specs: &[CollectionConfig],
) -> Result<Vec<(String, CollectionKind)>, Error> {
    let names: Vec<&str> = specs.iter().map(|s| s.table.as_str()).collect();
    // The default batch holds 101 collections, which may be too few.
    let batch = i32::try_from(names.len()).unwrap_or(i32::MAX).saturating_add(1);
    let filter = doc! { "name": { "$in": names } };
    let command = doc! { "listCollections": 1, "filter": filter, "cursor": { "batchSize": batch } };
    let answer = database.run_command(command).await?;
    let batch = answer
        .get_document("cursor")
        .and_then(|c| c.get_array("firstBatch"))
        .cloned()
        .unwrap_or_default();
    let kind = |entry: &Bson| {
        let entry = entry.as_document()?;
        let capped =
            entry.get_document("options").is_ok_and(|o| o.get_bool("capped").unwrap_or(false));
        Some((
            entry.get_str("name").ok()?.to_owned(),
            CollectionKind { ty: entry.get_str("type").ok()?.to_owned(), capped },
        ))
    };
    Ok(batch.iter().filter_map(kind).collect())
}

/// Returns the findings that need no look at the documents.
fn check(spec: &CollectionConfig, kind: Option<&CollectionKind>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let name = &spec.table;
    let finding = |what: String, remedy: String| finding(&spec.name, &what, remedy);
    if kind.is_some_and(|kind| kind.capped) {
        let what = format!(
            "`{name}` is capped, and no change stream reports the documents removed at its end"
        );
        let remedy =
            format!("copy it into an ordinary one: db.{name}.aggregate([{{ $out: \"<name>\" }}])");
        findings.push(finding(what, remedy).of_feed());
    }
    let mut found = |what, remedy| findings.push(finding(what, remedy));
    match kind {
        None => found(
            format!("there is no collection `{name}` in the database"),
            format!("correct `table`, or run db.createCollection(\"{name}\")"),
        ),
        Some(kind) if kind.ty != "collection" => found(
            format!("`{name}` is a {}, which has no change stream of its own", kind.ty),
            "serve the collection behind it".into(),
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
            format!(
                "the key is {}; for deleted documents a change stream reports only their `_id`",
                spec.key.join(", ")
            ),
            format!(
                "set `key` to \"_id\", or to one to {KEY_PARTS_MAX} fields of an `_id` that is a \
                 document: [\"_id.a\", \"_id.b\"]"
            ),
        );
    }
    if let Some(tenant) = spec.tenant.iter().find(|name| name.contains('.')) {
        found(
            format!("the tenant is `{tenant}`, a part of a field"),
            "name a field of the document itself as `tenant`".into(),
        );
    }
    let names = spec.columns.iter().flatten().chain(&spec.exclude).chain(&spec.tenant);
    let mut names: Vec<&str> = names.map(String::as_str).collect();
    names.sort_unstable();
    for name in &names {
        if name.split('.').any(|part| part.is_empty() || part.starts_with('$')) {
            found(
                format!("`{name}` cannot be a field's path"),
                "correct `columns` or `exclude`".into(),
            );
        }
    }
    for name in spec.exclude.iter().filter(|name| name.starts_with("_id.")) {
        found(
            format!("`{name}` is a part of the key, which is needed as a whole"),
            "exclude `_id` as a whole, or nothing of it".into(),
        );
    }
    for pair in names
        .windows(2)
        .filter(|pair| pair[1].strip_prefix(pair[0]).is_some_and(|rest| rest.starts_with('.')))
    {
        found(
            format!("`{}` is a part of `{}`, and both are named", pair[1], pair[0]),
            "name one of them".into(),
        );
    }
    findings
}

/// Returns the fields of an `_id` that is a document (empty for a plain `_id`), or `None` if the
/// key is neither.
fn key_fields(key: &[String]) -> Option<Vec<&str>> {
    match key {
        [id] if id == "_id" => Some(Vec::new()),
        fields if (1..=KEY_PARTS_MAX).contains(&fields.len()) => {
            let field = |f: &String| {
                f.strip_prefix("_id.").is_some_and(|f| !f.is_empty() && !f.contains('.'))
            };
            fields
                .iter()
                .all(field)
                .then(|| fields.iter().filter_map(|f| f.strip_prefix("_id.")).collect())
        }
        _ => None,
    }
}

/// Returns the shape of the keys: as configured, or as found in a sample of the documents.
async fn shape(
    database: &Database,
    spec: &CollectionConfig,
) -> Result<Result<KeyShape, Vec<Finding>>, Error> {
    let fields = key_fields(&spec.key).unwrap_or_default();
    let parts = fields.len().max(1);
    let types = if spec.key_types.len() == parts {
        spec.key_types.clone()
    } else {
        let documents = sample(database, &spec.table, doc! { "_id": 1 }).await?;
        match sampled_types(spec, &fields, &documents) {
            Ok(types) => types,
            Err(finding) => return Ok(Err(vec![finding])),
        }
    };
    if fields.is_empty() {
        return Ok(Ok(KeyShape::Plain(types.first().copied().unwrap_or(KeyTypeName::ObjectId))));
    }
    Ok(Ok(KeyShape::Document(fields.into_iter().map(str::to_owned).zip(types).collect())))
}

/// Reads some fields of some documents.
async fn sample(
    database: &Database,
    name: &str,
    fields: BsonDocument,
) -> Result<Vec<Vec<u8>>, Error> {
    let documents = sampled(database, name, Some(fields)).await?;
    Ok(documents.iter().filter_map(|document| serialize_to_vec(document).ok()).collect())
}

/// Reads some documents, with these fields or all of them.
pub(crate) async fn sampled(
    database: &Database,
    name: &str,
    fields: Option<BsonDocument>,
) -> Result<Vec<BsonDocument>, Error> {
    let mut pipeline = vec![doc! { "$sample": { "size": SAMPLE } }];
    pipeline.extend(fields.map(|fields| doc! { "$project": fields }));
    let command =
        doc! { "aggregate": name, "pipeline": pipeline, "cursor": { "batchSize": SAMPLE + 1 } };
    let answer = database.run_command(command).await?;
    let batch = answer
        .get_document("cursor")
        .and_then(|c| c.get_array("firstBatch"))
        .cloned()
        .unwrap_or_default();
    Ok(batch.iter().filter_map(Bson::as_document).cloned().collect())
}

fn sampled_types(
    spec: &CollectionConfig,
    fields: &[&str],
    documents: &[Vec<u8>],
) -> Result<Vec<KeyTypeName>, Finding> {
    let names: Vec<Option<&str>> =
        if fields.is_empty() { vec![None] } else { fields.iter().map(|f| Some(*f)).collect() };
    let mut types = Vec::new();
    for name in names {
        let ids =
            documents.iter().filter_map(|d| keys::field(Document::new(d).ok()?.get("_id"), name));
        types.push(match keys::sampled_type(ids) {
            SampledType::One(ty) => ty,
            SampledType::Empty => {
                tracing::info!(
                    collection = %spec.name,
                    "the collection is empty: its ids are taken for ObjectIds; \
                     set `key_type` if they will be others"
                );
                KeyTypeName::ObjectId
            }
            SampledType::Mixed => {
                let what = format!(
                    "the values of `{}` are of several types, or of one that is no id",
                    spec.key.join(", ")
                );
                return Err(finding(
                    &spec.name,
                    &what,
                    "set `key_type` to the one to be served: \"objectid\", \"text\", \"integer\", \
                     \"uuid\" or \"bytes\"; documents with another `_id` are then not served",
                ));
            }
        });
    }
    let words: Vec<&str> = types.iter().map(|ty| ty.word()).collect();
    tracing::debug!(
        collection = %spec.name,
        key_type = ?words,
        "the type of the ids, from a sample"
    );
    Ok(types)
}

/// Returns the projection to request, and the fields to write.
fn selection(spec: &CollectionConfig) -> (Option<BsonDocument>, Fields) {
    let excluded = |name: &str| spec.exclude.iter().any(|e| e == name);
    // Fetched in any case: `_id` names the document, and the tenant decides who may see it.
    let is_fetched = |name: &str| name == "_id" || spec.tenant.as_deref() == Some(name);
    let Some(columns) = &spec.columns else {
        let (without, unread): (Vec<String>, Vec<String>) =
            spec.exclude.iter().cloned().partition(|name| is_fetched(name));
        let projection: BsonDocument =
            unread.into_iter().map(|name| (name, Bson::Int32(0))).collect();
        return ((!projection.is_empty()).then_some(projection), Fields::StoredOrder { without });
    };
    let mut projection: BsonDocument = doc! { "_id": 1 };
    if let Some(tenant) = spec.tenant.as_ref().filter(|name| *name != "_id") {
        projection.insert(tenant.clone(), 1);
    }
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

    fn spec(key: &[&str], columns: Option<&[&str]>, exclude: &[&str]) -> CollectionConfig {
        let owned = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        CollectionConfig {
            name: "c".into(),
            table: "things".into(),
            key: owned(key),
            key_types: Vec::new(),
            columns: columns.map(owned),
            exclude: owned(exclude),
            tenant: None,
            is_alias: false,
            embed: Vec::new(),
        }
    }

    fn plain() -> CollectionKind {
        CollectionKind { ty: "collection".into(), capped: false }
    }

    #[test]
    fn each_problem_is_a_separate_finding() {
        let problems = |spec: &CollectionConfig, kind: Option<CollectionKind>| {
            check(spec, kind.as_ref()).into_iter().map(|f| f.problem).collect::<Vec<_>>().join("; ")
        };
        let id = spec(&["_id"], None, &[]);
        assert_eq!(problems(&id, Some(plain())), "");
        assert!(problems(&id, None).contains("no collection `things`"));
        assert!(
            problems(&id, Some(CollectionKind { ty: "view".into(), capped: false }))
                .contains("is a view")
        );
        let capped = check(&id, Some(&CollectionKind { capped: true, ..plain() }));
        assert!(capped[0].is_of_feed && capped[0].problem.contains("is capped"), "{capped:?}");
        for key in [&["sku"][..], &["_id", "_id.a"], &["_id."], &["_id.a.b"], &["_id.a"; 5]] {
            assert!(
                problems(&spec(key, None, &[]), Some(plain())).contains("only their `_id`"),
                "{key:?}"
            );
        }
        assert_eq!(problems(&spec(&["_id.a", "_id.b"], None, &[]), Some(plain())), "");
        assert!(
            problems(&spec(&["_id"], Some(&["a", "a.b"]), &[]), Some(plain()))
                .contains("both are named")
        );
        assert!(
            problems(&spec(&["_id.a"], None, &["_id.a"]), Some(plain()))
                .contains("part of the key")
        );
        assert!(problems(&spec(&["_id"], Some(&["$a"]), &[]), Some(plain())).contains("path"));
        let both = problems(&spec(&["sku"], None, &["a."]), None);
        assert_eq!(both.matches(';').count(), 3, "{both}");
    }

    #[test]
    fn the_id_is_always_fetched_and_written_if_served() {
        assert_eq!(
            selection(&spec(&["_id"], None, &[])),
            (None, Fields::StoredOrder { without: Vec::new() })
        );
        let (projection, fields) = selection(&spec(&["_id"], None, &["_id", "secret"]));
        assert_eq!(
            (projection, fields),
            (Some(doc! { "secret": 0 }), Fields::StoredOrder { without: vec!["_id".into()] })
        );
        let (projection, fields) =
            selection(&spec(&["_id"], Some(&["b.x", "a", "b.y", "z"]), &["z"]));
        assert_eq!(projection, Some(doc! { "_id": 1, "b.x": 1, "a": 1, "b.y": 1 }));
        assert_eq!(fields, Fields::InOrder(vec!["b".into(), "a".into()]));
    }
}
