//! Borrowing BSON parser for the server's answers. It copies nothing, never panics, and returns
//! texts as bytes, because old servers and drivers accept texts that are not UTF-8.
//!
//! Source: the BSON specification, version 1.1.

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    Double(f64),
    Text(&'a [u8]),
    Document(Document<'a>),
    Array(Document<'a>),
    Binary {
        subtype: u8,
        bytes: &'a [u8],
    },
    Undefined,
    ObjectId(&'a [u8; 12]),
    Bool(bool),
    /// Milliseconds since 1970.
    Date(i64),
    Null,
    Regex {
        pattern: &'a [u8],
        options: &'a [u8],
    },
    DbPointer {
        namespace: &'a [u8],
        id: &'a [u8; 12],
    },
    Code(&'a [u8]),
    Symbol(&'a [u8]),
    CodeWithScope {
        code: &'a [u8],
        scope: Document<'a>,
    },
    Int32(i32),
    Timestamp(Timestamp),
    Int64(i64),
    Decimal128(&'a [u8; 16]),
    MinKey,
    MaxKey,
}

/// MongoDB's internal time: seconds, and a number within the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timestamp {
    pub(crate) seconds: u32,
    pub(crate) increment: u32,
}

impl Timestamp {
    /// Returns the number used in positions.
    pub(crate) fn at(self) -> u64 {
        u64::from(self.seconds) << 32 | u64::from(self.increment)
    }

    pub(crate) fn from_at(at: u64) -> Self {
        // The upper and the lower half.
        Self { seconds: (at >> 32) as u32, increment: at as u32 }
    }
}

impl From<Timestamp> for mongodb::bson::Timestamp {
    fn from(t: Timestamp) -> Self {
        Self { time: t.seconds, increment: t.increment }
    }
}

/// Bytes that are no BSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the database's answer is no valid BSON")]
pub(crate) struct Malformed;

/// Content of a document or an array, without its length and its end mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Document<'a>(&'a [u8]);

impl<'a> Document<'a> {
    /// Parses the frame of a whole document. The content is parsed only by [`Document::elements`].
    ///
    /// # Errors
    /// Fails if the length is not that of the bytes.
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor(bytes);
        let document = cursor.document()?;
        if cursor.0.is_empty() { Ok(document) } else { Err(Malformed) }
    }

    /// Returns the original bytes, with length and end mark.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        // No document of a server is longer than 48 MB.
        let length = i32::try_from(self.0.len() + 5).unwrap_or(i32::MAX);
        [&length.to_le_bytes()[..], self.0, &[0]].concat()
    }

    /// Returns names and values in order; ends after the first error.
    pub(crate) fn elements(self) -> Elements<'a> {
        Elements { rest: Cursor(self.0) }
    }

    pub(crate) fn get(self, name: &str) -> Option<Value<'a>> {
        self.elements()
            .map_while(Result::ok)
            .find(|(n, _)| *n == name.as_bytes())
            .map(|(_, value)| value)
    }

    /// Returns the value of the first field with one of these names, and parses this level to its
    /// end.
    ///
    /// # Errors
    /// Fails if this level is malformed, before or after the value.
    pub(crate) fn checked(self, names: &[&str]) -> Result<Option<Value<'a>>, Malformed> {
        let mut found = None;
        for element in self.elements() {
            let (name, value) = element?;
            if found.is_none() && names.iter().any(|n| n.as_bytes() == name) {
                found = Some(value);
            }
        }
        Ok(found)
    }

    /// Parses all levels.
    ///
    /// # Errors
    /// Fails if any of them is malformed.
    pub(crate) fn check(self) -> Result<(), Malformed> {
        // Not recursive: the server determines the depth.
        let mut unchecked = vec![self];
        while let Some(document) = unchecked.pop() {
            for element in document.elements() {
                match element? {
                    (_, Value::Document(inner) | Value::Array(inner)) => unchecked.push(inner),
                    (_, Value::CodeWithScope { scope, .. }) => unchecked.push(scope),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    pub(crate) fn document(self, name: &str) -> Option<Document<'a>> {
        match self.get(name)? {
            Value::Document(document) => Some(document),
            _ => None,
        }
    }

    pub(crate) fn text(self, name: &str) -> Option<&'a str> {
        match self.get(name)? {
            Value::Text(text) => std::str::from_utf8(text).ok(),
            _ => None,
        }
    }

    pub(crate) fn timestamp(self, name: &str) -> Option<Timestamp> {
        match self.get(name)? {
            Value::Timestamp(timestamp) => Some(timestamp),
            _ => None,
        }
    }
}

/// Documents of the batch in a cursor's reply.
pub(crate) struct Batch<'a> {
    elements: Elements<'a>,
}

impl<'a> Batch<'a> {
    /// Finds the batch of a reply. The first level of the reply is parsed to its end, because
    /// [`Document::get`] does not distinguish a malformed reply from an absent field.
    ///
    /// # Errors
    /// Fails if the reply is malformed or contains no batch.
    pub(crate) fn of(reply: Document<'a>) -> Result<Self, Malformed> {
        let Some(Value::Document(cursor)) = reply.checked(&["cursor"])? else {
            return Err(Malformed);
        };
        match cursor.checked(&["firstBatch", "nextBatch"])? {
            Some(Value::Array(batch)) => Ok(Self { elements: batch.elements() }),
            _ => Err(Malformed),
        }
    }
}

impl<'a> Iterator for Batch<'a> {
    type Item = Result<Document<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(match self.elements.next()? {
            Ok((_, Value::Document(document))) => Ok(document),
            Ok(_) | Err(Malformed) => Err(Malformed),
        })
    }
}

