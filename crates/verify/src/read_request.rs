//! One read request, and the interpretation of its response.

use serde_json::{Map, Value};

use crate::http::{Request, Response};
use crate::observation::{Claim, Form, Observation, Origin, Outcome, Position, Requirement};
use crate::row::{KeyType, version_of};

/// A read request.
#[derive(Clone, Debug)]
pub(crate) struct ReadRequest {
    pub(crate) form: Form,
    /// One key, or several for a batch.
    pub(crate) keys: Vec<(u32, Requirement)>,
    /// The version that `If-None-Match` refers to, and its `ETag`.
    pub(crate) known: Option<(u64, String)>,
}

/// Format of the collection's records.
#[derive(Clone, Debug)]
pub(crate) struct RecordSchema {
    pub(crate) collection: String,
    pub(crate) key: String,
    pub(crate) key_type: KeyType,
}

impl ReadRequest {
    /// Returns an ordinary read.
    pub(crate) fn plain(key: u32) -> Self {
        Self { form: Form::Get, keys: vec![(key, Requirement::Any)], known: None }
    }

    pub(crate) fn request(&self, schema: &RecordSchema) -> Request {
        let texts: Vec<String> =
            self.keys.iter().map(|(key, _)| schema.key_type.text(*key)).collect();
        let collection = &schema.collection;
        let mut request = match self.form {
            // Those of the Redis protocol are sent by another reader.
            Form::Get
            | Form::Conditional
            | Form::Head
            | Form::RedisGet
            | Form::RedisMget
            | Form::Copy => Request::get(format!("/{collection}/{}", texts.join(","))),
            Form::BatchGet => Request::get(format!("/{collection}?ids={}", texts.join(","))),
            Form::BatchPost => {
                let body = Some(serde_json::json!({ "ids": texts }).to_string());
                Request {
                    method: "POST",
                    path: format!("/{collection}"),
                    headers: Vec::new(),
                    body,
                }
            }
        };
        if self.form == Form::Head {
            request.method = "HEAD";
        }
        let requirement = self.requirement();
        if requirement == Requirement::NoCache {
            request.headers.push(("Cache-Control", "no-cache".to_owned()));
        }
        if let Some(position) = requirement.position() {
            request.headers.push(("Hotrow-Min-Position", position.to_string()));
        }
        if let Some((_, etag)) = &self.known {
            request.headers.push(("If-None-Match", etag.clone()));
        }
        request
    }

    /// Returns the requirement of the first key. All keys of a batch have the same one, except for
    /// the version that it implies per key.
    fn requirement(&self) -> Requirement {
        self.keys.first().map_or(Requirement::Any, |(_, requirement)| *requirement)
    }

    /// Interprets the response for each key. `version_of_etag` returns the version of a known
    /// `ETag`.
    pub(crate) fn read(
        &self,
        response: &Response,
        schema: &RecordSchema,
        origin: Origin,
        version_of_etag: impl Fn(u32, &str) -> Option<u64>,
    ) -> Vec<Claim> {
        let all = |seen: Claim| vec![seen; self.keys.len()];
        let key = self.keys.first().map_or(0, |(key, _)| *key);
        match (self.form, response.status()) {
            (_, status) if origin.may_refuse_with(status) => all(Claim::Refused(status)),
            (_, 400) if self.requirement().position().is_some() => all(Claim::PositionRefused),
            (Form::BatchGet | Form::BatchPost, 200) => self.read_batch(&response.body, schema),
            (Form::Get | Form::Conditional, 200) => {
                let record =
                    serde_json::from_slice(&response.body).map_err(|error| error.to_string());
                let version = record
                    .and_then(|record| version_of(&record, &schema.key, schema.key_type, key));
                all(version
                    .map_or_else(|what| invalid(&format!("a record, but {what}")), Claim::Version))
            }
            (Form::Head, 200) => {
                let version = response.header("etag").and_then(|etag| version_of_etag(key, etag));
                all(version.map_or(Claim::UnknownVersion, Claim::Version))
            }
            (Form::Conditional, 304) => all(match &self.known {
                Some((version, etag))
                    if response.header("etag").is_none_or(|said| said == etag) =>
                {
                    Claim::Version(*version)
                }
                _ => invalid("304 with a different ETag"),
            }),
            (Form::Get | Form::Conditional | Form::Head, 404) => all(Claim::Absent),
            (_, status) => all(invalid(&format!("status {status}: {}", text(&response.body)))),
        }
    }

    fn read_batch(&self, body: &[u8], schema: &RecordSchema) -> Vec<Claim> {
        let parsed: Result<Map<String, Value>, _> = serde_json::from_slice(body);
        let object = parsed.unwrap_or_default();
        let (Some(Value::Object(items)), Some(Value::Array(missing))) =
            (object.get("items"), object.get("missing"))
        else {
            return vec![invalid(&format!("not a batch: {}", text(body))); self.keys.len()];
        };
        let seen = |(key, _): &(u32, Requirement)| {
            let id = schema.key_type.text(*key);
            let is_missing = missing.iter().any(|other| other.as_str() == Some(&id));
            match (items.get(&id), is_missing) {
                (Some(Value::Object(record)), false) => {
                    version_of(record, &schema.key, schema.key_type, *key).map_or_else(
                        |what| invalid(&format!("a record of a batch, but {what}")),
                        Claim::Version,
                    )
                }
                (None, true) => Claim::Absent,
                _ => invalid("a batch without exactly one entry for the id"),
            }
        };
        self.keys.iter().map(seen).collect()
    }

    /// Returns the response as observations.
    pub(crate) fn observations(
        &self,
        response: &Response,
        seen: Vec<Claim>,
        origin: Origin,
        reader: u16,
    ) -> Vec<Observation> {
        let outcome = Outcome::parse(response.header("hotrow-cache"));
        let age_s = response.header("age").and_then(|text| text.parse().ok());
        let position = response.header("hotrow-position").and_then(Position::parse);
        let observe = |((key, requirement), seen): (&(u32, Requirement), Claim)| Observation {
            key: *key,
            reader,
            origin,
            sent_ns: response.sent_ns,
            received_ns: response.received_ns,
            form: self.form,
            requirement: *requirement,
            seen,
            outcome,
            age_s,
            position,
        };
        self.keys.iter().zip(seen).map(observe).collect()
    }
}

fn invalid(what: &str) -> Claim {
    Claim::Invalid(what.into())
}

/// Returns the beginning of a body.
fn text(body: &[u8]) -> String {
    /// Characters in a message.
    const SHOWN_MAX: usize = 120;
    String::from_utf8_lossy(body).chars().take(SHOWN_MAX).collect()
}

#[cfg(test)]
mod tests;
