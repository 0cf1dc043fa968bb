//! Application of an update to a document: replacement, or `$set`, `$unset`, `$inc` and
//! `$setOnInsert`.

use mongodb::bson::{Array, Bson, Document, doc};

use super::failure::Failure;
use super::value::{as_integer, at_path, equal};

pub enum Changed {
    /// The document is unchanged.
    Nothing,
    /// Some fields changed; with the description for the event.
    Fields { after: Document, description: Document },
    /// The whole document was replaced.
    Whole(Document),
}

pub fn changed(before: &Document, update: &Bson) -> Result<Changed, Failure> {
    let Bson::Document(update) = update else {
        return Err(Failure::bad_value(
            "an update by a pipeline, which the stand-in does not know",
        ));
    };
    if update.keys().next().is_some_and(|name| name.starts_with('$')) {
        return by_operators(before, update);
    }
    let id = before.get("_id").cloned().unwrap_or_default();
    if update.get("_id").is_some_and(|other| !equal(other, &id)) {
        return Err(Failure::new(
            66,
            "ImmutableField",
            "the (immutable) field '_id' was found to have been altered",
        ));
    }
    let mut after = doc! { "_id": id };
    after.extend(
        update
            .iter()
            .filter(|(name, _)| *name != "_id")
            .map(|(name, value)| (name.clone(), value.clone())),
    );
    Ok(if after == *before { Changed::Nothing } else { Changed::Whole(after) })
}

fn by_operators(before: &Document, update: &Document) -> Result<Changed, Failure> {
    let mut after = before.clone();
    let mut updated = Document::new();
    let mut removed = Array::new();
    for (operator, fields) in update {
        let fields =
            fields.as_document().ok_or_else(|| Failure::bad_value("an operator without fields"))?;
        for (path, operand) in fields {
            if path == "_id" || path.starts_with("_id.") {
                return Err(Failure::new(
                    66,
                    "ImmutableField",
                    "would modify the immutable field '_id'",
                ));
            }
            let old = at_path(before, path);
            let new = match operator.as_str() {
                "$set" => operand.clone(),
                "$inc" => sum(old, operand)?,
                "$setOnInsert" => continue,
                "$unset" => {
                    if old.is_some() {
                        remove(&mut after, path);
                        removed.push(path.as_str().into());
                    }
                    continue;
                }
                other => {
                    return Err(Failure::new(
                        9,
                        "FailedToParse",
                        &format!("Unknown modifier: {other}"),
                    ));
                }
            };
            if old != Some(&new) {
                set(&mut after, path, new.clone())?;
                updated.insert(path.clone(), new);
            }
        }
    }
    if updated.is_empty() && removed.is_empty() {
        return Ok(Changed::Nothing);
    }
    let description =
        doc! { "updatedFields": updated, "removedFields": removed, "truncatedArrays": [] };
    Ok(Changed::Fields { after, description })
}

fn sum(old: Option<&Bson>, by: &Bson) -> Result<Bson, Failure> {
    Ok(match (old, by) {
        (None, by) => by.clone(),
        (Some(Bson::Int32(a)), Bson::Int32(b)) => {
            a.checked_add(*b).map_or_else(|| (i64::from(*a) + i64::from(*b)).into(), Bson::from)
        }
        (Some(a @ (Bson::Int32(_) | Bson::Int64(_))), b @ (Bson::Int32(_) | Bson::Int64(_))) => {
            let both = as_integer(a).zip(as_integer(b)).and_then(|(a, b)| a.checked_add(b));
            both.ok_or_else(|| Failure::bad_value("$inc past 64 bits"))?.into()
        }
        (Some(Bson::Double(a)), Bson::Double(b)) => (a + b).into(),
        _ => {
            return Err(Failure::new(
                14,
                "TypeMismatch",
                "Cannot apply $inc to a value of another type",
            ));
        }
    })
}

fn set(fields: &mut Document, path: &str, value: Bson) -> Result<(), Failure> {
    let Some((first, rest)) = path.split_once('.') else {
        fields.insert(path, value);
        return Ok(());
    };
    match fields.entry(first.to_owned()).or_insert_with(|| Document::new().into()) {
        Bson::Document(inner) => set(inner, rest, value),
        _ => Err(Failure::new(
            28,
            "PathNotViable",
            "Cannot create field in an element that is no document",
        )),
    }
}

fn remove(fields: &mut Document, path: &str) {
    match path.split_once('.') {
        None => _ = fields.remove(path),
        Some((first, rest)) => {
            if let Some(Bson::Document(inner)) = fields.get_mut(first) {
                remove(inner, rest);
            }
        }
    }
}
