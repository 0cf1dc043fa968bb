//! Ids of a batch in a request's body: `{"ids":[…]}`.
//!
//! Parsed id by id: a body takes no more memory than its ids, an overlong list ends the parsing,
//! and the worker can serve its other connections in between.

use std::borrow::Cow;
use std::fmt;

use foldhash::fast::FixedState;
use hotrow_answer::http_error::HttpError;
use hotrow_answer::ids::{Ids, NO_IDS, SNAPSHOT};
use hotrow_types::key::{KEY_PARTS_MAX, Key, KeySchema, percent_encode};
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde_json::error::Category;

use super::number::Number;
use hotrow_config::Limits;

/// Ids parsed before the worker's other connections get their turn: some tens of microseconds of
/// work.
const IDS_PER_TURN: usize = 256;

/// Parses the ids of `{"ids":[…]}`: strings, integers, and arrays of these for keys of several
/// columns.
///
/// # Errors
/// 400 for a malformed, empty or too large batch.
#[cfg(any(test, fuzzing))]
pub(crate) fn parse_body(
    schema: &KeySchema,
    limits: &Limits,
    hasher: &FixedState,
    body: &[u8],
) -> Result<Ids, HttpError> {
    let mut list = List::open(schema, limits, hasher, body)?;
    while list.read_some()? {}
    list.close()?;
    Ok(list.ids)
}

/// Parses like [`parse_body`], with turns of other connections in between.
///
/// # Errors
/// See [`parse_body`].
pub(crate) async fn parse_body_in_turns(
    schema: &KeySchema,
    limits: &Limits,
    hasher: &FixedState,
    body: &[u8],
) -> Result<Ids, HttpError> {
    let mut list = List::open(schema, limits, hasher, body)?;
    while list.read_some()? {
        tokio::task::yield_now().await;
    }
    list.close()?;
    Ok(list.ids)
}

/// A body parsed up to a position within its list.
pub(crate) struct List<'a> {
    pub(crate) schema: &'a KeySchema,
    ids_max: usize,
    /// Remaining input.
    rest: &'a str,
    pub(crate) ids: Ids,
    count: usize,
    /// What the body is, for messages.
    shape: &'static str,
}

const ONE_LIST: &str = "{\"ids\":[…]}";

const NO_JSON: &str = "the body is not JSON";

impl<'a> List<'a> {
    #[cold]
    pub(crate) fn bad(&self, what: &str) -> HttpError {
        HttpError::BadBatch(format!("{what}; the body is {}", self.shape))
    }

    #[cold]
    fn neither(&self, number: usize) -> HttpError {
        let what = format!("id {number} is neither a string nor an integer nor an array of these");
        self.bad(&what)
    }

    /// Parses up to the first id.
    fn open(
        schema: &'a KeySchema,
        limits: &Limits,
        hasher: &FixedState,
        body: &'a [u8],
    ) -> Result<Self, HttpError> {
        let mut list = Self::begin(schema, ONE_LIST, limits, hasher, body)?;
        if list.eat(b'}') {
            return Err(list.bad("there is no list of ids"));
        }
        while list.member()? == Member::Snapshot {
            if !list.eat(b',') {
                return Err(list.bad("there is no list of ids"));
            }
        }
        list.begin_ids()?;
        Ok(list)
    }

    /// Parses the beginning of the body's object.
    pub(crate) fn begin(
        schema: &'a KeySchema,
        shape: &'static str,
        limits: &Limits,
        hasher: &FixedState,
        body: &'a [u8],
    ) -> Result<Self, HttpError> {
        let ids_max = limits.max_batch;
        // An id has at least a digit and a comma.
        let name_bytes_max = limits.target_bytes;
        let ids = Ids::with_capacity(
            ids_max.min(body.len() / 2),
            body.len().min(name_bytes_max),
            name_bytes_max,
            hasher,
        );
        let mut list = Self { schema, ids_max, rest: "", ids, count: 0, shape };
        list.rest = std::str::from_utf8(body).map_err(|_| list.bad(NO_JSON))?;
        if !list.eat(b'{') {
            let what = match list.peek() {
                Some(b'[' | b'"' | b'0'..=b'9' | b'-' | b't' | b'f' | b'n') => {
                    "the body is not an object"
                }
                Some(_) | None => NO_JSON,
            };
            return Err(list.bad(what));
        }
        Ok(list)
    }

