//! Several records in one request. A batch is no snapshot: each record is as fresh as the contract says, for itself.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;

use bytes::Bytes;
use hotrow_cache::flight::Waiter;
use hotrow_cache::key::{CollectionId, Key, KeyError};
use hotrow_cache::version::Position;
use hotrow_cache::{Lookup, Presence, Record, Wish};
use hotrow_measure::clock::Nanos;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Request, Response};
use hyper::body::Incoming;

use crate::admit::deadline::Moments;
use crate::body::Body;
use crate::habits;
use crate::handle::{Handler, Outcome, Special, Step};
use crate::lookups::LookupKind;
use crate::metrics::CacheOutcome;
use crate::position;
use crate::problem::Problem;
use crate::read::lead;
use crate::respond::{Provenance, describe, position_value};
use crate::shared::{Place, Shared};
use crate::trouble::Trouble;

/// The ids of a batch: each name as it was asked, once, and each key once.
#[derive(Debug)]
pub(crate) struct Ids {
    /// The names, one after the other: one allocation for all.
    names: String,
    /// Where each name ends, in the client's order, and the place of its key.
    texts: Vec<(usize, usize)>,
    keys: Vec<Key>,
    places: HashMap<Key, usize, foldhash::fast::RandomState>,
}

impl Ids {
    fn with_capacity(ids: usize, name_bytes: usize) -> Self {
        let hasher = foldhash::fast::RandomState::default();
        Self {
            names: String::with_capacity(name_bytes),
            texts: Vec::with_capacity(ids),
            keys: Vec::with_capacity(ids),
            places: HashMap::with_capacity_and_hasher(ids, hasher),
        }
    }

    /// Takes the next id, called `name` (its URL form).
    fn push(&mut self, name: &str, key: Result<Key, KeyError>) -> Result<(), Problem> {
        let key = key.map_err(|error| Problem::BadBatch(format!("id {}: {error}", self.texts.len() + 1)))?;
        let place = match self.places.entry(key) {
            Entry::Vacant(new) => {
                self.keys.push(new.key().clone());
                *new.insert(self.keys.len() - 1)
            }
            Entry::Occupied(known) => {
                let place = *known.get();
                // Rare, and bounded by `max_batch`: two spellings of a key, or the same twice.
                if self.named().any(|(other, at)| at == place && other == name) {
                    return Ok(());
                }
                place
            }
        };
        self.names.push_str(name);
        self.texts.push((self.names.len(), place));
        Ok(())
    }

    /// Distinct keys.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The names with the places of their keys, in the client's order.
    fn named(&self) -> impl Iterator<Item = (&str, usize)> {
        let mut start = 0;
        self.texts.iter().map(move |&(end, place)| (&self.names[std::mem::replace(&mut start, end)..end], place))
    }
}

const NO_IDS: &str = "a batch names its ids: /{collection}?ids=1,2,3, or POST {\"ids\":[1,2,3]}";

/// Reads the ids of `?ids=…`: separated by raw commas, and by `%2C` where the key cannot contain a comma.
///
/// # Errors
/// 400 for a malformed, empty or too large batch.
pub(crate) fn parse_query(shared: &Shared, id: CollectionId, query: Option<&str>) -> Result<Ids, Problem> {
    let schema = &shared.collection(id).schema;
    let mut lists = query.unwrap_or_default().split('&').filter_map(|pair| pair.strip_prefix("ids="));
    let (list, more) = (lists.next().unwrap_or_default(), lists.next());
    if list.is_empty() {
        return Err(Problem::BadBatch(NO_IDS.into()));
    }
    if more.is_some() {
        return Err(Problem::BadBatch("the query names ids twice; separate ids with commas".into()));
    }
    if schema.types().len() > 1 {
        return Err(Problem::BadBatch("keys of several columns are asked for by POST, each as an array".into()));
    }
    let list = if schema.can_contain_comma() || !list.contains('%') {
        Cow::Borrowed(list)
    } else {
        Cow::Owned(list.replace("%2C", ",").replace("%2c", ","))
    };
    let count = list.split(',').count();
    check_size(shared, count)?;
    let mut ids = Ids::with_capacity(count, list.len());
    for text in list.split(',') {
        ids.push(text, schema.parse_url(text))?;
    }
    Ok(ids)
}

