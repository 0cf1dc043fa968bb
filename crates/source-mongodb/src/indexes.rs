//! Unique indexes that aliases rely on. No change event reports a changed index, so the feed looks
//! at them as engines with SQL look at their catalogue (`hotrow_source::catalog_watermark`).

use std::time::Duration;

use hotrow_measure::clock::Nanos;
use mongodb::Database;
use mongodb::bson::{Bson, Document as BsonDocument, doc};
use mongodb::error::Error;
use tokio::time::timeout;

use super::alias::AliasFields;
use super::error::{self, Ended};
use super::inspect::Served;
use super::shared::{AliasIndex, Shared};
use hotrow_source::{FlushCause, Sink};

/// More than the indexes that a collection may have (64).
const BATCH: i32 = 100;
/// Code of a collection that does not exist.
const NAMESPACE_NOT_FOUND: i32 = 26;

/// Indexes at one time, in the order of the collections; `None` for one that is no alias.
pub(crate) struct Looked {
    pub(crate) sent_at: Nanos,
    indexes: Vec<Option<AliasIndex>>,
}

/// Returns the index of an alias with these fields of a collection.
///
/// # Errors
/// An error of the driver, unless it says that there is no such collection.
pub(crate) async fn find(
    database: &Database,
    name: &str,
    fields: &[&str],
) -> Result<AliasIndex, Error> {
    match list(database, name).await {
        Ok(indexes) => Ok(choose(&indexes, fields)),
        Err(e) if error::code(&e) == Some(NAMESPACE_NOT_FOUND) => {
            Ok(Err("there is no such collection".into()))
        }
        Err(e) => Err(e),
    }
}

/// Returns the fields of each index that an alias can have, but for that of the `_id`; none if the
/// indexes cannot be listed.
pub(crate) async fn unique(database: &Database, name: &str) -> Vec<Vec<String>> {
    let indexes = list(database, name).await.unwrap_or_default();
    let keys = indexes.iter().filter_map(|index| index.as_document()?.get_document("key").ok());
    let fields = keys.map(|key| key.keys().map(String::as_str).collect::<Vec<_>>());
    let others = fields.filter(|fields| *fields != ["_id"] && choose(&indexes, fields).is_ok());
    others.map(|fields| fields.into_iter().map(str::to_owned).collect()).collect()
}

async fn list(database: &Database, name: &str) -> Result<Vec<Bson>, Error> {
    let command = doc! { "listIndexes": name, "cursor": { "batchSize": BATCH } };
    let answer = database.run_command(command).await?;
    let batch = answer.get_document("cursor").and_then(|c| c.get_array("firstBatch"));
    Ok(batch.cloned().unwrap_or_default())
}

/// Looks at the indexes of all aliases, within `limit`.
pub(crate) async fn look(
    database: &Database,
    served: &[Served],
    limit: Duration,
) -> Result<Looked, Ended> {
    let sent_at = Nanos::now();
    let find_all = async {
        let mut indexes = Vec::with_capacity(served.len());
        for own in served {
            indexes.push(match &own.alias {
                Some(alias) => Some(find(database, &own.name, &alias.names()).await?),
                None => None,
            });
        }
        Ok::<_, Error>(indexes)
    };
    match timeout(limit, find_all).await {
        Ok(Ok(indexes)) => Ok(Looked { sent_at, indexes }),
        Ok(Err(e)) => Err(Ended::interrupted(format!("listing the indexes: {}", error::text(&e)))),
        Err(_) => Err(Ended::silent("the list of indexes", limit)),
    }
}

impl Looked {
    /// Makes reads rely on these indexes, and flushes the aliases whose index has changed.
    pub(crate) fn apply(self, shared: &Shared, served: &[Served], sink: &dyn Sink) {
        for (own, index) in served.iter().zip(self.indexes) {
            let (Some(alias), Some(index)) = (&own.alias, index) else { continue };
            if shared.index(own.id).as_ref() == Some(&index) {
                continue;
            }
            match &index {
                Ok(index) => tracing::info!(alias = %alias.name, %index, "another unique index"),
                Err(why) => tracing::error!(
                    alias = %alias.name,
                    %why,
                    "the unique index is gone; lookups fail until there is one"
                ),
            }
            // Before the flush: a read that begins after it relies on the new index.
            shared.set_index(own.id, index);
            sink.flush(own.id, FlushCause::Schema, None);
        }
    }
}

