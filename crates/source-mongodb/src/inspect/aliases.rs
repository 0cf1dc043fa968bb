//! Inspection of aliases: their fields, their unique index, and the types of their values.

use hotrow_types::key::CollectionId;
use mongodb::Database;
use mongodb::bson::{Bson, Document as BsonDocument};
use mongodb::error::Error;

use super::{Served, grant, sample};
use crate::alias::AliasFields;
use crate::bson::{Document, Value};
use crate::error::{self, UNAUTHORIZED};
use crate::indexes;
use crate::json::Fields;
use crate::keys::{self, SampledType};
use hotrow_source::preflight::Finding;
use hotrow_source::spec::{CollectionConfig, KeyTypeName};

/// Returns the place of the collection whose records an alias finds. Its name begins the alias's.
pub(super) fn base(specs: &[CollectionConfig], alias: &CollectionConfig) -> Option<usize> {
    let (name, _) = alias.name.split_once("/by/")?;
    specs.iter().position(|spec| spec.name == name)
}

/// Inspects an alias of a collection that can be served.
pub(super) async fn alias(
    database: &Database,
    spec: &CollectionConfig,
    specs: &[CollectionConfig],
    of: &Served,
    place: usize,
) -> Result<Result<Served, Vec<Finding>>, Error> {
    let mut findings = check_fields(spec, base(specs, spec).and_then(|place| specs.get(place)));
    if !findings.is_empty() {
        return Ok(Err(findings));
    }
    let names: Vec<&str> = spec.key.iter().map(String::as_str).collect();
    let index = match indexes::find(database, &of.name, &names).await {
        Ok(Ok(index)) => Some(index),
        Ok(Err(why)) => {
            let key: Vec<String> = names.iter().map(|name| format!("\"{name}\": 1")).collect();
            let what = format!(
                "({}) is not unique in `{}`: it needs a unique index of exactly these fields that \
                 is neither partial nor hidden and has no collation ({why})",
                names.join(", "),
                of.name
            );
            let (name, key) = (&of.name, key.join(", "));
            let remedy = format!(
                "db.{name}.createIndex({{ {key} }}, {{ unique: true }}), with `sparse: true` if \
                 documents lack the fields; or remove the alias"
            );
            findings.push(finding(spec, &what, remedy));
            None
        }
        Err(e) if error::code(&e) == Some(UNAUTHORIZED) => {
            let what = format!("the account may not list the indexes: {}", error::text(&e));
            findings.push(finding(spec, &what, grant(database.name())));
            None
        }
        Err(e) => return Err(e),
    };
    let types = types(database, spec, of).await?.map_err(|finding| findings.push(finding));
    let (Some(index), Ok(types)) = (index, types) else { return Ok(Err(findings)) };
    let name = spec.name.clone();
    let fields = AliasFields { name, fields: spec.key.iter().cloned().zip(types).collect(), index };
    Ok(Ok(Served {
        // Collections are numbered with 16 bits.
        id: CollectionId(place as u16),
        name: of.name.clone(),
        shape: of.shape.clone(),
        projection: Some(fields.projection()),
        fields: Fields::InOrder(Vec::new()),
        tenant: None,
        alias: Some(fields),
    }))
}

/// Checks the fields of an alias without a look at the database.
fn check_fields(spec: &CollectionConfig, of: Option<&CollectionConfig>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in &spec.key {
        let is_field = !name.is_empty() && !name.contains('.') && !name.starts_with('$');
        let is_served = |of: &CollectionConfig| {
            of.columns.as_ref().is_none_or(|own| own.contains(name)) && !of.exclude.contains(name)
        };
        if name == "_id" {
            let what = "its field `_id` is unique by itself";
            findings.push(finding(spec, what, "look documents up by their `_id`"));
        } else if !is_field {
            let what = format!("`{name}` is no field of the document itself");
            findings.push(finding(spec, &what, "name fields at the top of the document"));
        } else if !of.is_some_and(is_served) {
            let what = format!("its field `{name}` is not served, so that no record confirms it");
            let remedy = "serve the field (`columns`, `exclude`); names are compared by bytes";
            findings.push(finding(spec, &what, remedy));
        }
    }
    findings
}

