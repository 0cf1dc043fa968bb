//! JSON objects from outside: of bounded depth, no name twice.
//!
//! Two parsers may disagree about which of two equal names counts; here such an object is an error.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Most levels of objects and lists within each other.
pub const DEPTH_MAX: usize = 8;

/// Parses an object without a duplicate name at any level; `None`: it is not one.
pub fn parse_object(text: &[u8]) -> Option<Map<String, Value>> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let value = Strict { levels_left: DEPTH_MAX }.deserialize(&mut json).ok()?;
    json.end().ok()?;
    match value {
        Value::Object(object) => Some(object),
        _ => None,
    }
}

/// Reader of one value.
#[derive(Clone, Copy)]
struct Strict {
    levels_left: usize,
}

impl Strict {
    fn inner<E: Error>(self) -> Result<Self, E> {
        let levels_left = self.levels_left.checked_sub(1);
        let levels_left = levels_left.ok_or_else(|| E::custom("nested too deeply"))?;
        Ok(Self { levels_left })
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let seed = self.inner()?;
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(seed)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Value, A::Error> {
        let seed = self.inner()?;
        let mut map = Map::new();
        while let Some(name) = object.next_key::<String>()? {
            let value = object.next_value_seed(seed)?;
            if map.insert(name, value).is_some() {
                return Err(A::Error::custom("a name stands twice"));
            }
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(levels: usize) -> String {
        format!("{{\"a\":{}1{}}}", "[".repeat(levels - 1), "]".repeat(levels - 1))
    }

    #[test]
    fn strict_objects_are_parsed() {
        for text in [
            "{}",
            " {\"a\":1,\"b\":[true,null,-1,1.5,\"x\",{\"a\":1}]} ",
            "{\"a\":{\"a\":{\"a\":1}}}",
            &nested(DEPTH_MAX),
        ] {
            let strict = parse_object(text.as_bytes()).map(Value::Object);
            assert_eq!(strict, serde_json::from_str(text).ok(), "{text}");
        }
    }

    #[test]
    fn others_are_refused() {
        for text in [
            "",
            "1",
            "[]",
            "\"a\"",
            "null",
            "{} {}",
            "{}x",
            "{\"a\":1,}",
            "{a:1}",
            "{\"a\":01}",
            "{\"a\":NaN}",
            "{\"a\":1e999}",
            "{\"a\":1,\"a\":1}",
            "{\"a\":1,\"\\u0061\":2}",
            "{\"b\":[{\"a\":1,\"a\":2}]}",
            "{\"a\":\"\u{1}\"}",
            &nested(DEPTH_MAX + 1),
            &nested(100_000),
        ] {
            let shown: String = text.chars().take(40).collect();
            assert_eq!(parse_object(text.as_bytes()), None, "{shown}");
        }
        assert_eq!(parse_object(b"{\"a\":\"\xff\"}"), None, "not UTF-8");
    }
}
