//! Evaluation of filters: the part of the query language that the tests and the service use.

use std::cmp::Ordering;

use mongodb::bson::{Bson, Document};

use super::failure::Failure;
use super::value::{at_path, equal, order};

pub fn filter_matches(filter: &Document, fields: &Document) -> Result<bool, Failure> {
    for (name, condition) in filter {
        let is_match = match name.as_str() {
            "$and" => branches(condition)?
                .iter()
                .try_fold(true, |all, one| Ok(all && filter_matches(one, fields)?))?,
            "$or" => branches(condition)?
                .iter()
                .try_fold(false, |any, one| Ok(any || filter_matches(one, fields)?))?,
            "$nor" => !branches(condition)?
                .iter()
                .try_fold(false, |any, one| Ok(any || filter_matches(one, fields)?))?,
            "$comment" => true,
            other if other.starts_with('$') => return Err(unknown(other)),
            path => satisfies(at_path(fields, path), condition)?,
        };
        if !is_match {
            return Ok(false);
        }
    }
    Ok(true)
}

fn branches(condition: &Bson) -> Result<Vec<&Document>, Failure> {
    let branches: Option<Vec<_>> =
        condition.as_array().and_then(|all| all.iter().map(Bson::as_document).collect());
    branches.ok_or_else(|| Failure::bad_value("$and, $or and $nor need a list of documents"))
}

/// Returns whether the value at a path satisfies the condition.
fn satisfies(value: Option<&Bson>, condition: &Bson) -> Result<bool, Failure> {
    let operators = condition
        .as_document()
        .filter(|w| w.keys().next().is_some_and(|name| name.starts_with('$')));
    let Some(operators) = operators else { return Ok(is(value, condition)) };
    for (operator, operand) in operators {
        let list = || {
            operand
                .as_array()
                .ok_or_else(|| Failure::bad_value(&format!("{operator} needs an array")))
        };
        let ordered = |accepted: &[Ordering]| {
            value
                .and_then(|value| order(value, operand))
                .is_some_and(|found| accepted.contains(&found))
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
            "$exists" => {
                value.is_some() == !matches!(operand, Bson::Boolean(false) | Bson::Int32(0))
            }
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

/// Returns whether the value is equal, is an array with an equal element, or is missing where null
/// is required.
fn is(value: Option<&Bson>, condition: &Bson) -> bool {
    match value {
        None => *condition == Bson::Null,
        Some(Bson::Array(values)) if values.iter().any(|one| equal(one, condition)) => true,
        Some(value) => equal(value, condition),
    }
}

fn is_of_type(value: &Bson, operand: &Bson) -> bool {
    let condition = match operand {
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
    name == condition
        || condition == "number" && ["double", "int", "long", "decimal"].contains(&name)
}

fn unknown(operator: &str) -> Failure {
    Failure::bad_value(&format!("unknown operator: {operator}"))
}