impl AliasFields {
    pub(crate) fn names(&self) -> Vec<&str> {
        self.fields.iter().map(|(name, _)| name.as_str()).collect()
    }
}

/// Chooses among the indexes of a collection.
fn choose(specs: &[Bson], fields: &[&str]) -> AliasIndex {
    let mut faults = Vec::new();
    for spec in specs.iter().filter_map(Bson::as_document) {
        let name = spec.get_str("name").unwrap_or_default();
        match fault(spec, fields) {
            None => return Ok(name.to_owned()),
            Some("") => {}
            Some(fault) => faults.push(format!("`{name}` {fault}")),
        }
    }
    Err(match faults.is_empty() {
        true => format!("no index has exactly ({}) as its fields", fields.join(", ")),
        false => faults.join("; "),
    })
}

/// Returns why no alias can rely on an index; empty: it has other fields.
fn fault(spec: &BsonDocument, fields: &[&str]) -> Option<&'static str> {
    let Ok(key) = spec.get_document("key") else { return Some("") };
    let is_own = |name: &str| fields.contains(&name);
    if key.len() != fields.len() || !key.keys().all(|name| is_own(name)) {
        return Some("");
    }
    let is = |option: &str| match spec.get(option) {
        Some(Bson::Boolean(is)) => *is,
        Some(value) => value.as_i32().map_or_else(|| value.as_f64() != Some(0.0), |n| n != 0),
        None => false,
    };
    let is_ordered =
        |value: &Bson| matches!(value, Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_));
    if !key.values().all(is_ordered) {
        Some("orders nothing: it is hashed, a text index or geographical")
    } else if !is("unique") {
        Some("is not unique")
    } else if spec.contains_key("partialFilterExpression") {
        Some("is partial")
    } else if !is_simple(spec.get_document("collation").ok()) {
        Some("has a collation, and values are looked up by their bytes")
    } else if is("hidden") {
        Some("is hidden, so that no query uses it")
    } else {
        None
    }
}

/// Returns whether a collation compares bytes.
fn is_simple(collation: Option<&BsonDocument>) -> bool {
    collation.is_none_or(|own| own.get_str("locale").is_ok_and(|locale| locale == "simple"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(specs: &[BsonDocument], fields: &[&str]) -> AliasIndex {
        let specs: Vec<Bson> = specs.iter().cloned().map(Bson::Document).collect();
        choose(&specs, fields)
    }

    #[test]
    fn only_a_plain_unique_index_of_exactly_the_fields_is_relied_on() {
        let email = || doc! { "v": 2, "key": { "email": 1 }, "name": "own", "unique": true };
        let with = |more: BsonDocument| {
            let mut spec = email();
            spec.extend(more);
            chosen(&[spec], &["email"])
        };
        for sound in [
            doc! {},
            doc! { "sparse": true },
            doc! { "key": { "email": -1.0 } },
            doc! { "expireAfterSeconds": 3600, "hidden": false },
            doc! { "unique": 1 },
            doc! { "collation": { "locale": "simple" } },
        ] {
            assert_eq!(with(sound.clone()), Ok("own".into()), "{sound}");
        }
        for (unfit, why) in [
            (doc! { "unique": false }, "not unique"),
            (doc! { "prepareUnique": true, "unique": false }, "not unique"),
            (doc! { "partialFilterExpression": { "email": { "$exists": true } } }, "partial"),
            (doc! { "collation": { "locale": "en", "strength": 2 } }, "collation"),
            (doc! { "hidden": true }, "hidden"),
            (doc! { "key": { "email": "hashed" } }, "hashed"),
            (doc! { "key": { "email": 1, "other": 1 } }, "no index has exactly (email)"),
            (doc! { "key": { "$**": 1 } }, "no index has exactly"),
            (doc! { "key": 7 }, "no index has exactly"),
        ] {
            let refused = with(unfit.clone()).expect_err("it is unfit");
            assert!(refused.contains(why), "{unfit}: {refused}");
        }
        let both = doc! { "key": { "last": 1, "first": -1 }, "name": "both", "unique": true };
        let all = [doc! { "key": { "_id": 1 }, "name": "_id_" }, email(), both];
        assert_eq!(chosen(&all, &["first", "last"]), Ok("both".into()));
        assert!(chosen(&all, &["first"]).is_err() && chosen(&[], &["first"]).is_err());
    }
}
