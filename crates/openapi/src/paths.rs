//! Operations of one collection.

use hotrow_answer::collections::Collection;
use hotrow_source::field_schema::FieldSchema;
use serde_json::{Map, Value, json};

use super::responses::{POSITION_PATTERN, Possible, add_problems, refer_to_headers};
use super::{Credentials, Facts, schema};

/// Header fields of an answer with data.
pub(super) const DATA_HEADERS: [&str; 4] =
    ["Age", "Cache-Control", "Hotrow-Cache", "Hotrow-Position"];

/// Adds the paths of a collection or an alias. `fields`: those of its records, where the catalogue
/// lists them.
pub(crate) fn add(
    paths: &mut Map<String, Value>,
    collection: &Collection,
    fields: Option<&[FieldSchema]>,
    facts: &Facts,
) {
    let name = &collection.name;
    let operation = |method: &str, target| {
        let mut operation = operation(method, collection, target, facts);
        if collection.allow_fields {
            add_parameter(&mut operation, selection(fields));
        }
        operation
    };
    let item = |method: &str| operation(method, Target::Item);
    let id = json!({
        "name": "id",
        "in": "path",
        "required": true,
        "description": match &collection.alias {
            None => "Key of the record. Columns of a key are separated with commas.".to_owned(),
            Some(alias) => format!(
                "Value of {} in the record. Values of several are separated with commas.",
                alias.settings.columns.join(", ")
            ),
        },
        "style": "simple",
        "schema": schema::path_id(&collection.schema),
        "example": schema::example_path_id(&collection.schema),
    });
    paths.insert(
        format!("/{name}/{{id}}"),
        json!({ "parameters": [id], "get": item("get"), "head": item("head") }),
    );
    let batch = |method: &str| operation(method, Target::Batch);
    let mut operations = json!({ "post": batch("post") });
    if let Some(ids) = schema::query_ids(&collection.schema, facts.max_batch) {
        let ids = json!({
            "name": "ids",
            "in": "query",
            "required": true,
            "description": "Ids, separated with commas.",
            "style": "form",
            "explode": false,
            "schema": ids,
            "example": [schema::example_path_id(&collection.schema)],
        });
        for method in ["get", "head"] {
            operations[method] = batch(method);
            add_parameter(&mut operations[method], ids.clone());
            if collection.alias.is_none() {
                let snapshot = json!({
                    "name": "snapshot",
                    "in": "query",
                    "description": "All records at one point of the log.",
                    "schema": { "const": true },
                });
                add_parameter(&mut operations[method], snapshot);
            }
        }
    }
    paths.insert(format!("/{name}"), operations);
}

fn add_parameter(operation: &mut Value, parameter: Value) {
    if let Some(Value::Array(parameters)) = operation.get_mut("parameters") {
        parameters.push(parameter);
    }
}

/// Returns the parameter that selects fields.
fn selection(fields: Option<&[FieldSchema]>) -> Value {
    let mut name = json!({ "type": "string", "minLength": 1 });
    if let Some(fields) = fields {
        name["enum"] = fields.iter().map(|field| &*field.name).collect();
    }
    json!({
        "name": "fields",
        "in": "query",
        "description": "Fields of the answer's records, separated with commas: the others are \
                        left out.",
        "style": "form",
        "explode": false,
        "schema": { "type": "array", "items": name, "minItems": 1 },
    })
}

/// Target of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// One record.
    Item,
    /// Several records.
    Batch,
}

/// Returns the name of the collection whose records are answered.
fn name_of_records(collection: &Collection) -> &str {
    collection.alias.as_ref().map_or(&collection.name, |alias| &alias.settings.of_name)
}

