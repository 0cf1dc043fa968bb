//! Operation that reads records of several collections at one point of the log.

use serde_json::{Map, Value, json};

use super::paths::{DATA_HEADERS, batch};
use super::responses::{POSITION_PATTERN, Possible, add_problems, refer_to_headers};
use super::{Credentials, Facts, schema};
use hotrow_answer::collections::Collection;
use hotrow_answer::route::SNAPSHOT;

/// Adds the path of snapshot batches of these collections.
pub(crate) fn add<'a>(
    paths: &mut Map<String, Value>,
    collections: impl Iterator<Item = &'a Collection>,
    facts: &Facts,
) {
    let mut ids = Map::new();
    let mut answers = Map::new();
    for collection in collections {
        let own = schema::body_ids(&collection.schema, facts.max_batch);
        ids.insert(collection.name.clone(), own["properties"]["ids"].clone());
        let record = json!({ "$ref": format!("#/components/schemas/{}", collection.name) });
        answers.insert(collection.name.clone(), batch(&record));
    }
    let body = json!({
        "type": "object", "properties": ids, "minProperties": 1, "additionalProperties": false,
    });
    let answer = json!({
        "type": "object",
        "required": ["collections"],
        "properties": {
            "position": { "type": "string", "pattern": POSITION_PATTERN },
            "collections": { "type": "object", "properties": answers },
        },
    });
    let mut responses = Map::new();
    responses.insert(
        "200".to_owned(),
        json!({
            "description": "All records, and the absence of the others, at one point of the log.",
            "headers": refer_to_headers(&DATA_HEADERS),
            "content": { "application/json": { "schema": answer } },
        }),
    );
    let credentials = facts.credentials != Credentials::Ignored;
    add_problems(&mut responses, Possible { credentials, one_record: false });
    let operation = json!({
        "operationId": "post_snapshot",
        "summary": "Records of several collections of one database at one point of its log",
        "requestBody": {
            "required": true, "content": { "application/json": { "schema": body } },
        },
        "responses": responses,
    });
    paths.insert(format!("/{SNAPSHOT}"), json!({ "post": operation }));
}