/// Reads the ids of `{"ids":[…]}`: strings, integers, and arrays of these for keys of several columns.
pub(crate) fn parse_body(shared: &Shared, id: CollectionId, body: &[u8]) -> Result<Ids, Problem> {
    let schema = &shared.collection(id).schema;
    let bad = |what: &str| Problem::BadBatch(format!("{what}; the body is {{\"ids\":[…]}}"));
    let document: serde_json::Value = serde_json::from_slice(body).map_err(|_| bad("the body is not JSON"))?;
    let object = document.as_object().ok_or_else(|| bad("the body is no object"))?;
    if let Some(name) = object.keys().find(|name| *name != "ids") {
        return Err(bad(&format!("the body has an unknown member {name:?}")));
    }
    let list = object.get("ids").and_then(|ids| ids.as_array()).ok_or_else(|| bad("there is no list of ids"))?;
    if list.is_empty() {
        return Err(Problem::BadBatch(NO_IDS.into()));
    }
    check_size(shared, list.len())?;
    let mut ids = Ids::with_capacity(list.len(), body.len());
    for (i, id) in list.iter().enumerate() {
        let wrong = || bad(&format!("id {} is neither a string nor an integer nor an array of these", i + 1));
        if let serde_json::Value::Array(parts) = id {
            let parts: Vec<Cow<'_, str>> = parts.iter().map(text_of).collect::<Option<_>>().ok_or_else(wrong)?;
            let key = schema.parse_texts(&parts.iter().map(AsRef::as_ref).collect::<Vec<_>>());
            ids.push(&parts.iter().map(|part| percent_encode(part)).collect::<Vec<_>>().join(","), key)?;
        } else {
            let text = text_of(id).ok_or_else(wrong)?;
            ids.push(&percent_encode(&text), schema.parse_texts(&[&text]))?;
        }
    }
    Ok(ids)
}

fn text_of(value: &serde_json::Value) -> Option<Cow<'_, str>> {
    match value {
        serde_json::Value::String(text) => Some(Cow::Borrowed(text)),
        serde_json::Value::Number(number) if number.is_i64() || number.is_u64() => Some(number.to_string().into()),
        _ => None,
    }
}

/// The URL form of a text: everything but RFC 3986's unreserved characters is encoded.
fn percent_encode(text: &str) -> Cow<'_, str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    if text.bytes().all(plain) {
        return Cow::Borrowed(text);
    }
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if plain(byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded.into()
}

fn check_size(shared: &Shared, ids: usize) -> Result<(), Problem> {
    let max = shared.limits.max_batch;
    if ids > max {
        return Err(Problem::BadBatch(format!("the batch has {ids} ids; the limit is {max}")));
    }
    Ok(())
}

impl Handler {
    pub(crate) async fn batch_post(
        &self,
        id: CollectionId,
        request: Request<Incoming>,
        peer: IpAddr,
        arrived: Nanos,
    ) -> Outcome {
        let (head, body) = request.into_parts();
        let parsed = match crate::receive::body(body, self.shared.limits.body_bytes).await {
            Ok(body) => parse_body(&self.shared, id, &body),
            Err(problem) => Err(problem),
        };
        // The body's time is the client's: only what its own header says counts from before.
        let complete = Nanos::now();
        let at = Moments { arrived, complete, now: complete };
        match self.limited_batch(id, parsed, (peer, &head.headers), at) {
            Step::Now(outcome) => outcome,
            Step::Later(future) => future.await,
        }
    }

    pub(crate) fn batch(&self, id: CollectionId, ids: Ids, asked: &HeaderMap, at: Moments) -> Step {
        let now = at.now;
        let wish = match self.wish(id, asked) {
            Ok(Special::None) => habits::wish(),
            Ok(Special::New) => Wish::New,
            Ok(Special::AtLeast(wanted)) => return self.batch_at_least(id, ids, wanted, asked, at),
            Err(problem) => return Step::Now((problem.response(), CacheOutcome::None)),
        };
        let cache = &self.shared.cache;
        ids.keys.iter().for_each(|key| self.requested(key, now));
        let mut answers = Answers::new(ids.keys.len());
        let mut waiters = Vec::new();
        let mut refresh = false;
        let mut deadline = now;
        let admit = |cold| self.admit_reads(id, wish, cold, asked, at).inspect(|until| deadline = *until);
        let lookups = match cache.lookup_batch_if(&ids.keys, wish, now, admit) {
            Ok(lookups) => lookups,
            Err(problem @ Problem::BadHeader(_)) => return Step::problem(&problem),
            Err(problem) => return Step::Now(self.batch_refused(id, &ids, wish, now, &problem)),
        };
        for (place, lookup) in lookups.into_iter().enumerate() {
            self.looked_up(id, wish, &lookup);
            match lookup {
                Lookup::Hit(record, quality) | Lookup::Negative(record, quality) => {
                    refresh |= self.may_refresh(quality, now) && cache.refresh(&ids.keys[place]);
                    let provenance = Provenance::of_hit(quality, cache.age(&record, now));
                    answers.put(place, record, provenance);
                }
                Lookup::Wait(waiter) => waiters.push((place, waiter, CacheOutcome::Wait)),
                Lookup::Fill(waiter) => waiters.push((place, waiter, CacheOutcome::Miss)),
                Lookup::Bypass(waiter) => waiters.push((place, waiter, CacheOutcome::Bypass)),
                Lookup::Refused(refusal) => match self.stale(&ids.keys[place], wish, now) {
                    Some((record, provenance)) => answers.put(place, record, provenance),
                    None => return Step::Now((Problem::from(&refusal).response(), CacheOutcome::None)),
                },
            }
        }
        if refresh || !waiters.is_empty() {
            lead(&self.shared, id);
        }
        if waiters.is_empty() {
            return Step::Now(self.render(id, &ids, &answers));
        }
        self.batch_later(id, ids, wish, answers, (waiters, deadline))
    }