pub(crate) struct Elements<'a> {
    rest: Cursor<'a>,
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<(&'a [u8], Value<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.0.is_empty() {
            return None;
        }
        let element = self.rest.element();
        if element.is_err() {
            self.rest = Cursor(&[]);
        }
        Some(element)
    }
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (front, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(front)
    }

    fn chunk<const N: usize>(&mut self) -> Result<&'a [u8; N], Malformed> {
        let (front, rest) = self.0.split_first_chunk::<N>().ok_or(Malformed)?;
        self.0 = rest;
        Ok(front)
    }

    fn length(&mut self) -> Result<usize, Malformed> {
        usize::try_from(i32::from_le_bytes(*self.chunk()?)).map_err(|_| Malformed)
    }

    /// Takes bytes up to a NUL, and the NUL.
    fn c_string(&mut self) -> Result<&'a [u8], Malformed> {
        let end = self.0.iter().position(|b| *b == 0).ok_or(Malformed)?;
        let text = self.take(end)?;
        self.take(1)?;
        Ok(text)
    }

    fn text(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.length()?.checked_sub(1).ok_or(Malformed)?;
        let text = self.take(length)?;
        if *self.chunk::<1>()? == [0] { Ok(text) } else { Err(Malformed) }
    }

    fn document(&mut self) -> Result<Document<'a>, Malformed> {
        // The length counts itself and the end mark.
        let inner = self.length()?.checked_sub(5).ok_or(Malformed)?;
        let inner = self.take(inner)?;
        if *self.chunk::<1>()? == [0] { Ok(Document(inner)) } else { Err(Malformed) }
    }

    fn element(&mut self) -> Result<(&'a [u8], Value<'a>), Malformed> {
        let [kind] = *self.chunk()?;
        let name = self.c_string()?;
        Ok((name, self.value(kind)?))
    }

    fn value(&mut self, kind: u8) -> Result<Value<'a>, Malformed> {
        Ok(match kind {
            0x01 => Value::Double(f64::from_le_bytes(*self.chunk()?)),
            0x02 => Value::Text(self.text()?),
            0x03 => Value::Document(self.document()?),
            0x04 => Value::Array(self.document()?),
            0x05 => self.binary()?,
            0x06 => Value::Undefined,
            0x07 => Value::ObjectId(self.chunk()?),
            0x08 => Value::Bool(*self.chunk()? != [0]),
            0x09 => Value::Date(i64::from_le_bytes(*self.chunk()?)),
            0x0a => Value::Null,
            0x0b => Value::Regex { pattern: self.c_string()?, options: self.c_string()? },
            0x0c => Value::DbPointer { namespace: self.text()?, id: self.chunk()? },
            0x0d => Value::Code(self.text()?),
            0x0e => Value::Symbol(self.text()?),
            0x0f => {
                let _length = self.length()?;
                Value::CodeWithScope { code: self.text()?, scope: self.document()? }
            }
            0x10 => Value::Int32(i32::from_le_bytes(*self.chunk()?)),
            0x11 => {
                let increment = self.chunk()?;
                let seconds = self.chunk()?;
                Value::Timestamp(Timestamp {
                    seconds: u32::from_le_bytes(*seconds),
                    increment: u32::from_le_bytes(*increment),
                })
            }
            0x12 => Value::Int64(i64::from_le_bytes(*self.chunk()?)),
            0x13 => Value::Decimal128(self.chunk()?),
            0xff => Value::MinKey,
            0x7f => Value::MaxKey,
            _ => return Err(Malformed),
        })
    }

    fn binary(&mut self) -> Result<Value<'a>, Malformed> {
        let length = self.length()?;
        let [subtype] = *self.chunk()?;
        let mut bytes = self.take(length)?;
        if subtype == BINARY_OLD {
            // This form has its length twice.
            let (inner, rest) = bytes.split_first_chunk::<4>().ok_or(Malformed)?;
            if usize::try_from(i32::from_le_bytes(*inner)) != Ok(rest.len()) {
                return Err(Malformed);
            }
            bytes = rest;
        }
        Ok(Value::Binary { subtype, bytes })
    }
}

/// Bytes of any kind.
pub(crate) const BINARY_GENERIC: u8 = 0;
const BINARY_OLD: u8 = 2;
/// A UUID in the order of RFC 9562.
pub(crate) const BINARY_UUID: u8 = 4;

