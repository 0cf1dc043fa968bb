//! Projections of `find`, and stages of a pipeline that select fields.

use std::collections::BTreeMap;

use mongodb::bson::raw::CStr;
use mongodb::bson::{Bson, Document, RawBsonRef, RawDocument, RawDocumentBuf};

use super::failure::Failure;

/// Tree of selected names.
#[derive(Default)]
struct Tree(BTreeMap<String, Tree>);

impl Tree {
    fn add(&mut self, path: &str) {
        let (first, rest) =
            path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
        let below = self.0.entry(first.to_owned()).or_default();
        if let Some(rest) = rest {
            below.add(rest);
        }
    }
}

/// Returns the document with only the fields that the projection names, or without them.
pub fn project(raw: &RawDocument, projection: &Document) -> Result<RawDocumentBuf, Failure> {
    let mut named = Tree::default();
    let mut with_id = true;
    let mut include = None;
    for (path, value) in flattened(projection, "") {
        let is_included = match value {
            Bson::Boolean(is_included) => is_included,
            Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) => {
                super::value::as_integer(&value) != Some(0)
            }
            _ => {
                return Err(Failure::bad_value(&format!(
                    "a projection of {path} that the stand-in does not know"
                )));
            }
        };
        if path == "_id" {
            with_id = is_included;
            continue;
        }
        if include.is_some_and(|include| include != is_included) {
            return Err(Failure::new(
                31254,
                "Location31254",
                "Cannot do exclusion in inclusion projection",
            ));
        }
        include = Some(is_included);
        named.add(&path);
    }
    let include = include.unwrap_or_else(|| with_id && projection.contains_key("_id"));
    if include == with_id {
        named.add("_id");
    }
    copy(raw, &named, include)
}

/// Flattens nested documents: `{a: {b: 1}}` means the same as `{"a.b": 1}`.
fn flattened(projection: &Document, prefix: &str) -> Vec<(String, Bson)> {
    let mut all = Vec::new();
    for (name, value) in projection {
        let path = format!("{prefix}{name}");
        match value {
            Bson::Document(below) => all.extend(flattened(below, &format!("{path}."))),
            value => all.push((path, value.clone())),
        }
    }
    all
}

fn copy(raw: &RawDocument, named: &Tree, include: bool) -> Result<RawDocumentBuf, Failure> {
    let mut copied = RawDocumentBuf::new();
    for element in raw.iter() {
        let (name, value) = element.map_err(|e| Failure::bad_value(&e.to_string()))?;
        match (named.0.get(name.as_str()), value) {
            (Some(below), RawBsonRef::Document(inner)) if !below.0.is_empty() => {
                copied.append(name, &copy(inner, below, include)?);
            }
            (Some(below), value) if below.0.is_empty() => {
                if include {
                    append(&mut copied, name, value);
                }
            }
            // The path continues below a value that is no document, so it names nothing.
            (Some(_), value) | (None, value) => {
                if !include {
                    append(&mut copied, name, value);
                }
            }
        }
    }
    Ok(copied)
}

fn append(copied: &mut RawDocumentBuf, name: &CStr, value: RawBsonRef<'_>) {
    copied.append(name, value);
}
