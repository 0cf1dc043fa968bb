//! Documents made smaller: projections of `find` and stages of a pipeline that choose fields.

use std::collections::BTreeMap;

use mongodb::bson::raw::CStr;
use mongodb::bson::{Bson, Document, RawBsonRef, RawDocument, RawDocumentBuf};

use super::failure::Failure;

/// A tree of chosen names.
#[derive(Default)]
struct Tree(BTreeMap<String, Tree>);

impl Tree {
    fn add(&mut self, path: &str) {
        let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
        let below = self.0.entry(first.to_owned()).or_default();
        if let Some(rest) = rest {
            below.add(rest);
        }
    }
}

/// The document with the fields that the projection names, or without them.
pub(super) fn project(raw: &RawDocument, projection: &Document) -> Result<RawDocumentBuf, Failure> {
    let (mut named, mut with_id, mut include) = (Tree::default(), true, None);
    for (path, wanted) in flattened(projection, "") {
        let wanted = match wanted {
            Bson::Boolean(wanted) => wanted,
            Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) => super::value::as_integer(&wanted) != Some(0),
            _ => return Err(Failure::bad_value(&format!("a projection of {path} that the stand-in does not know"))),
        };
        if path == "_id" {
            with_id = wanted;
            continue;
        }
        if include.is_some_and(|include| include != wanted) {
            return Err(Failure::new(31254, "Location31254", "Cannot do exclusion in inclusion projection"));
        }
        include = Some(wanted);
        named.add(&path);
    }
    let include = include.unwrap_or_else(|| with_id && projection.contains_key("_id"));
    if include == with_id {
        named.add("_id");
    }
    copy(raw, &named, include)
}

/// `{a: {b: 1}}` says the same as `{"a.b": 1}`.
fn flattened(projection: &Document, prefix: &str) -> Vec<(String, Bson)> {
    let mut all = Vec::new();
    for (name, wanted) in projection {
        let path = format!("{prefix}{name}");
        match wanted {
            Bson::Document(below) => all.extend(flattened(below, &format!("{path}."))),
            wanted => all.push((path, wanted.clone())),
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
            // A path that goes on where there is no document: nothing to take or to leave out below.
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