    /// Parses the beginning of a list of ids.
    pub(crate) fn begin_ids(&mut self) -> Result<(), HttpError> {
        if !self.eat(b'[') {
            return Err(self.bad("there is no list of ids"));
        }
        if self.eat(b']') {
            return Err(HttpError::BadBatch(NO_IDS.into()));
        }
        Ok(())
    }

    /// Parses some ids; `true`: more follow. At the end of the list its bracket is parsed too.
    pub(crate) fn read_some(&mut self) -> Result<bool, HttpError> {
        for _ in 0..IDS_PER_TURN {
            self.read_id()?;
            if self.eat(b']') {
                return Ok(false);
            }
            if !self.eat(b',') {
                return Err(self.bad(NO_JSON));
            }
        }
        Ok(true)
    }

    fn read_id(&mut self) -> Result<(), HttpError> {
        self.count += 1;
        let number = self.count;
        let max = self.ids_max;
        if number > max {
            return Err(HttpError::BadBatch(format!(
                "the batch has more than {max} ids, which is the limit"
            )));
        }
        if let Some((name_bytes, key)) = self.integer_id() {
            let text = self.rest;
            self.rest = &text[name_bytes..];
            return self.ids.push_integer(text, name_bytes, key);
        }
        if self.eat(b'[') {
            let parts = self.parts(number)?;
            let key = self.schema.parse_texts(&parts.iter().map(AsRef::as_ref).collect::<Vec<_>>());
            let names: Vec<_> = parts.iter().map(|part| percent_encode(part)).collect();
            return self.ids.push(&names.join(","), key);
        }
        let text = self.text(number)?;
        if self.schema.types().len() > 1 {
            // A key of several columns as in a URL.
            return self.ids.push(&text, self.schema.parse_url(&text));
        }
        self.ids.push(&percent_encode(&text), self.schema.parse_texts(&[&text]))
    }

