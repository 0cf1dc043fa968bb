//! JSON Schemas (draft 2020-12) of ids and records. A `format` or `pattern` stands only where every
//! value fits it.

use hotrow_source::field_schema::{FieldSchema, JsonForm};
use hotrow_types::key::{CanonicalForm, KeySchema, KeyType};
use serde_json::{Map, Value, json};

/// Name of the schema of a problem. It cannot be the name of a collection, which begins with a
/// small letter.
pub(super) const PROBLEM: &str = "Problem";

/// Returns the schemas that all collections share.
pub(crate) fn shared() -> Map<String, Value> {
    let problem = json!({
        "type": "object",
        "description": "An error (RFC 9457).",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": { "type": "string", "format": "uri-reference" },
            "title": { "type": "string" },
            "status": { "type": "integer", "minimum": 400, "maximum": 599 },
            "detail": { "type": "string" },
        },
    });
    Map::from_iter([(PROBLEM.to_owned(), problem)])
}

/// Returns the schema of the records of a collection. `are_required`: they have all fields for
/// every reader and request.
pub(crate) fn record(key: &KeySchema, fields: Option<&[FieldSchema]>, are_required: bool) -> Value {
    match fields {
        Some(fields) => {
            let mut record = object(fields);
            record["examples"] = json!([example_record(fields)]);
            if !are_required {
                record["required"] = json!([]);
                record["description"] = json!("Not every answer has all fields.");
            }
            record
        }
        None => json!({
            "type": "object",
            "description": format!(
                "The catalogue does not list the fields. Type of the key: {}.",
                key.types().iter().map(|ty| ty.name()).collect::<Vec<_>>().join(", ")
            ),
        }),
    }
}

fn object(fields: &[FieldSchema]) -> Value {
    let property = |field: &FieldSchema| (field.name.clone(), value(field));
    let names: Vec<&str> = fields.iter().map(|field| &*field.name).collect();
    json!({
        "type": "object",
        "required": names,
        "properties": fields.iter().map(property).collect::<Map<_, _>>(),
    })
}

fn value(field: &FieldSchema) -> Value {
    let schema = form(&field.form);
    if field.nullable { nullable(schema) } else { schema }
}

/// Allows null beside the values of a schema.
fn nullable(mut schema: Value) -> Value {
    match schema.get("type") {
        Some(Value::String(_)) if schema.get("enum").is_none() => {
            schema["type"] = json!([schema["type"], "null"]);
            schema
        }
        Some(Value::Array(types)) => {
            let mut types = types.clone();
            types.push(json!("null"));
            schema["type"] = Value::Array(types);
            schema
        }
        // Any value.
        None if schema.as_object().is_some_and(Map::is_empty) => schema,
        Some(_) | None => json!({ "anyOf": [schema, { "type": "null" }] }),
    }
}

fn form(form: &JsonForm) -> Value {
    match form {
        JsonForm::Integer => json!({ "type": "integer" }),
        JsonForm::Number => json!({ "type": "number" }),
        JsonForm::Real => json!({
            "anyOf": [{ "type": "number" }, { "enum": ["NaN", "Infinity", "-Infinity"] }],
        }),
        JsonForm::Boolean => json!({ "type": "boolean" }),
        JsonForm::Text => json!({ "type": "string" }),
        JsonForm::TextLike(example) => json!({ "type": "string", "examples": [example] }),
        JsonForm::Choice(values) => json!({ "type": "string", "enum": values }),
        JsonForm::Uuid => json!({ "type": "string", "format": "uuid" }),
        JsonForm::Base64 => json!({ "type": "string", "contentEncoding": "base64" }),
        JsonForm::Hex => json!({ "type": "string", "pattern": "^([0-9a-f]{2})*$" }),
        JsonForm::Scalar => json!({ "type": ["integer", "number", "string"] }),
        JsonForm::Array(element) => {
            let element = nullable(self::form(element));
            json!({
                "type": "array",
                "items": { "anyOf": [element, { "type": "array", "description": "A dimension." }] },
            })
        }
        JsonForm::Range(bound) => range(bound),
        JsonForm::Multirange(bound) => json!({ "type": "array", "items": range(bound) }),
        JsonForm::Object(fields) => object(fields),
        JsonForm::Rows { fields, limit } => json!({
            "type": "array", "items": object(fields), "maxItems": limit,
        }),
        JsonForm::Any => json!({}),
    }
}

fn range(bound: &JsonForm) -> Value {
    let bound = nullable(form(bound));
    json!({
        "type": "object",
        "properties": {
            "lower": bound,
            "upper": bound,
            "bounds": { "enum": ["[]", "[)", "(]", "()"] },
            "empty": { "const": true },
        },
    })
}

/// Returns an id in the form of a path that can be a key of the collection.
pub(super) fn example_id(key: &KeySchema) -> String {
    let columns: Vec<&str> = key.types().iter().map(|ty| example_column(*ty)).collect();
    columns.join(",")
}

