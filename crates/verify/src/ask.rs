//! One request as a reader sends it, and the reading of its answer.

use serde_json::{Map, Value};

use crate::http::{Answer, Request};
use crate::observation::{Form, Observation, Origin, Outcome, Position, Seen, Wish};
use crate::row::{KeyType, version_of};

/// Statuses that are refusals and claim nothing: too many requests, and what the contract allows. 502 is a balancer's own.
const REFUSALS: [u16; 3] = [429, 503, 504];
/// A balancer's way to say that it reached nobody.
const BAD_GATEWAY: u16 = 502;

/// What a reader asks for.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) form: Form,
    /// One key, or those of a batch.
    pub(crate) keys: Vec<(u32, Wish)>,
    /// The version that `If-None-Match` stands for, and its `ETag`.
    pub(crate) known: Option<(u64, String)>,
}

/// How records of the collection look.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) collection: String,
    pub(crate) key: String,
    pub(crate) key_type: KeyType,
}

impl Ask {
    /// An ordinary read.
    pub(crate) fn plain(key: u32) -> Self {
        Self { form: Form::Get, keys: vec![(key, Wish::Any)], known: None }
    }

    pub(crate) fn request(&self, shape: &Shape) -> Request {
        let texts: Vec<String> = self.keys.iter().map(|(key, _)| shape.key_type.text(*key)).collect();
        let collection = &shape.collection;
        let mut request = match self.form {
            Form::Get | Form::Conditional | Form::Head => Request::get(format!("/{collection}/{}", texts.join(","))),
            Form::BatchGet => Request::get(format!("/{collection}?ids={}", texts.join(","))),
            Form::BatchPost => {
                let body = Some(serde_json::json!({ "ids": texts }).to_string());
                Request { method: "POST", path: format!("/{collection}"), headers: Vec::new(), body }
            }
        };
        if self.form == Form::Head {
            request.method = "HEAD";
        }
        // All keys of a batch wish the same, but for what follows from it for each.
        match self.keys.first().map(|(_, wish)| *wish) {
            Some(Wish::NoCache) => request.headers.push(("Cache-Control", "no-cache".to_owned())),
            Some(Wish::Session { position, .. } | Wish::OwnWrite { position, .. }) => {
                request.headers.push(("Hotrow-Min-Position", position.to_string()));
            }
            Some(Wish::Any) | None => {}
        }
        if let Some((_, etag)) = &self.known {
            request.headers.push(("If-None-Match", etag.clone()));
        }
        request
    }

    /// What the answer says of each key. `version_of_etag` knows the versions of `ETag`s.
    pub(crate) fn read(
        &self,
        answer: &Answer,
        shape: &Shape,
        origin: Origin,
        version_of_etag: impl Fn(u32, &str) -> Option<u64>,
    ) -> Vec<Seen> {
        let all = |seen: Seen| vec![seen; self.keys.len()];
        let wants_position =
            self.keys.iter().any(|(_, wish)| matches!(wish, Wish::Session { .. } | Wish::OwnWrite { .. }));
        let key = self.keys.first().map_or(0, |(key, _)| *key);
        match (self.form, answer.status()) {
            (_, status) if REFUSALS.contains(&status) => all(Seen::Refused(status)),
            (_, BAD_GATEWAY) if matches!(origin, Origin::Balancer(_)) => all(Seen::Refused(BAD_GATEWAY)),
            (_, 400) if wants_position => all(Seen::PositionRefused),
            (Form::BatchGet | Form::BatchPost, 200) => self.read_batch(&answer.body, shape),
            (Form::Get | Form::Conditional, 200) => {
                let record = serde_json::from_slice(&answer.body).map_err(|error| error.to_string());
                let version = record.and_then(|record| version_of(&record, &shape.key, shape.key_type, key));
                all(version.map_or_else(|what| invented(&format!("a record, but {what}")), Seen::Version))
            }
            (Form::Head, 200) => {
                let version = answer.header("etag").and_then(|etag| version_of_etag(key, etag));
                all(version.map_or(Seen::SomeRow, Seen::Version))
            }
            (Form::Conditional, 304) => all(match &self.known {
                Some((version, etag)) if answer.header("etag").is_none_or(|said| said == etag) => {
                    Seen::Version(*version)
                }
                _ => invented("304 with another ETag than was sent"),
            }),
            (Form::Get | Form::Conditional | Form::Head, 404) => all(Seen::Absent),
            (_, status) => all(invented(&format!("status {status}: {}", text(&answer.body)))),
        }
    }

    fn read_batch(&self, body: &[u8], shape: &Shape) -> Vec<Seen> {
        let parsed: Result<Map<String, Value>, _> = serde_json::from_slice(body);
        let object = parsed.unwrap_or_default();
        let (Some(Value::Object(items)), Some(Value::Array(missing))) = (object.get("items"), object.get("missing"))
        else {
            return vec![invented(&format!("no batch: {}", text(body))); self.keys.len()];
        };
        let seen = |(key, _): &(u32, Wish)| {
            let id = shape.key_type.text(*key);
            let is_missing = missing.iter().any(|other| other.as_str() == Some(&id));
            match (items.get(&id), is_missing) {
                (Some(Value::Object(record)), false) => version_of(record, &shape.key, shape.key_type, *key)
                    .map_or_else(|what| invented(&format!("a record of a batch, but {what}")), Seen::Version),
                (None, true) => Seen::Absent,
                _ => invented("a batch in which the id is not once either an item or missing"),
            }
        };
        self.keys.iter().map(seen).collect()
    }

    /// The answer's parts as observations.
    pub(crate) fn observations(
        &self,
        answer: &Answer,
        seen: Vec<Seen>,
        origin: Origin,
        reader: u16,
    ) -> Vec<Observation> {
        let outcome = Outcome::parse(answer.header("hotrow-cache"));
        let age_s = answer.header("age").and_then(|text| text.parse().ok());
        let position = answer.header("hotrow-position").and_then(Position::parse);
        let observe = |((key, wish), seen): (&(u32, Wish), Seen)| Observation {
            key: *key,
            reader,
            origin,
            sent_ns: answer.sent_ns,
            received_ns: answer.received_ns,
            form: self.form,
            wish: *wish,
            seen,
            outcome,
            age_s,
            position,
        };
        self.keys.iter().zip(seen).map(observe).collect()
    }
}

fn invented(what: &str) -> Seen {
    Seen::Invented(what.into())
}

/// The beginning of a body.
fn text(body: &[u8]) -> String {
    /// Characters that are shown.
    const SHOWN_MAX: usize = 120;
    String::from_utf8_lossy(body).chars().take(SHOWN_MAX).collect()
}

#[cfg(test)]
mod tests;
