//! One request of a reader, and the parsing of its answer.

use crate::contract::rows::{Sizes, body, claimed_version, flattened, flattened_item, payload};
use hotrow_testkit::harness::Answer;
use hotrow_testkit::harness::client::request_bytes;
use hotrow_verify::observation::{Claim, Form, Outcome, Position, Requirement};

/// The collection's path.
pub(crate) const ITEMS: &str = "/items";

/// One read request.
#[derive(Clone, Debug)]
pub(crate) enum ReadRequest {
    One { key: u32, requirement: Requirement, known: Option<Known> },
    Batch { keys: Vec<u32>, requirement: Requirement, post: bool },
}

/// A version whose `ETag` the reader has.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) version: u64,
    pub(crate) etag: String,
}

/// Headers of an answer that describe its origin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Provenance {
    pub(crate) outcome: Outcome,
    pub(crate) age_s: u32,
    pub(crate) position: Option<Position>,
}

impl ReadRequest {
    /// Returns a read without conditions.
    pub(crate) fn plain(key: u32) -> Self {
        Self::One { key, requirement: Requirement::Any, known: None }
    }

    pub(crate) fn requirement(&self) -> Requirement {
        let (Self::One { requirement, .. } | Self::Batch { requirement, .. }) = self;
        *requirement
    }

    pub(crate) fn form(&self) -> Form {
        match self {
            Self::One { known: None, .. } => Form::Get,
            Self::One { known: Some(_), .. } => Form::Conditional,
            Self::Batch { post: false, .. } => Form::BatchGet,
            Self::Batch { post: true, .. } => Form::BatchPost,
        }
    }

    /// Returns the request's bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut headers: Vec<(&str, String)> = Vec::new();
        if self.requirement() == Requirement::NoCache {
            headers.push(("Cache-Control", "no-cache".to_owned()));
        }
        if let Some(position) = self.requirement().position() {
            headers.push(("Hotrow-Min-Position", position.to_string()));
        }
        if self.requirement() == Requirement::Strict {
            headers.push(("Hotrow-Min-Position", "now".to_owned()));
        }
        let mut method = "GET";
        let mut payload = String::new();
        let path = match self {
            Self::One { key, known, .. } => {
                headers.extend(known.iter().map(|known| ("If-None-Match", known.etag.clone())));
                format!("{ITEMS}/{key}")
            }
            Self::Batch { keys, post, .. } => {
                let ids: Vec<String> = keys.iter().map(u32::to_string).collect();
                if *post {
                    method = "POST";
                    payload = format!("{{\"ids\":[{}]}}", ids.join(","));
                    ITEMS.to_owned()
                } else {
                    format!("{ITEMS}?ids={}", ids.join(","))
                }
            }
        };
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        request_bytes(method, &path, &headers, payload.as_bytes())
    }

    /// Returns the state that the answer reports for each key.
    pub(crate) fn read(&self, answer: &Answer, sizes: Sizes) -> Vec<(u32, Claim)> {
        match self {
            Self::One { key, known, .. } => {
                vec![(*key, read_one(*key, known.as_ref(), answer, sizes))]
            }
            Self::Batch { keys, .. } => read_batch(keys, answer, sizes),
        }
    }
}

/// Beginning of the detail of a 400 for a token of another log.
const ENDED_TOKEN: &str = "Hotrow-Min-Position belongs to another database";

/// Beginning of the detail of a 500 for a record that the database cannot read.
const DAMAGED: &str = "the record cannot be read from the database";

/// Parses `Hotrow-Cache`, `Age` and `Hotrow-Position`.
pub(crate) fn provenance(answer: &Answer) -> Provenance {
    let outcome = Outcome::parse(answer.header("hotrow-cache"));
    let is_known = outcome != Outcome::None || answer.header("hotrow-cache").is_none();
    assert!(is_known, "an unknown Hotrow-Cache: {answer:?}");
    let age_s = answer.header("age").map_or(0, |age| age.parse().expect("Age is a number"));
    let position =
        answer.header("hotrow-position").map(|text| Position::parse(text).expect("a position"));
    // The rules judge whether a 400 is allowed: some engines refuse tokens from before a restart.
    let is_refusal = answer.status == 400 || answer.status >= 500;
    assert!(is_refusal || outcome != Outcome::None, "an answer without Hotrow-Cache: {answer:?}");
    Provenance { outcome, age_s, position }
}

/// Returns the version that a record proves.
///
/// # Errors
/// It has a byte that no writer wrote.
pub(crate) fn read_record(key: u32, record: &[u8], sizes: Sizes) -> Result<Claim, String> {
    let shown = flattened(record);
    match claimed_version(&shown) {
        Some(version) if body(key, version, sizes).as_bytes() == &*shown => {
            Ok(Claim::Version(version))
        }
        _ => Err(format!("no row of a writer: {:.200}", String::from_utf8_lossy(record))),
    }
}

fn read_one(key: u32, known: Option<&Known>, answer: &Answer, sizes: Sizes) -> Claim {
    match answer.status {
        200 => read_record(key, &answer.body, sizes).unwrap_or_else(|_| invalid(answer)),
        304 => match known {
            Some(known) if answer.header("etag") == Some(&known.etag) => {
                Claim::Version(known.version)
            }
            _ => invalid(answer),
        },
        404 if answer.problem(404).0 == "No such record" => Claim::Absent,
        _ => refused(answer),
    }
}

fn read_batch(keys: &[u32], answer: &Answer, sizes: Sizes) -> Vec<(u32, Claim)> {
    if answer.status != 200 {
        return keys.iter().map(|key| (*key, refused(answer))).collect();
    }
    let document = answer.json();
    let missing = document["missing"].as_array().expect("a list of missing ids");
    let all = missing.len() + document["items"].as_object().expect("items").len();
    assert_eq!(all, keys.len(), "each id once: {}", answer.text());
    let seen = |key: &u32| {
        let id = key.to_string();
        let item = flattened_item(&document["items"][&id]);
        if missing.iter().any(|other| *other == id.as_str()) {
            return Claim::Absent;
        }
        let version = item["version"].as_u64().unwrap_or_default();
        let whole = serde_json::json!({
            "id": key, "version": version, "payload": payload(*key, version, sizes)
        });
        if item == whole {
            Claim::Version(version)
        } else {
            Claim::Invalid(item.to_string().chars().take(200).collect())
        }
    };
    keys.iter().map(|key| (*key, seen(key))).collect()
}

fn refused(answer: &Answer) -> Claim {
    if !matches!(answer.status, 400 | 500 | 503 | 504) {
        return invalid(answer);
    }
    let (title, detail) = answer.problem(answer.status);
    if answer.status == 500 {
        // To the rules it is as much of a refusal as a 503.
        return if detail.starts_with(DAMAGED) { Claim::Refused(503) } else { invalid(answer) };
    }
    assert!(
        !title.is_empty() && !detail.is_empty(),
        "a refusal without title and detail: {answer:?}"
    );
    if answer.status == 400 {
        let is_ended = detail.starts_with(ENDED_TOKEN);
        return if is_ended { Claim::PositionRefused } else { invalid(answer) };
    }
    let retry = answer.header("retry-after").is_some();
    assert!(retry || answer.status != 503, "503 without Retry-After: {answer:?}");
    Claim::Refused(answer.status)
}

fn invalid(answer: &Answer) -> Claim {
    Claim::Invalid(format!("{} {:.200}", answer.status, answer.text()).into())
}