/// Returns the same as a value of [`path_id`].
pub(super) fn example_path_id(key: &KeySchema) -> Value {
    let value = |ty: &KeyType| match ty {
        KeyType::Integer | KeyType::Unsigned => json!(1),
        KeyType::Canonical(CanonicalForm::Boolean) => json!(true),
        _ => json!(example_column(*ty)),
    };
    match key.types() {
        [ty] => value(ty),
        types => types.iter().map(value).collect(),
    }
}

/// Returns a batch of it.
pub(super) fn example_body(key: &KeySchema) -> Value {
    let columns: Vec<&str> = key.types().iter().map(|ty| example_column(*ty)).collect();
    match &columns[..] {
        [one] => json!({ "ids": [one] }),
        columns => json!({ "ids": [columns] }),
    }
}

fn example_column(ty: KeyType) -> &'static str {
    match ty {
        KeyType::Integer | KeyType::Unsigned => "1",
        KeyType::Text(_) => "text",
        KeyType::Uuid => "5f0c1e9a-3b7d-4c52-8a61-2d9e7f40b1c3",
        KeyType::ObjectId => "65f1a2b3c4d5e6f708192a3b",
        KeyType::Bytes => "00ff",
        KeyType::Canonical(CanonicalForm::Boolean) => "true",
        KeyType::Canonical(CanonicalForm::Decimal) => "9.5",
        KeyType::Canonical(CanonicalForm::Date) => "2026-11-20",
        KeyType::Canonical(CanonicalForm::Timestamp) => "2026-11-20T22:35:09",
        KeyType::Canonical(CanonicalForm::TimestampUtc) => "2026-11-20T22:35:09Z",
    }
}

/// Returns a record, or a part of one, that fits a form.
fn example(form: &JsonForm) -> Value {
    match form {
        JsonForm::Integer | JsonForm::Scalar => json!(1),
        JsonForm::Number | JsonForm::Real => json!(9.5),
        JsonForm::Boolean => json!(true),
        JsonForm::Text => json!("text"),
        JsonForm::TextLike(example) => json!(example),
        JsonForm::Choice(values) => json!(values.first()),
        JsonForm::Uuid => json!(example_column(KeyType::Uuid)),
        JsonForm::Base64 => json!("AP8="),
        JsonForm::Hex => json!("00ff"),
        JsonForm::Array(element) => json!([example(element)]),
        JsonForm::Range(bound) => {
            json!({ "lower": example(bound), "upper": null, "bounds": "[)" })
        }
        JsonForm::Multirange(bound) => json!([example(&JsonForm::Range(bound.clone()))]),
        JsonForm::Object(fields) => example_record(fields),
        JsonForm::Rows { fields, .. } => json!([example_record(fields)]),
        JsonForm::Any => json!({}),
    }
}

/// Returns a record with these fields.
fn example_record(fields: &[FieldSchema]) -> Value {
    Value::Object(fields.iter().map(|field| (field.name.clone(), example(&field.form))).collect())
}

/// Returns the schema of an id in a path. Keys of several columns are a list, which the style
/// `simple` separates with commas.
pub(super) fn path_id(key: &KeySchema) -> Value {
    match key.types() {
        [ty] => key_column(*ty),
        types => tuple(&types.iter().map(|ty| key_column(*ty)).collect::<Vec<_>>()),
    }
}

/// Returns the schema of the ids in a query; `None` for keys of several columns, which a query
/// cannot name.
pub(super) fn query_ids(key: &KeySchema, ids_max: usize) -> Option<Value> {
    match key.types() {
        [ty] => Some(list(&key_column(*ty), ids_max)),
        _ => None,
    }
}

/// Returns the schema of the body of a batch.
pub(super) fn body_ids(key: &KeySchema, ids_max: usize) -> Value {
    let id = match key.types() {
        [ty] => body_column(*ty),
        types => tuple(&types.iter().map(|ty| body_column(*ty)).collect::<Vec<_>>()),
    };
    json!({
        "type": "object",
        "required": ["ids"],
        "properties": { "ids": list(&id, ids_max) },
        "additionalProperties": false,
    })
}

fn list(items: &Value, items_max: usize) -> Value {
    json!({ "type": "array", "items": items, "minItems": 1, "maxItems": items_max })
}

fn tuple(columns: &[Value]) -> Value {
    let count = columns.len();
    json!({
        "type": "array",
        "prefixItems": columns,
        "items": false,
        "minItems": count,
        "maxItems": count,
    })
}

