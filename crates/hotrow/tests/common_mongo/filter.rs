//! Which documents a filter means; the part of the query language that the tests and the service use.

use std::cmp::Ordering;

use mongodb::bson::{Bson, Document};

use super::failure::Failure;
use super::value::{at_path, equal, order};

/// Whether the filter takes the document.
pub(super) fn takes(filter: &Document, fields: &Document) -> Result<bool, Failure> {
    for (name, wanted) in filter {
        let took = match name.as_str() {
            "$and" => branches(wanted)?.iter().try_fold(true, |all, one| Ok(all && takes(one, fields)?))?,
            "$or" => branches(wanted)?.iter().try_fold(false, |any, one| Ok(any || takes(one, fields)?))?,
            "$nor" => !branches(wanted)?.iter().try_fold(false, |any, one| Ok(any || takes(one, fields)?))?,
            "$comment" => true,
            other if other.starts_with('$') => return Err(unknown(other)),
            path => satisfies(at_path(fields, path), wanted)?,
        };
        if !took {
            return Ok(false);
        }
    }
    Ok(true)
}

fn branches(wanted: &Bson) -> Result<Vec<&Document>, Failure> {
    let branches: Option<Vec<_>> = wanted.as_array().and_then(|all| all.iter().map(Bson::as_document).collect());
    branches.ok_or_else(|| Failure::bad_value("$and, $or and $nor need a list of documents"))
}

/// Whether the value at a path is what is wanted there.
fn satisfies(value: Option<&Bson>, wanted: &Bson) -> Result<bool, Failure> {
    let operators = wanted.as_document().filter(|w| w.keys().next().is_some_and(|name| name.starts_with('$')));
    let Some(operators) = operators else { return Ok(is(value, wanted)) };
    for (operator, operand) in operators {
        let list = || operand.as_array().ok_or_else(|| Failure::bad_value(&format!("{operator} needs an array")));
        let ordered = |accepted: &[Ordering]| {
            value.and_then(|value| order(value, operand)).is_some_and(|found| accepted.contains(&found))
        };
        let holds = match operator.as_str() {
            "$eq" => is(value, operand),
            "$ne" => !is(value, operand),
            "$in" => list()?.iter().any(|one| is(value, one)),
            "$nin" => !list()?.iter().any(|one| is(value, one)),
            "$gt" => ordered(&[Ordering::Greater]),
            "$gte" => ordered(&[Ordering::Greater, Ordering::Equal]),
            "$lt" => ordered(&[Ordering::Less]),
            "$lte" => ordered(&[Ordering::Less, Ordering::Equal]),
            "$exists" => value.is_some() == !matches!(operand, Bson::Boolean(false) | Bson::Int32(0)),
            "$not" => !satisfies(value, operand)?,
            "$type" => value.is_some_and(|value| is_of_type(value, operand)),
            other => return Err(unknown(other)),
        };
        if !holds {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Equal, or an array with such an element, or missing where null is wanted.
fn is(value: Option<&Bson>, wanted: &Bson) -> bool {
    match value {
        None => *wanted == Bson::Null,
        Some(Bson::Array(values)) if values.iter().any(|one| equal(one, wanted)) => true,
        Some(value) => equal(value, wanted),
    }
}

fn is_of_type(value: &Bson, operand: &Bson) -> bool {
    let wanted = match operand {
        Bson::Array(all) => return all.iter().any(|one| is_of_type(value, one)),
        Bson::String(name) => name.as_str(),
        _ => return super::value::as_integer(operand) == Some(value.element_type() as i64),
    };
    let name = match value {
        Bson::Double(_) => "double",
        Bson::String(_) => "string",
        Bson::Document(_) => "object",
        Bson::Array(_) => "array",
        Bson::Binary(_) => "binData",
        Bson::ObjectId(_) => "objectId",
        Bson::Boolean(_) => "bool",
        Bson::DateTime(_) => "date",
        Bson::Null => "null",
        Bson::Int32(_) => "int",
        Bson::Int64(_) => "long",
        Bson::Decimal128(_) => "decimal",
        Bson::Timestamp(_) => "timestamp",
        _ => "",
    };
    name == wanted || wanted == "number" && ["double", "int", "long", "decimal"].contains(&name)
}

fn unknown(operator: &str) -> Failure {
    Failure::bad_value(&format!("unknown operator: {operator}"))
}