    /// Parses the rest of an array, which is an id.
    fn parts(&mut self, number: usize) -> Result<Vec<Cow<'a, str>>, HttpError> {
        let mut parts = Vec::with_capacity(KEY_PARTS_MAX);
        if self.eat(b']') {
            return Ok(parts);
        }
        loop {
            parts.push(self.text(number)?);
            if parts.len() > KEY_PARTS_MAX {
                return Err(self.neither(number));
            }
            if self.eat(b']') {
                return Ok(parts);
            }
            if !self.eat(b',') {
                return Err(self.bad(NO_JSON));
            }
        }
    }

    /// Parses a string or an integer.
    fn text(&mut self, number: usize) -> Result<Cow<'a, str>, HttpError> {
        self.skip_space();
        let rest = self.rest.as_bytes();
        if matches!(rest.first(), Some(b'-' | b'0'..=b'9')) {
            let (value, after) = Number::parse(rest).ok_or_else(|| self.bad(NO_JSON))?;
            self.rest = &self.rest[rest.len() - after.len()..];
            return match value.integer() {
                Some(integer) => Ok(Cow::Owned(integer.to_string())),
                None => Err(self.neither(number)),
            };
        }
        match self.value() {
            Ok(Text(text)) => Ok(text),
            Err(Category::Data) => Err(self.neither(number)),
            Err(Category::Io | Category::Syntax | Category::Eof) => Err(self.bad(NO_JSON)),
        }
    }

    /// Parses the usual id without the general parser: an integer in the spelling that is also its
    /// URL form. Returns the bytes of its text, which is next. `None`: it is something else.
    #[inline]
    fn integer_id(&mut self) -> Option<(usize, Key)> {
        self.skip_space();
        let rest = self.rest.as_bytes();
        let length = rest.iter().position(|byte| !matches!(byte, b'-' | b'0'..=b'9'))?;
        // Anything else continues the number, or is an error that the general parser names.
        if !matches!(rest[length], b',' | b']' | b' ' | b'\t' | b'\n' | b'\r') {
            return None;
        }
        Some((length, self.schema.parse_integer_key(&self.rest[..length])?))
    }

    /// Parses a member's name and its colon; of `snapshot`, its value too.
    fn member(&mut self) -> Result<Member, HttpError> {
        let name = self.name()?;
        match &*name {
            "ids" => Ok(Member::Ids),
            SNAPSHOT if self.ids.is_snapshot => Err(self.bad("the body has \"snapshot\" twice")),
            SNAPSHOT => {
                let is_true = self.value::<bool>().is_ok_and(|value| value);
                self.ids.is_snapshot = is_true;
                let why = "the member \"snapshot\" is true; leave it out otherwise";
                if is_true { Ok(Member::Snapshot) } else { Err(self.bad(why)) }
            }
            _ => Err(self.bad(&format!("the body has an unknown member {name:?}"))),
        }
    }

    pub(crate) fn name(&mut self) -> Result<Cow<'a, str>, HttpError> {
        let Text(name) = self.value().map_err(|_| self.bad(NO_JSON))?;
        if self.eat(b':') { Ok(name) } else { Err(self.bad(NO_JSON)) }
    }

    /// Parses the rest after the list of ids.
    fn close(&mut self) -> Result<(), HttpError> {
        while self.eat(b',') {
            if self.member()? == Member::Ids {
                return Err(self.bad("the body has its ids twice"));
            }
        }
        self.end()
    }

    /// Parses the end of the body.
    pub(crate) fn end(&mut self) -> Result<(), HttpError> {
        if self.eat(b'}') && self.peek().is_none() { Ok(()) } else { Err(self.bad(NO_JSON)) }
    }

    /// Parses the next value.
    fn value<T: Deserialize<'a>>(&mut self) -> Result<T, Category> {
        let mut values = serde_json::Deserializer::from_str(self.rest).into_iter::<T>();
        match values.next() {
            Some(Ok(value)) => {
                self.rest = &self.rest[values.byte_offset()..];
                Ok(value)
            }
            Some(Err(error)) => Err(error.classify()),
            None => Err(Category::Eof),
        }
    }

    pub(crate) fn eat(&mut self, byte: u8) -> bool {
        self.skip_space();
        let is_next = self.rest.as_bytes().first() == Some(&byte);
        if is_next {
            self.rest = &self.rest[1..];
        }
        is_next
    }

    /// Returns the next byte.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        self.skip_space();
        self.rest.bytes().next()
    }

    fn skip_space(&mut self) {
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        let space = self.rest.bytes().take_while(is_space).count();
        self.rest = &self.rest[space..];
    }
}

/// A member of the body.
#[derive(PartialEq, Eq)]
enum Member {
    Ids,
    Snapshot,
}

/// A string of JSON.
struct Text<'a>(Cow<'a, str>);

struct TextVisitor;

impl<'a> Visitor<'a> for TextVisitor {
    type Value = Text<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'a str) -> Result<Text<'a>, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Text<'a>, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }
}

impl<'a> Deserialize<'a> for Text<'a> {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor)
    }
}

#[cfg(test)]
mod tests {
    use hotrow_types::key::CollectionId;

    use super::*;
    use crate::fuzzing::new_shared;