    /// The cold keys are not read: what memory holds and what may stand in for the others, or why.
    fn batch_refused(&self, id: CollectionId, ids: &Ids, wish: Wish, now: Nanos, problem: &Problem) -> Outcome {
        let mut answers = Answers::new(ids.keys.len());
        let mut all = true;
        for (place, key) in ids.keys.iter().enumerate() {
            let held = match self.held(key, wish, now) {
                Some(held) => Some(held),
                None => {
                    self.lookups.count(id.0, LookupKind::Refused);
                    self.stale(key, wish, now)
                }
            };
            all &= held.is_some();
            held.into_iter().for_each(|(record, provenance)| answers.put(place, record, provenance));
        }
        if all { self.render(id, ids, &answers) } else { (problem.response(), CacheOutcome::None) }
    }

    /// What memory answers without any read; counted as a lookup.
    fn held(&self, key: &Key, wish: Wish, now: Nanos) -> Option<(Record, Provenance)> {
        let cache = &self.shared.cache;
        let (record, quality) = (wish != Wish::New).then(|| cache.peek(key, now)).flatten()?;
        let provenance = Provenance::of_hit(quality, cache.age(&record, now));
        let lookup = match record.presence() {
            Presence::Found => Lookup::Hit(record.clone(), quality),
            Presence::Missing => Lookup::Negative(record.clone(), quality),
        };
        self.looked_up(key.collection(), wish, &lookup);
        Some((record, provenance))
    }

    fn batch_later(
        &self,
        id: CollectionId,
        ids: Ids,
        wish: Wish,
        mut answers: Answers,
        (waiters, deadline): (Vec<(usize, Waiter<Trouble>, CacheOutcome)>, Nanos),
    ) -> Step {
        let place = match Place::take(&self.shared, wish == Wish::New) {
            Ok(place) => place,
            Err(problem) => return Step::Now((problem.response(), CacheOutcome::None)),
        };
        let (handler, arrived) = (self.clone(), Nanos::now());
        Step::Later(Box::pin(async move {
            let _place = place;
            for (place, waiter, outcome) in waiters {
                let waited = handler.wait_for(id, waiter, deadline).await;
                let now = Nanos::now();
                let outcome = if wish == Wish::New { CacheOutcome::Bypass } else { outcome };
                handler.waited(arrived, &waited);
                match waited {
                    Ok(record) => {
                        let age = handler.shared.cache.age(&record, now);
                        answers.put(place, record, Provenance { outcome, age });
                    }
                    Err(problem) => match handler.stale(&ids.keys[place], wish, now) {
                        Some((record, provenance)) => answers.put(place, record, provenance),
                        None => return (problem.response(), CacheOutcome::None),
                    },
                }
            }
            handler.render(id, &ids, &answers)
        }))
    }

    fn batch_at_least(&self, id: CollectionId, ids: Ids, wanted: Position, asked: &HeaderMap, at: Moments) -> Step {
        let admitted = self.shared.deadline(asked, at).and_then(|until| Ok((until, Place::take(&self.shared, true)?)));
        let (deadline, place) = match admitted {
            Ok(admitted) => admitted,
            Err(problem) => return Step::Now((problem.response(), CacheOutcome::None)),
        };
        let handler = self.clone();
        Step::Later(Box::pin(async move {
            let _place = place;
            match position::read_at_least(&handler.shared, &ids.keys, wanted, deadline).await {
                Err(problem) => (problem.response(), CacheOutcome::None),
                Ok(found) => {
                    let mut answers = Answers::new(ids.keys.len());
                    found.into_iter().enumerate().for_each(|(i, (record, how))| answers.put(i, record, how));
                    handler.render(id, &ids, &answers)
                }
            }
        }))
    }

