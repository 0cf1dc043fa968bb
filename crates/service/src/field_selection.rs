//! Selection of fields by a request: `?fields=name,price`. The answer is a view, cut from the whole
//! record in memory by [`answer_builder`](crate::answer_builder), so that one entry serves every
//! selection.

use std::sync::Arc;

use hotrow_answer::collections::Collection;
use hotrow_answer::http_error::HttpError;
use hotrow_source::field_schema::FieldSchema;
use hotrow_types::columns::Columns;
use hotrow_types::key::percent_decode;

/// Name of the parameter.
pub(crate) const FIELDS: &str = "fields";
const PARAMETER: &str = "fields=";
/// Most characters of an unknown name that a message repeats.
const SHOWN_CHARS_MAX: usize = 40;

/// Checks that the path knows each parameter of the query.
///
/// # Errors
/// 400 for one that it does not know.
pub(crate) fn check_parameters(
    query: &str,
    known: &[&str],
    collection: &Collection,
) -> Result<(), HttpError> {
    let names = query.split('&').map(|pair| pair.split_once('=').map_or(pair, |(name, _)| name));
    let mut unknown = names.filter(|name| !name.is_empty() && !known.contains(name));
    let Some(name) = unknown.next() else { return Ok(()) };
    let name: String = name.chars().take(SHOWN_CHARS_MAX).collect();
    let is_offered = |known: &&&str| **known != FIELDS || collection.allow_fields;
    let offered: Vec<&str> = known.iter().filter(is_offered).copied().collect();
    Err(HttpError::UnknownParameter(match offered.is_empty() {
        true => format!("the parameter {name:?} is unknown; this path has none"),
        false => format!("the parameter {name:?} is unknown; known here: {}", offered.join(", ")),
    }))
}

/// Returns the columns of which the answer consists; `None`: those that the sender may see, or all
/// if these are `None` too. A selection is at most as long as `limits.target_bytes`.
///
/// `own`: the columns that the sender may see; `None`: all. `catalogued`: the fields of the
/// collection's records, where the catalogue lists them. A name that neither lists is refused in
/// the same words, so that nothing is revealed of other columns. Where nothing lists the fields, an
/// unknown name selects nothing.
///
/// # Errors
/// 400 for a selection that is empty, given twice, malformed or not offered, and for an unknown
/// name.
pub(crate) fn select_fields(
    query: &str,
    collection: &Collection,
    own: Option<&Arc<Columns>>,
    catalogued: impl FnOnce() -> Option<Arc<[FieldSchema]>>,
) -> Result<Option<Arc<Columns>>, HttpError> {
    let mut lists = query.split('&').filter_map(|pair| pair.strip_prefix(PARAMETER));
    let Some(list) = lists.next() else { return Ok(own.cloned()) };
    if !collection.allow_fields {
        return refuse("this collection has no selection of fields: see allow_fields".to_owned());
    }
    if lists.next().is_some() {
        return refuse("the query has fields twice; separate names with commas".to_owned());
    }
    if list.is_empty() {
        return refuse("fields is empty; name fields as in fields=name,price".to_owned());
    }
    let decoded: Result<Vec<_>, _> = list.split(',').map(percent_decode).collect();
    let Ok(names) = decoded else {
        return refuse("a name in fields is not percent-encoded UTF-8".to_owned());
    };
    let listed = catalogued();
    let unknown = names.iter().find(|name| {
        let is_hidden = own.is_some_and(|own| !own.has(name));
        let is_missing = listed.as_deref().is_some_and(|all| all.iter().all(|f| f.name != **name));
        is_hidden || is_missing
    });
    match unknown {
        Some(name) => {
            refuse(format!("the records of {:?} have no field {name:?}", collection.name))
        }
        None => Ok(Some(Arc::new(Columns::new(names.iter().map(|name| &**name))))),
    }
}

#[cold]
fn refuse<T>(detail: String) -> Result<T, HttpError> {
    Err(HttpError::BadFields(detail))
}

#[cfg(test)]
mod tests {
    use hotrow_source::field_schema::JsonForm;

    use hotrow_types::key::CollectionId;

    use super::*;
    use crate::fuzzing::new_shared;

    fn names(
        query: &str,
        own: Option<&[&str]>,
        catalogued: Option<&[&str]>,
    ) -> Result<Option<Vec<String>>, String> {
        let shared = new_shared(None);
        let own = own.map(|own| Arc::new(Columns::new(own.iter().copied())));
        let field = |name: &&str| FieldSchema::new(name, JsonForm::Any, true);
        let catalogued = catalogued.map(|all| all.iter().map(field).collect());
        let collection = shared.collections.get(CollectionId(0));
        match select_fields(query, collection, own.as_ref(), || catalogued) {
            Ok(columns) => Ok(columns.map(|columns| columns.names().collect())),
            Err(HttpError::BadFields(detail)) => Err(detail),
            Err(other) => panic!("{other:?}"),
        }
    }

    fn selected(names: &[&str]) -> Result<Option<Vec<String>>, String> {
        Ok(Some(names.iter().map(|name| (*name).to_owned()).collect()))
    }

    #[test]
    fn names_are_selected_of_those_that_the_sender_may_see() {
        let all = Some(&["id", "a,b", "price", "cost"][..]);
        assert_eq!(names("ids=1&fields=price,id", None, all), selected(&["id", "price"]));
        assert_eq!(names("fields=id,id,%69d", None, all), selected(&["id"]));
        assert_eq!(names("fields=a%2Cb&x", None, all), selected(&["a,b"]));
        assert_eq!(names("fields=anything", None, None), selected(&["anything"]));
        assert_eq!(names("ids=1&field=id", None, all), Ok(None));
        let own = Some(&["id", "price"][..]);
        assert_eq!(names("ids=1", own, all), selected(&["id", "price"]));
        assert_eq!(names("fields=price", own, all), selected(&["price"]));
        let hidden = names("fields=price,cost", own, all).unwrap_err();
        let missing = names("fields=price,cust", own, all).unwrap_err();
        assert_eq!(hidden.replace("cost", "cust"), missing, "neither reveals anything");
        assert!(names("fields=cost", own, None).is_err(), "also without a catalogue");
    }

    #[test]
    fn malformed_selections_are_refused_by_reason() {
        for (query, reason) in [
            ("fields=", "is empty"),
            ("fields=id&fields=id", "twice"),
            ("fields=id,", "no field \"\""),
            ("fields=%zz", "percent-encoded"),
            ("fields=%ff", "percent-encoded"),
            ("fields=Id", "no field \"Id\""),
        ] {
            let detail = names(query, None, Some(&["id"])).unwrap_err();
            assert!(detail.contains(reason), "{query}: {detail}");
        }
    }
}
