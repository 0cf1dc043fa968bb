//! Ids of a batch in a request's body: `{"ids":[…]}`.
//!
//! Parsed id by id: a body takes no more memory than its ids, an overlong list ends the parsing,
//! and the worker can serve its other connections in between.

use std::borrow::Cow;
use std::fmt;

use foldhash::fast::FixedState;
use hotrow_answer::http_error::HttpError;
use hotrow_answer::ids::{Ids, NO_IDS};
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
    Ok(list.ids)
}

/// A body parsed up to a position within its list.
struct List<'a> {
    schema: &'a KeySchema,
    ids_max: usize,
    /// Remaining input.
    rest: &'a str,
    ids: Ids,
    count: usize,
}

fn bad(what: &str) -> HttpError {
    HttpError::BadBatch(format!("{what}; the body is {{\"ids\":[…]}}"))
}

#[cold]
fn neither(number: usize) -> HttpError {
    bad(&format!("id {number} is neither a string nor an integer nor an array of these"))
}

const NO_JSON: &str = "the body is not JSON";

impl<'a> List<'a> {
    /// Parses up to the first id.
    fn open(
        schema: &'a KeySchema,
        limits: &Limits,
        hasher: &FixedState,
        body: &'a [u8],
    ) -> Result<Self, HttpError> {
        let ids_max = limits.max_batch;
        let rest = std::str::from_utf8(body).map_err(|_| bad(NO_JSON))?;
        // An id has at least a digit and a comma.
        let name_bytes_max = limits.target_bytes;
        let ids = Ids::with_capacity(
            ids_max.min(body.len() / 2),
            body.len().min(name_bytes_max),
            name_bytes_max,
            hasher,
        );
        let mut list = Self { schema, ids_max, rest, ids, count: 0 };
        if !list.eat(b'{') {
            return Err(bad(match list.peek() {
                Some(b'[' | b'"' | b'0'..=b'9' | b'-' | b't' | b'f' | b'n') => {
                    "the body is not an object"
                }
                Some(_) | None => NO_JSON,
            }));
        }
        if list.eat(b'}') {
            return Err(bad("there is no list of ids"));
        }
        list.member()?;
        if !list.eat(b'[') {
            return Err(bad("there is no list of ids"));
        }
        if list.eat(b']') {
            return Err(HttpError::BadBatch(NO_IDS.into()));
        }
        Ok(list)
    }

    /// Parses some ids; `true`: more follow. At the end of the list it also parses the end of the
    /// body.
    fn read_some(&mut self) -> Result<bool, HttpError> {
        for _ in 0..IDS_PER_TURN {
            self.read_id()?;
            if self.eat(b']') {
                self.close()?;
                return Ok(false);
            }
            if !self.eat(b',') {
                return Err(bad(NO_JSON));
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
                return Err(neither(number));
            }
            if self.eat(b']') {
                return Ok(parts);
            }
            if !self.eat(b',') {
                return Err(bad(NO_JSON));
            }
        }
    }

    /// Parses a string or an integer.
    fn text(&mut self, number: usize) -> Result<Cow<'a, str>, HttpError> {
        self.skip_space();
        let rest = self.rest.as_bytes();
        if matches!(rest.first(), Some(b'-' | b'0'..=b'9')) {
            let (value, after) = Number::parse(rest).ok_or_else(|| bad(NO_JSON))?;
            self.rest = &self.rest[rest.len() - after.len()..];
            return match value.integer() {
                Some(integer) => Ok(Cow::Owned(integer.to_string())),
                None => Err(neither(number)),
            };
        }
        match self.value() {
            Ok(Text(text)) => Ok(text),
            Err(Category::Data) => Err(neither(number)),
            Err(Category::Io | Category::Syntax | Category::Eof) => Err(bad(NO_JSON)),
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

    /// Parses a member's name, which must be `ids`, and its colon.
    fn member(&mut self) -> Result<(), HttpError> {
        let name: Cow<'a, str> = self.value().map(|Text(name)| name).map_err(|_| bad(NO_JSON))?;
        if name != "ids" {
            return Err(bad(&format!("the body has an unknown member {name:?}")));
        }
        if self.eat(b':') { Ok(()) } else { Err(bad(NO_JSON)) }
    }

    /// Parses the rest after the list.
    fn close(&mut self) -> Result<(), HttpError> {
        if self.eat(b',') {
            self.member()?;
            return Err(bad("the body has its ids twice"));
        }
        if self.eat(b'}') && self.peek().is_none() { Ok(()) } else { Err(bad(NO_JSON)) }
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

    fn eat(&mut self, byte: u8) -> bool {
        self.skip_space();
        let is_next = self.rest.as_bytes().first() == Some(&byte);
        if is_next {
            self.rest = &self.rest[1..];
        }
        is_next
    }

    /// Returns the next byte.
    fn peek(&mut self) -> Option<u8> {
        self.skip_space();
        self.rest.bytes().next()
    }

    fn skip_space(&mut self) {
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        let space = self.rest.bytes().take_while(is_space).count();
        self.rest = &self.rest[space..];
    }
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