/// Returns the types of the values that can be requested: as configured, or as found in a sample.
async fn types(
    database: &Database,
    spec: &CollectionConfig,
    of: &Served,
) -> Result<Result<Vec<KeyTypeName>, Finding>, Error> {
    let fields = spec.key.iter().map(|name| (name.clone(), Bson::Int32(1)));
    let documents = sample(database, &of.name, fields.collect::<BsonDocument>()).await?;
    let documents: Vec<Document<'_>> =
        documents.iter().filter_map(|d| Document::new(d).ok()).collect();
    let mut types = Vec::with_capacity(spec.key.len());
    for (place, name) in spec.key.iter().enumerate() {
        let values = documents.iter().filter_map(|document| document.get(name));
        let values = values.filter(|value| !matches!(value, Value::Null | Value::Undefined));
        let values: Vec<Value<'_>> = values.collect();
        if values.iter().any(|value| matches!(value, Value::Array(_))) {
            let what = format!(
                "`{name}` is an array in some documents, whose elements an index has one by one"
            );
            let remedy = "store a single value in a field of its own, with a unique index";
            return Ok(Err(finding(spec, &what, remedy)));
        }
        match spec.key_types.get(place) {
            Some(ty) => types.push(*ty),
            None => match sampled_type(spec, name, &values) {
                Ok(ty) => types.push(ty),
                Err(finding) => return Ok(Err(finding)),
            },
        }
    }
    Ok(Ok(types))
}

fn sampled_type(
    spec: &CollectionConfig,
    name: &str,
    values: &[Value<'_>],
) -> Result<KeyTypeName, Finding> {
    match keys::sampled_type(values.iter().copied()) {
        SampledType::One(ty) => Ok(ty),
        SampledType::Empty => {
            tracing::info!(
                collection = %spec.name,
                field = %name,
                "no document has a value: they are taken for texts; set `key_type` if they will be \
                 others"
            );
            Ok(KeyTypeName::Text)
        }
        SampledType::Mixed => {
            let what =
                format!("the values of `{name}` are of several types, or of one that is no id");
            let remedy = "set `key_type` to the one to look up: \"objectid\", \"text\", \
                          \"integer\", \"uuid\" or \"bytes\"; no lookup finds the others";
            Err(finding(spec, &what, remedy))
        }
    }
}

fn finding(spec: &CollectionConfig, what: &str, remedy: impl Into<String>) -> Finding {
    Finding::new(format!("alias `{}`: {what}", spec.name), remedy)
}

#[cfg(test)]
mod tests {
    use hotrow_source::testkit;

    use super::*;

    fn problems(fields: &str, columns: Option<&[&str]>, exclude: &[&str]) -> String {
        let owned = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        let mut of = testkit::spec("users(_id)");
        of.columns = columns.map(owned);
        of.exclude = owned(exclude);
        let mut spec = testkit::spec(&format!("users({fields})"));
        spec.name = "users/by/x".into();
        let specs = [of, spec];
        assert_eq!(base(&specs, &specs[1]), Some(0));
        let found = check_fields(&specs[1], specs.first());
        found.into_iter().map(|f| f.problem).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn fields_are_served_ones_of_the_document_itself() {
        assert_eq!(problems("email", None, &["note"]), "");
        assert_eq!(problems("email,n", Some(&["n", "email"]), &[]), "");
        assert!(problems("_id", None, &[]).contains("unique by itself"));
        for path in ["a.b", "$a", ""] {
            assert!(problems(path, None, &[]).contains("no field of the document"), "{path}");
        }
        for (columns, exclude) in [(Some(&["Email"][..]), &[][..]), (None, &["email"])] {
            assert!(problems("email", columns, exclude).contains("is not served"));
        }
    }
}
