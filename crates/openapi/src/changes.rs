//! Operations that follow the changes of a collection.

use serde_json::{Map, Value, json};

use super::responses::{POSITION_PATTERN, Possible, add_problems};
use super::{Credentials, Facts, schema};
use hotrow_answer::collections::Collection;
use hotrow_answer::route::CHANGES;

/// Adds the path of a collection's changes, if they may be followed.
pub(crate) fn add(paths: &mut Map<String, Value>, collection: &Collection, facts: &Facts) {
    let Collection { name, schema, .. } = collection;
    if !facts.is_followed(collection) {
        return;
    }
    let mut parameters = vec![
        json!({
            "name": "after",
            "in": "query",
            "description": "Position of an answer, or id of an event: changes after it.",
            "schema": { "type": "string" },
        }),
        json!({
            "name": "Last-Event-ID",
            "in": "header",
            "description": "Id of the last event that was received: changes after it.",
            "schema": { "type": "string" },
        }),
    ];
    if let Some(ids) = schema::query_ids(schema, facts.follow.ids) {
        parameters.push(json!({
            "name": "ids",
            "in": "query",
            "description": "Ids of the followed records, separated with commas. Without it: all.",
            "style": "form",
            "explode": false,
            "schema": ids,
        }));
    }
    let description = format!(
        "Server-sent events without an end: begin, change, flush, reset, heartbeat and end. The \
         data of a change is a JSON object with key, kind and position ({POSITION_PATTERN})."
    );
    let mut responses = Map::new();
    responses.insert(
        "200".to_owned(),
        json!({
            "description": description,
            "content": { "text/event-stream": { "schema": { "type": "string" } } },
        }),
    );
    let credentials = facts.credentials != Credentials::Ignored;
    add_problems(&mut responses, Possible { credentials, one_record: false });
    let operation = json!({
        "operationId": format!("follow_{name}"),
        "tags": [name],
        "summary": format!("Changes of {name}"),
        "parameters": parameters,
        "responses": responses,
    });
    paths.insert(format!("/{CHANGES}/{name}"), json!({ "get": operation }));
}