#[cfg(test)]
mod tests {
    use mongodb::bson::{doc, serialize_to_vec};

    use super::*;

    #[test]
    fn values_are_found_by_name() {
        let bytes = serialize_to_vec(&doc! {
            "a": 7_i32,
            "b": { "t": mongodb::bson::Timestamp { time: 5, increment: 9 } },
            "c": "x",
            "d": 2.0,
        })
        .unwrap();
        let document = Document::new(&bytes).unwrap();
        assert_eq!(
            (document.get("a"), document.get("d")),
            (Some(Value::Int32(7)), Some(Value::Double(2.0)))
        );
        assert_eq!(document.document("b").unwrap().timestamp("t").unwrap().at(), 5 << 32 | 9);
        assert_eq!(
            (document.text("c"), document.text("a"), document.get("z")),
            (Some("x"), None, None)
        );
        assert_eq!(Timestamp::from_at(5 << 32 | 9), Timestamp { seconds: 5, increment: 9 });
    }

    #[test]
    fn a_wrong_length_is_an_error() {
        let bytes = serialize_to_vec(&doc! { "a": "text" }).unwrap();
        assert!(
            Document::new(&bytes[..bytes.len() - 1]).is_err()
                && Document::new(&[&bytes[..], &[0]].concat()).is_err()
        );
        assert!(Document::new(&[]).is_err() && Document::new(&[4, 0, 0, 0]).is_err());
        let mut broken = bytes;
        broken[7] = 200;
        let elements: Vec<_> = Document::new(&broken).unwrap().elements().collect();
        assert_eq!(elements, [Err(Malformed)]);
    }

    /// Returns a reply with this batch. The elements of an array have their indexes as names.
    fn reply(batch: mongodb::bson::Bson) -> Vec<u8> {
        serialize_to_vec(&doc! { "cursor": { "id": 0_i64, "firstBatch": batch }, "ok": 1.0 })
            .unwrap()
    }

    /// Returns the first field of each document up to an error, and whether there was one.
    fn documents(reply: &[u8]) -> (Vec<Value<'_>>, bool) {
        let mut values = Vec::new();
        let Ok(batch) = Document::new(reply).and_then(Batch::of) else { return (values, true) };
        for document in batch {
            match document {
                Ok(document) => values.push(document.get("a").unwrap()),
                Err(Malformed) => return (values, true),
            }
        }
        (values, false)
    }

    #[test]
    fn a_batch_ends_with_an_error_at_what_is_no_document() {
        let [a, b] = [1, 2].map(|n| doc! { "a": n });
        let whole = reply(mongodb::bson::bson!([a.clone(), b.clone()]));
        let values = vec![Value::Int32(1), Value::Int32(2)];
        assert_eq!(documents(&whole), (values, false));
        assert_eq!(
            documents(&reply(mongodb::bson::bson!([a.clone(), 7, b]))),
            (vec![Value::Int32(1)], true)
        );
        assert_eq!(documents(&reply(mongodb::bson::bson!([]))), (vec![], false));
        for no_batch in [mongodb::bson::bson!(7), mongodb::bson::bson!({ "0": a })] {
            assert_eq!(documents(&reply(no_batch)), (vec![], true));
        }
        // The type of the second document in the array.
        let second = whole.windows(3).position(|w| w == b"\x031\0").unwrap();
        let mut malformed = whole.clone();
        malformed[second] = 0x66;
        assert_eq!(documents(&malformed), (vec![Value::Int32(1)], true));
        // The type of `ok`, after the batch.
        let ok = whole.windows(4).position(|w| w == b"\x01ok\0").unwrap();
        let mut malformed = whole;
        malformed[ok] = 0x66;
        assert_eq!(documents(&malformed), (vec![], true));
    }

    #[test]
    fn a_check_covers_all_levels() {
        let bytes = serialize_to_vec(&doc! { "a": { "b": [1, { "c": "text" }] }, "d": 1 }).unwrap();
        assert_eq!(Document::new(&bytes).unwrap().check(), Ok(()));
        let mut malformed = bytes;
        let inner = malformed.windows(3).position(|w| w == b"\x02c\0").unwrap();
        malformed[inner] = 0x66;
        let document = Document::new(&malformed).unwrap();
        assert_eq!((document.get("d"), document.check()), (Some(Value::Int32(1)), Err(Malformed)));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic(mut bytes: Vec<u8>, kinds in proptest::collection::vec(0_u8..20, 0..8)) {
            // A frame around the bytes, so that the content is parsed at all.
            for (i, kind) in kinds.iter().enumerate() {
                if let Some(byte) = bytes.get_mut(i * 7) {
                    *byte = *kind;
                }
            }
            let framed = [&(bytes.len() as i32 + 5).to_le_bytes()[..], &bytes, &[0]].concat();
            let document = Document::new(&framed).unwrap();
            let elements = document.elements().count();
            proptest::prop_assert!(elements <= bytes.len());
            if document.check().is_ok() {
                proptest::prop_assert!(document.elements().all(|element| element.is_ok()));
            }
        }
    }
}