    fn ids(body: &str) -> Result<Vec<String>, String> {
        let shared = new_shared(None);
        let schema = &shared.collections.get(CollectionId(0)).schema;
        match parse_body(schema, &shared.limits, shared.cache.hasher(), body.as_bytes()) {
            Ok(ids) => Ok(ids.named().map(|(name, _)| name.to_owned()).collect()),
            Err(HttpError::BadBatch(detail)) => Err(detail),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_number_that_is_one_integer_is_that_integer() {
        for (number, id) in [
            ("7.0", "7"),
            ("1e2", "100"),
            ("-3.0", "-3"),
            ("0.0", "0"),
            ("1125899906842624.0", "1125899906842624"),
            ("9007199254740993.0", "9007199254740993"),
            ("[9.223372036854775807e18]", "9223372036854775807"),
        ] {
            assert_eq!(
                ids(&format!("{{\"ids\":[{number}]}}")),
                Ok(vec![id.to_owned()]),
                "{number}"
            );
        }
        for number in ["7.5", "-0", "-0.0", "1e300", "[1e300]", "null", "{}", "[[7]]", "[null]"] {
            let refused = ids(&format!("{{\"ids\":[{number}]}}")).unwrap_err();
            assert!(refused.contains("neither"), "{number}: {refused}");
        }
    }

    #[test]
    fn ids_are_parsed_with_any_white_space() {
        let expected = Ok(vec!["1".to_owned(), "-2".to_owned(), "3".to_owned()]);
        for body in [
            r#"{"ids":[1,"-2",[3]]}"#,
            " \n{ \"ids\" :\t[ 1 , \"-2\" , [ 3 ] ] } \r\n",
            r#"{"\u0069ds":[1,"\u002d2",["3"]]}"#,
        ] {
            assert_eq!(ids(body), expected, "{body}");
        }
    }

    #[test]
    fn refusals_name_the_fault() {
        for (body, says) in [
            ("", "not JSON"),
            ("[]", "not an object"),
            ("{}", "there is no list of ids"),
            (r#"{"ids":{}}"#, "there is no list of ids"),
            (r#"{"ids":[]}"#, "a batch names its ids"),
            (r#"{"ids":[1"#, "not JSON"),
            (r#"{"ids":[1 2]}"#, "not JSON"),
            (r#"{"ids":[01]}"#, "not JSON"),
            (r#"{"ids":[1-2]}"#, "not JSON"),
            (r#"{"ids":[-]}"#, "not JSON"),
            (r#"{"ids":[1.]}"#, "not JSON"),
            (r#"{"ids":[[1 2]]}"#, "not JSON"),
            (r#"{"ids":[[1"#, "not JSON"),
            (r#"{"ids":["1]}"#, "not JSON"),
            (r#"{"ids":[[]]}"#, "id 1: the id has 0 parts"),
            (r#"{"ids":[7.5]}"#, "id 1 is neither"),
            (r#"{"ids":[-0]}"#, "id 1 is neither"),
            (r#"{"ids":[1]"#, "not JSON"),
            (r#"{"ids":[1]}}"#, "not JSON"),
            (r#"{"ids":[1]}é"#, "not JSON"),
            (r#"é{"ids":[1]}"#, "not JSON"),
            (r#"{"ids":[1é]}"#, "not JSON"),
            (r#"{"ids":[1],}"#, "not JSON"),
            (r#"{"ids":[1],"ids":[2]}"#, "has its ids twice"),
            (r#"{"idz":[1]}"#, "unknown member \"idz\""),
            (r#"{"ids":[1,null]}"#, "id 2 is neither"),
            (r#"{"ids":[[1,2,3,4,5]]}"#, "id 1 is neither"),
            (r#"{"ids":[1,2,3,4,5,6,7,8,9,10,11]}"#, "more than 10 ids"),
        ] {
            let detail = ids(body).unwrap_err();
            assert!(detail.contains(says), "{body}: {detail}");
        }
    }

    #[test]
    fn overlong_lists_are_not_parsed_beyond_the_limit() {
        // The rest is not parsed.
        let long = format!("{{\"ids\":[{}", "1,".repeat(100_000));
        assert!(ids(&long).unwrap_err().contains("more than 10 ids"));
    }
}
