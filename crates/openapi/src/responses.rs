//! Answers: problem documents by status, and the header fields of answers.

use serde_json::{Map, Value, json};

use super::schema::PROBLEM;

/// A status with a problem document: its number, its meaning, and the header fields it may carry.
struct Problem {
    status: &'static str,
    meaning: &'static str,
    headers: &'static [&'static str],
}

const fn problem(
    status: &'static str,
    meaning: &'static str,
    headers: &'static [&'static str],
) -> Problem {
    Problem { status, meaning, headers }
}

/// Every error of the data API.
const PROBLEMS: [Problem; 15] = [
    problem("400", "The id, the batch, a parameter, a header or the framing is wrong.", &[]),
    problem("401", "The credential is missing or refused.", &["WWW-Authenticate"]),
    problem("403", "No role of the credential has the grant.", &[]),
    problem("404", "There is no such record.", &["Age", "Hotrow-Cache", "Hotrow-Position"]),
    problem("405", "The method is not allowed here.", &["Allow"]),
    problem("408", "The head or the body came too late.", &[]),
    problem("412", "If-Match does not hold.", &["ETag", "Age", "Hotrow-Cache", "Hotrow-Position"]),
    problem("413", "The body or the answer is larger than its limit.", &[]),
    problem("414", "The target is longer than its limit.", &[]),
    problem("429", "A limit of this client is reached.", &["Retry-After", "RateLimit"]),
    problem("431", "The header is larger than its limit.", &[]),
    problem("500", "The record has no JSON form.", &[]),
    problem("503", "Overloaded, or the database cannot be read.", &["Retry-After"]),
    problem("504", "The database or the position came too late.", &[]),
    problem("505", "The HTTP version is not supported.", &[]),
];

/// Answers that only some requests can get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Possible {
    /// Credentials are checked.
    pub(crate) credentials: bool,
    /// The request names one record, which may not exist.
    pub(super) one_record: bool,
}

/// Returns the responses that operations refer to.
pub(crate) fn problems() -> Map<String, Value> {
    let content = json!({
        "application/problem+json": {
            "schema": { "$ref": format!("#/components/schemas/{PROBLEM}") },
        },
    });
    let response = |problem: &Problem| {
        let mut response = json!({ "description": problem.meaning, "content": content });
        if !problem.headers.is_empty() {
            response["headers"] = refer_to_headers(problem.headers);
        }
        (name(problem.status), response)
    };
    PROBLEMS.iter().map(response).collect()
}

/// Adds the errors that a request may get.
pub(super) fn add_problems(responses: &mut Map<String, Value>, possible: Possible) {
    let is_possible = |problem: &&Problem| match problem.status {
        "401" | "403" => possible.credentials,
        "404" => possible.one_record,
        _ => true,
    };
    for problem in PROBLEMS.iter().filter(is_possible) {
        let reference = format!("#/components/responses/{}", name(problem.status));
        responses.insert(problem.status.to_owned(), json!({ "$ref": reference }));
    }
}

fn name(status: &str) -> String {
    format!("Problem{status}")
}

/// Returns references to header fields of [`headers`].
pub(super) fn refer_to_headers(names: &[&str]) -> Value {
    let reference = |name: &&str| {
        ((*name).to_owned(), json!({ "$ref": format!("#/components/headers/{name}") }))
    };
    Value::Object(names.iter().map(reference).collect())
}

/// Returns the header fields of answers.
pub(crate) fn headers() -> Value {
    let header =
        |description: &str, schema: Value| json!({ "description": description, "schema": schema });
    let text = || json!({ "type": "string" });
    json!({
        "ETag": header("Strong entity tag of the content, equal on all instances.", text()),
        "Age": header(
            "Seconds by which the answer may be behind the database.",
            json!({ "type": "integer", "minimum": 0 }),
        ),
        "Cache-Control": header("Directives for caches behind this server.", text()),
        "Hotrow-Cache": header(
            "Outcome of the cache.",
            json!({ "enum": ["hit", "miss", "coalesced", "stale", "bypass"] }),
        ),
        "Hotrow-Position": header(
            "Session token: this answer reflects every change up to it.",
            json!({ "type": "string", "pattern": POSITION_PATTERN }),
        ),
        "Vary": header("accept-encoding: the record is also sent in other codings.", text()),
        "Allow": header("Methods of the target.", text()),
        "Retry-After": header(
            "Seconds after which to try again.", json!({ "type": "integer", "minimum": 0 }),
        ),
        "RateLimit": header("State of the rate limits.", text()),
        "WWW-Authenticate": header("What to send, and why the request was refused.", text()),
    })
}

/// Form of a position: the incarnation of the log, and a number in it.
pub(super) const POSITION_PATTERN: &str = "^[0-9a-f]{16}-(0|[1-9][0-9]{0,19})$";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_leads_to_a_response() {
        let all = problems();
        let mut responses = Map::new();
        add_problems(&mut responses, Possible { credentials: true, one_record: true });
        assert_eq!(responses.len(), all.len());
        for reference in responses.values() {
            let reference = reference["$ref"].as_str().unwrap();
            assert!(all.contains_key(reference.rsplit('/').next().unwrap()), "{reference}");
        }
        let headers = headers();
        let named = all.values().filter_map(|response| response["headers"].as_object());
        for name in named.flat_map(Map::keys) {
            assert!(headers.get(name).is_some(), "{name}");
        }
    }

    #[test]
    fn a_batch_without_credentials_is_never_refused_for_them() {
        let mut responses = Map::new();
        add_problems(&mut responses, Possible { credentials: false, one_record: false });
        for status in ["401", "403", "404"] {
            assert!(!responses.contains_key(status), "{status}");
        }
    }
}