    fn stale(&self, key: &Key, wish: Wish, now: Nanos) -> Option<(Record, Provenance)> {
        let record = (wish != Wish::New).then(|| self.shared.cache.stand_in(key, now)).flatten()?;
        let age = self.shared.cache.age(&record, now);
        Some((record, Provenance { outcome: CacheOutcome::Stale, age }))
    }

    fn render(&self, id: CollectionId, ids: &Ids, answers: &Answers) -> Outcome {
        let mut response = Response::new(Body::Bytes(render_body(ids, answers)));
        let headers = response.headers_mut();
        headers.reserve(8);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, self.shared.collection(id).cache_control.clone());
        describe(headers, answers.worst, answers.token.position().map(position_value));
        (response, answers.worst.outcome)
    }
}

/// What has been found so far, with the worst provenance and the largest position.
struct Answers {
    records: Vec<Option<Record>>,
    worst: Provenance,
    token: Token,
    bytes: usize,
}

/// The token of several records: the largest of theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    None,
    Largest(Position),
    /// They are of two logs, for one of them has just been replaced. No point of either covers the other's records.
    Mixed,
}

impl Token {
    fn take_in(&mut self, position: Option<Position>) {
        let Some(position) = position else { return };
        *self = match *self {
            Self::None => Self::Largest(position),
            Self::Largest(largest) if largest.incarnation != position.incarnation => Self::Mixed,
            Self::Largest(largest) if position.reaches(&largest) => Self::Largest(position),
            unchanged => unchanged,
        };
    }

    fn position(self) -> Option<Position> {
        match self {
            Self::Largest(position) => Some(position),
            Self::None | Self::Mixed => None,
        }
    }
}

impl Answers {
    fn new(keys: usize) -> Self {
        let worst = Provenance { outcome: CacheOutcome::Hit, age: std::time::Duration::ZERO };
        Self { records: vec![None; keys], worst, token: Token::None, bytes: 0 }
    }

    fn put(&mut self, place: usize, record: Record, how: Provenance) {
        self.bytes += record.body().len();
        if how.outcome.badness() > self.worst.outcome.badness() {
            self.worst.outcome = how.outcome;
        }
        self.worst.age = self.worst.age.max(how.age);
        self.token.take_in(record.position());
        self.records[place] = Some(record);
    }
}

/// `{"items":{…},"missing":[…]}`, each id as it was asked.
fn render_body(ids: &Ids, answers: &Answers) -> Bytes {
    let mut out = Vec::with_capacity(answers.bytes + ids.names.len() + 4 * ids.texts.len() + 32);
    let mut missing = Vec::new();
    out.extend_from_slice(b"{\"items\":{");
    let start = out.len();
    for (text, place) in ids.named() {
        let Some(record) = &answers.records[place] else { continue };
        if record.presence() == Presence::Missing {
            missing.push(text);
            continue;
        }
        if out.len() > start {
            out.push(b',');
        }
        push_json_string(&mut out, text);
        out.push(b':');
        out.extend_from_slice(record.body());
    }
    out.extend_from_slice(b"},\"missing\":[");
    for (i, text) in missing.into_iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        push_json_string(&mut out, text);
    }
    out.extend_from_slice(b"]}");
    Bytes::from(out)
}

/// A URL form holds no control characters; quotes and backslashes are still written safely.
fn push_json_string(out: &mut Vec<u8>, text: &str) {
    if text.bytes().all(|b| b >= b' ' && b != b'"' && b != b'\\') {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        out.extend_from_slice(serde_json::Value::from(text).to_string().as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use hotrow_cache::key::percent_decode;

    use super::*;

    #[test]
    fn a_token_covers_every_record_or_is_none() {
        let p = |incarnation, at| Some(Position { incarnation, at });
        let of = |all: &[Option<Position>]| {
            let mut token = Token::None;
            all.iter().for_each(|position| token.take_in(*position));
            token.position()
        };
        assert_eq!(of(&[None]), None);
        assert_eq!(of(&[p(1, 3), p(1, 5), None, p(1, 4)]), p(1, 5));
        assert_eq!(of(&[p(1, 112), p(2, 9), p(1, 33)]), None, "a point of one log says nothing about the other");
    }

    #[test]
    fn url_forms() {
        assert_eq!(percent_encode("a-b_c.d~9"), "a-b_c.d~9");
        assert_eq!(percent_encode("a/b,c ü"), "a%2Fb%2Cc%20%C3%BC");
        assert_eq!(percent_decode(&percent_encode("a%2F")).unwrap(), "a%2F");
        let mut out = Vec::new();
        push_json_string(&mut out, "a\"b");
        push_json_string(&mut out, "plain");
        assert_eq!(out, br#""a\"b""plain""#);
    }
}