fn operation(method: &str, collection: &Collection, target: Target, facts: &Facts) -> Value {
    let name = name_of_records(collection);
    let by = match &collection.alias {
        None => String::new(),
        Some(alias) => format!(" by {}", alias.settings.columns.join(", ")),
    };
    let (summary, suffix) = match target {
        Target::Item => (format!("A record of {name}{by}"), ""),
        Target::Batch => (format!("Several records of {name}{by}"), "_batch"),
    };
    let mut operation = json!({
        "operationId": format!("{method}_{}{suffix}", collection.name.replace('/', "_")),
        "tags": [name],
        "summary": summary,
        "parameters": parameters(collection, target, facts),
        "responses": responses(collection, target, facts),
    });
    if method == "post" {
        let mut body = schema::body_ids(&collection.schema, facts.max_batch);
        if collection.alias.is_none() {
            body["properties"]["snapshot"] = json!({ "const": true });
        }
        operation["requestBody"] = json!({
            "required": true,
            "content": { "application/json": {
                "schema": body,
                "example": schema::example_body(&collection.schema),
            } },
        });
    }
    operation
}

fn responses(collection: &Collection, target: Target, facts: &Facts) -> Map<String, Value> {
    let mut responses = Map::new();
    let record = json!({ "$ref": format!("#/components/schemas/{}", name_of_records(collection)) });
    let mut headers = refer_to_headers(&DATA_HEADERS);
    let (description, schema) = match target {
        Target::Item => {
            headers["ETag"] = json!({ "$ref": "#/components/headers/ETag" });
            if collection.compression.is_some() {
                headers["Vary"] = json!({ "$ref": "#/components/headers/Vary" });
            }
            ("The record.", record)
        }
        Target::Batch => ("The records that exist, and the ids of the others.", batch(&record)),
    };
    responses.insert(
        "200".to_owned(),
        json!({
            "description": description,
            "headers": headers,
            "content": { "application/json": { "schema": schema } },
        }),
    );
    if target == Target::Item {
        responses.insert(
            "304".to_owned(),
            json!({ "description": "The record is the one of If-None-Match.", "headers": headers }),
        );
    }
    let possible = Possible {
        credentials: facts.credentials != Credentials::Ignored,
        one_record: target == Target::Item,
    };
    add_problems(&mut responses, possible);
    responses
}

pub(super) fn batch(record: &Value) -> Value {
    json!({
        "type": "object",
        "required": ["items", "missing"],
        "properties": {
            "items": {
                "type": "object",
                "description": "Records by id, in the form of a path.",
                "additionalProperties": record,
            },
            "missing": { "type": "array", "items": { "type": "string" } },
        },
        "additionalProperties": false,
    })
}

/// Returns the header fields that a request may have, as far as this collection grants them.
fn parameters(collection: &Collection, target: Target, facts: &Facts) -> Vec<Value> {
    let header = |name: &str, description: &str, schema: Value| {
        let mut header = json!({ "name": name, "in": "header", "schema": schema });
        header["description"] = description.into();
        header
    };
    let text = || json!({ "type": "string" });
    let mut parameters = Vec::new();
    if target == Target::Item {
        let description = "Entity tags that the client has: 304 if one is that of the record.";
        parameters.push(header("If-None-Match", description, text()));
    }
    if target == Target::Item && collection.compression.is_some() {
        let description = "Codings that the client can decode; the record is sent as it is unless \
                           gzip or zstd is listed.";
        parameters.push(header("Accept-Encoding", description, text()));
    }
    parameters.push(header("If-Match", "Entity tags, of which one must match: else 412.", text()));
    if collection.allow_no_cache {
        let description = "no-cache reads the database and refreshes the entry.";
        parameters.push(header("Cache-Control", description, text()));
    }
    if collection.allow_min_position || collection.strict {
        let description = "Session token that the answer must reflect: else 504, or 400 if it is \
                           of another log. now: every commit that has returned.";
        let schema = json!({ "type": "string", "pattern": format!("^now$|{POSITION_PATTERN}") });
        parameters.push(header("Hotrow-Min-Position", description, schema));
    }
    if facts.has_deadline {
        let description = "Milliseconds after which the answer is useless.";
        let schema = json!({ "type": "integer", "minimum": 0, "maximum": 999_999_999 });
        parameters.push(header("Hotrow-Deadline-Ms", description, schema));
    }
    if facts.has_priority {
        let description = "Order of refusal under overload: low, normal or high.";
        parameters.push(header("Hotrow-Priority", description, text()));
    }
    parameters
}