fn key_column(ty: KeyType) -> Value {
    match ty {
        KeyType::Integer => json!({
            "type": "integer", "format": "int64", "minimum": i64::MIN, "maximum": i64::MAX,
        }),
        KeyType::Unsigned => json!({ "type": "integer", "minimum": 0, "maximum": u64::MAX }),
        KeyType::Text(_) => json!({
            "type": "string", "minLength": 1, "pattern": "^[^\\u0000]*$",
        }),
        KeyType::Uuid => json!({ "type": "string", "format": "uuid" }),
        KeyType::ObjectId => json!({ "type": "string", "pattern": "^[0-9a-fA-F]{24}$" }),
        KeyType::Bytes => json!({ "type": "string", "pattern": "^([0-9a-fA-F]{2})+$" }),
        KeyType::Canonical(form) => canonical(form),
    }
}

fn canonical(form: CanonicalForm) -> Value {
    let description = form.name();
    match form {
        CanonicalForm::Boolean => json!({ "type": "boolean" }),
        CanonicalForm::Decimal => json!({
            "type": "string",
            "description": description,
            "pattern": "^(0|-?[1-9][0-9]*)(\\.[0-9]*[1-9])?$",
        }),
        CanonicalForm::Date => json!({
            "type": "string", "format": "date", "description": description,
        }),
        CanonicalForm::Timestamp | CanonicalForm::TimestampUtc => json!({
            "type": "string", "description": description,
        }),
    }
}

/// Returns the schema of a key column in a body, where numbers may be written as texts too.
fn body_column(ty: KeyType) -> Value {
    let in_path = key_column(ty);
    match ty {
        // Longer texts may be numbers within the range or beyond.
        KeyType::Integer => json!({
            "anyOf": [in_path, { "type": "string", "pattern": "^(0|-?[1-9][0-9]{0,17})$" }],
        }),
        KeyType::Unsigned => json!({
            "anyOf": [in_path, { "type": "string", "pattern": "^(0|[1-9][0-9]{0,18})$" }],
        }),
        // A number names the same row as its digits.
        KeyType::Text(_) => json!({
            "anyOf": [{ "type": "string", "pattern": "^[^\\u0000]*$" }, {
                "type": "integer", "minimum": i64::MIN, "maximum": u64::MAX,
            }],
        }),
        // Texts that some numbers spell too, such as 24 digits; write them as texts.
        KeyType::Uuid | KeyType::ObjectId | KeyType::Bytes => in_path,
        KeyType::Canonical(CanonicalForm::Boolean) => json!({
            "type": "string", "enum": ["true", "false"],
        }),
        KeyType::Canonical(_) => in_path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_can_be_a_key() {
        let id = hotrow_types::key::CollectionId(0);
        let canonical = [
            CanonicalForm::Boolean,
            CanonicalForm::Decimal,
            CanonicalForm::Date,
            CanonicalForm::Timestamp,
            CanonicalForm::TimestampUtc,
        ];
        let text = KeyType::Text(hotrow_types::key::Collation::Binary);
        let plain = [KeyType::Integer, KeyType::Unsigned, text, KeyType::Uuid, KeyType::ObjectId];
        let types = canonical.map(KeyType::Canonical).into_iter().chain(plain);
        for ty in types.chain([KeyType::Bytes]) {
            let schema = KeySchema::new(id, vec![ty, KeyType::Integer]);
            assert!(schema.parse_url(&example_id(&schema)).is_ok(), "{ty:?}");
        }
    }

    #[test]
    fn null_is_added_to_any_schema() {
        for (of, schema) in [
            (JsonForm::Integer, json!({ "type": ["integer", "null"] })),
            (JsonForm::Scalar, json!({ "type": ["integer", "number", "string", "null"] })),
            (JsonForm::Any, json!({})),
            (
                JsonForm::Choice(vec!["a".to_owned()]),
                json!({ "anyOf": [{ "type": "string", "enum": ["a"] }, { "type": "null" }] }),
            ),
        ] {
            assert_eq!(nullable(form(&of)), schema, "{of:?}");
        }
        let real = nullable(form(&JsonForm::Real));
        assert_eq!(real["anyOf"][1], json!({ "type": "null" }));
    }

    #[test]
    fn a_record_has_all_its_fields() {
        let fields = [
            FieldSchema::new("id", JsonForm::Integer, false),
            FieldSchema::new("tags", JsonForm::Array(Box::new(JsonForm::Text)), true),
        ];
        let schema = object(&fields);
        assert_eq!(schema["required"], json!(["id", "tags"]));
        assert_eq!(schema["properties"]["id"], json!({ "type": "integer" }));
        assert_eq!(schema["properties"]["tags"]["type"], json!(["array", "null"]));
    }

    #[test]
    fn embedded_rows_are_an_array_of_objects() {
        let amount = FieldSchema::new("amount", JsonForm::Integer, true);
        let rows = JsonForm::Rows { fields: vec![amount], limit: 20 };
        let schema = value(&FieldSchema::new("prices", rows, false));
        assert_eq!((&schema["type"], &schema["maxItems"]), (&json!("array"), &json!(20)));
        let item = &schema["items"];
        assert_eq!(item["properties"]["amount"], json!({ "type": ["integer", "null"] }));
    }
}
