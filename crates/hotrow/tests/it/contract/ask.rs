//! One request of a reader, and the parsing of its answer.

use crate::contract::observation::{Outcome, ReadMode, Seen, Token};
use crate::contract::rows::{Sizes, body, claimed_version, payload};
use hotrow_testkit::harness::Answer;
use hotrow_testkit::harness::client::request_bytes;

/// The collection's path.
pub(crate) const ITEMS: &str = "/items";

/// One read request.
#[derive(Clone, Debug)]
pub(crate) enum ReadRequest {
    One { key: u32, mode: ReadMode, known: Option<Known> },
    Batch { keys: Vec<u32>, mode: ReadMode, post: bool },
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
    pub(crate) token: Option<Token>,
}

impl ReadRequest {
    /// Returns the request's bytes; `log` is the id of the log that commit positions belong to.
    pub(crate) fn bytes(&self, log: u64) -> Vec<u8> {
        let mut headers: Vec<(&str, String)> = Vec::new();
        let (Self::One { mode, .. } | Self::Batch { mode, .. }) = self;
        match *mode {
            ReadMode::Normal => {}
            ReadMode::Revalidate => headers.push(("Cache-Control", "no-cache".to_owned())),
            ReadMode::AtLeast(at) | ReadMode::Session { token: at, .. } => {
                headers.push(("Hotrow-Min-Position", Token { log, at }.to_string()));
            }
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
    pub(crate) fn read(&self, answer: &Answer, sizes: Sizes) -> Vec<(u32, Seen)> {
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

/// Parses `Hotrow-Cache`, `Age` and `Hotrow-Position`.
pub(crate) fn provenance(answer: &Answer) -> Provenance {
    let outcome = match answer.cache() {
        "hit" => Outcome::Hit,
        "miss" => Outcome::Miss,
        "coalesced" => Outcome::Coalesced,
        "stale" => Outcome::Stale,
        "bypass" => Outcome::Bypass,
        "-" => Outcome::None,
        other => panic!("Hotrow-Cache: {other}"),
    };
    let age_s = answer.header("age").map_or(0, |age| age.parse().expect("Age is a number"));
    let token =
        answer.header("hotrow-position").map(|text| Token::parse(text).expect("a position"));
    // The rules judge whether a 400 is allowed: some engines refuse tokens from before a restart.
    let is_refusal = answer.status == 400 || answer.status >= 500;
    assert!(is_refusal || outcome != Outcome::None, "an answer without Hotrow-Cache: {answer:?}");
    Provenance { outcome, age_s, token }
}

fn read_one(key: u32, known: Option<&Known>, answer: &Answer, sizes: Sizes) -> Seen {
    match answer.status {
        200 => match claimed_version(&answer.body) {
            Some(version) if body(key, version, sizes).as_bytes() == answer.body => {
                Seen::Version(version)
            }
            _ => invented(answer),
        },
        304 => match known {
            Some(known) if answer.header("etag") == Some(&known.etag) => {
                Seen::Version(known.version)
            }
            _ => invented(answer),
        },
        404 if answer.problem(404).0 == "No such record" => Seen::Absent,
        _ => refused(answer),
    }
}

fn read_batch(keys: &[u32], answer: &Answer, sizes: Sizes) -> Vec<(u32, Seen)> {
    if answer.status != 200 {
        return keys.iter().map(|key| (*key, refused(answer))).collect();
    }
    let document = answer.json();
    let missing = document["missing"].as_array().expect("a list of missing ids");
    let all = missing.len() + document["items"].as_object().expect("items").len();
    assert_eq!(all, keys.len(), "each id once: {}", answer.text());
    let seen = |key: &u32| {
        let id = key.to_string();
        let item = &document["items"][&id];
        if missing.iter().any(|other| *other == id.as_str()) {
            return Seen::Absent;
        }
        let version = item["version"].as_u64().unwrap_or_default();
        let whole = serde_json::json!({
            "id": key, "version": version, "payload": payload(*key, version, sizes)
        });
        if *item == whole {
            Seen::Version(version)
        } else {
            Seen::Invented(item.to_string().chars().take(200).collect())
        }
    };
    keys.iter().map(|key| (*key, seen(key))).collect()
}

fn refused(answer: &Answer) -> Seen {
    if !matches!(answer.status, 400 | 503 | 504) {
        return invented(answer);
    }
    let (title, detail) = answer.problem(answer.status);
    assert!(
        !title.is_empty() && !detail.is_empty(),
        "a refusal without title and detail: {answer:?}"
    );
    if answer.status == 400 && !detail.starts_with(ENDED_TOKEN) {
        return invented(answer);
    }
    let retry = answer.header("retry-after").is_some();
    assert!(retry || answer.status != 503, "503 without Retry-After: {answer:?}");
    Seen::Refused(answer.status)
}

fn invented(answer: &Answer) -> Seen {
    Seen::Invented(format!("{} {:.200}", answer.status, answer.text()).into())
}
