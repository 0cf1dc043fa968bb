//! One read request, and the interpretation of its response.

use serde_json::{Map, Value, json};

use crate::http::{Request, Response};
use crate::ledger::{FoundContent, Ledger};
use crate::observation::{Claim, Form, Observation, Origin, Outcome, Position, Requirement};
use crate::record_schema::RecordSchema;

/// A read request.
#[derive(Clone, Debug)]
pub(crate) struct ReadRequest {
    pub(crate) form: Form,
    /// One key, or several for a batch.
    pub(crate) keys: Vec<(u32, Requirement)>,
    /// The version that `If-None-Match` refers to, and its `ETag`.
    pub(crate) known: Option<(u64, String)>,
}

/// Part of a response: what it states of one key or value.
pub(crate) type Part = (u32, Requirement, Claim);

impl ReadRequest {
    /// Returns an ordinary read.
    pub(crate) fn plain(key: u32) -> Self {
        Self { form: Form::Get, keys: vec![(key, Requirement::Any)], known: None }
    }

    /// Returns a lookup by a value of the alias.
    pub(crate) fn by_value(value: u32) -> Self {
        Self { form: Form::Alias, ..Self::plain(value) }
    }

    pub(crate) fn request(&self, schema: &RecordSchema) -> Request {
        let texts: Vec<String> = self.keys.iter().map(|(key, _)| schema.id(*key)).collect();
        let path = schema.path(self.form.is_by_alias());
        let mut request = match self.form {
            // Those of the Redis protocol are sent by another reader, and copies by none.
            Form::Get
            | Form::Conditional
            | Form::Head
            | Form::Alias
            | Form::SnapshotOther
            | Form::RedisGet
            | Form::RedisMget
            | Form::Copy
            | Form::FollowedCopy => Request::get(format!("{path}/{}", texts.join(","))),
            Form::BatchGet | Form::AliasBatch => {
                Request::get(format!("{path}?ids={}", texts.join(",")))
            }
            Form::SnapshotGet => {
                Request::get(format!("{path}?ids={}&snapshot=true", texts.join(",")))
            }
            Form::BatchPost => Request::post(path, &json!({ "ids": texts })),
            Form::SnapshotPost => Request::post(path, &json!({ "ids": texts, "snapshot": true })),
            Form::SnapshotAcross => {
                let ids = |keys: Vec<(u32, Requirement)>| -> Vec<String> {
                    keys.iter().map(|(key, _)| schema.id(*key)).collect()
                };
                let [own, other] = self.across();
                let mut body = json!({ &schema.collection: ids(own) });
                if let Some(collection) = &schema.other {
                    body[collection] = json!(ids(other));
                }
                Request::post("/_snapshot".to_owned(), &body)
            }
        };
        if self.form == Form::Head {
            request.method = "HEAD";
        }
        let requirement = self.requirement();
        if requirement == Requirement::NoCache {
            request.headers.push(("Cache-Control", "no-cache".to_owned()));
        }
        if requirement == Requirement::Strict {
            request.headers.push(("Hotrow-Min-Position", "now".to_owned()));
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

    /// Returns the keys that a snapshot of two collections requests from each: every second one
    /// from the other collection, and one key from both.
    fn across(&self) -> [Vec<(u32, Requirement)>; 2] {
        let every_second = |from: usize| self.keys.iter().copied().skip(from).step_by(2);
        let own: Vec<_> = every_second(0).collect();
        let other = own.iter().copied().take(1).chain(every_second(1)).collect();
        [own, other]
    }

    /// Interprets the response for each key and value. The ledger knows the versions of `ETag`s and
    /// of contents.
    pub(crate) fn read(
        &self,
        response: &Response,
        schema: &RecordSchema,
        origin: Origin,
        ledger: &Ledger,
    ) -> Vec<Part> {
        let all = |seen: Claim| {
            self.keys.iter().map(|(key, requirement)| (*key, *requirement, seen.clone())).collect()
        };
        let key = self.keys.first().map_or(0, |(key, _)| *key);
        match (self.form, response.status()) {
            (_, status) if origin.may_refuse_with(status) => all(Claim::Refused(status)),
            (_, 400) if self.requirement().position().is_some() => all(Claim::PositionRefused),
            (Form::SnapshotAcross, 200) => self.read_across(&response.body, schema, ledger),
            (form, 200) if form.is_batch() => {
                let body = serde_json::from_slice(&response.body).unwrap_or_default();
                self.read_batch(&self.keys, &body, schema, ledger)
            }
            (Form::Get | Form::Conditional | Form::Alias, 200) => {
                match serde_json::from_slice(&response.body) {
                    Ok(record) => self.record(key, self.requirement(), &record, schema, ledger),
                    Err(error) => all(invalid(&format!("a record, but {error}"))),
                }
            }
            (Form::Head, 200) => {
                let etag = response.header("etag");
                let version = etag.and_then(|etag| ledger.version_of_etag(key, etag));
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
            (Form::Get | Form::Conditional | Form::Head | Form::Alias, 404) => all(Claim::Absent),
            (_, status) => all(invalid(&format!("status {status}: {}", text(&response.body)))),
        }
    }

    /// Returns what a record states of its key, and if it was looked up by a value, of that.
    fn record(
        &self,
        id: u32,
        requirement: Requirement,
        record: &Map<String, Value>,
        schema: &RecordSchema,
        ledger: &Ledger,
    ) -> Vec<Part> {
        let wrong =
            |what: String| vec![(id, requirement, invalid(&format!("a record, but {what}")))];
        if !self.form.is_by_alias() {
            return match claim_of_record(record, id, schema, ledger) {
                Ok(claim) => vec![(id, requirement, claim)],
                Err(what) => wrong(what),
            };
        }
        let Some(key) = schema.key_of(record) else {
            return wrong(format!("it has no {}", schema.key));
        };
        let content = match schema.content(record, key) {
            Ok(content) => content,
            Err(what) => return wrong(what),
        };
        if content.value != schema.value_of(id) {
            return wrong(format!("it does not have the {}", schema.shown(id)));
        }
        let (version, value) = match ledger.find(key, &content) {
            FoundContent::Known(known) => (Claim::Version(known.version), known.value),
            FoundContent::Forgotten => (Claim::UnknownVersion, None),
            FoundContent::Unknown => {
                return wrong(format!("its parts did not exist together: {content:?}"));
            }
        };
        let of_value = value.map_or(Claim::UnknownVersion, |(_, version)| Claim::Version(version));
        // What a position requires of the key depends on which it is; the value's state implies it.
        let of_key = match requirement {
            Requirement::NoCache => Requirement::NoCache,
            _ => Requirement::Any,
        };
        vec![(id, requirement, of_value), (key, of_key, version)]
    }

    /// Interprets a snapshot of two collections: the parts of the other one come last.
    fn read_across(&self, body: &[u8], schema: &RecordSchema, ledger: &Ledger) -> Vec<Part> {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let [own, other] = self.across();
        let mut parts = Vec::new();
        for (keys, collection) in [(own, Some(&schema.collection)), (other, schema.other.as_ref())]
        {
            let Some(collection) = collection else { continue };
            let batch = &body["collections"][collection];
            parts.extend(self.read_batch(&keys, batch, schema, ledger));
        }
        parts
    }

    fn read_batch(
        &self,
        keys: &[(u32, Requirement)],
        body: &Value,
        schema: &RecordSchema,
        ledger: &Ledger,
    ) -> Vec<Part> {
        let (Some(Value::Object(items)), Some(Value::Array(missing))) =
            (body.get("items"), body.get("missing"))
        else {
            let claim = invalid(&format!("not a batch: {}", text(body.to_string().as_bytes())));
            let part =
                |(key, requirement): &(u32, Requirement)| (*key, *requirement, claim.clone());
            return keys.iter().map(part).collect();
        };
        let parts = |(key, requirement): &(u32, Requirement)| {
            let id = schema.id(*key);
            let is_missing = missing.iter().any(|other| other.as_str() == Some(&id));
            match (items.get(&id), is_missing) {
                (Some(Value::Object(record)), false) => {
                    self.record(*key, *requirement, record, schema, ledger)
                }
                (None, true) => vec![(*key, *requirement, Claim::Absent)],
                _ => {
                    let claim = invalid("a batch without exactly one entry for the id");
                    vec![(*key, *requirement, claim)]
                }
            }
        };
        keys.iter().flat_map(parts).collect()
    }

    /// Returns the parts of the response as observations.
    pub(crate) fn observations(
        &self,
        response: &Response,
        parts: Vec<Part>,
        origin: Origin,
        reader: u16,
    ) -> Vec<Observation> {
        let outcome = Outcome::parse(response.header("hotrow-cache"));
        let age_s = response.header("age").and_then(|text| text.parse().ok());
        let position = response.header("hotrow-position").and_then(Position::parse);
        let own = match self.form {
            Form::SnapshotAcross => self.across()[0].len(),
            _ => parts.len(),
        };
        let observe = |(at, (key, requirement, seen)): (usize, Part)| Observation {
            key,
            reader,
            origin,
            sent_ns: response.sent_ns,
            received_ns: response.received_ns,
            form: if at < own { self.form } else { Form::SnapshotOther },
            requirement,
            seen,
            outcome,
            age_s,
            position,
        };
        parts.into_iter().enumerate().map(observe).collect()
    }
}

/// Returns what a record states of its key.
///
/// # Errors
/// The difference from a valid record.
pub(crate) fn claim_of_record(
    record: &Map<String, Value>,
    key: u32,
    schema: &RecordSchema,
    ledger: &Ledger,
) -> Result<Claim, String> {
    let content = schema.content(record, key)?;
    if schema.is_plain() {
        return Ok(Claim::Version(content.version));
    }
    match ledger.find(key, &content) {
        FoundContent::Known(known) => Ok(Claim::Version(known.version)),
        FoundContent::Forgotten => Ok(Claim::UnknownVersion),
        FoundContent::Unknown => Err(format!("its parts did not exist together: {content:?}")),
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
