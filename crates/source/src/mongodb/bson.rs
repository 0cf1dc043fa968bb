//! BSON as it lies in the server's answers: a walk over the bytes that copies nothing, never panics and takes texts as
//! bytes, for old servers and drivers let texts through that are not UTF-8.
//! Source: the BSON specification, version 1.1.

/// One value.
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

/// MongoDB's own time: seconds, and a number within the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timestamp {
    pub(crate) seconds: u32,
    pub(crate) increment: u32,
}

impl Timestamp {
    /// As a position has it.
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

/// A document or an array, without its length and its end mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Document<'a>(&'a [u8]);

impl<'a> Document<'a> {
    /// A whole document.
    ///
    /// # Errors
    /// When the length is not that of the bytes. What is inside is looked at by whoever walks there.
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor(bytes);
        let document = cursor.document()?;
        if cursor.0.is_empty() { Ok(document) } else { Err(Malformed) }
    }

    /// As it was, with its length and its end mark.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        // No document of a server is longer than 48 MB.
        let length = i32::try_from(self.0.len() + 5).unwrap_or(i32::MAX);
        [&length.to_le_bytes()[..], self.0, &[0]].concat()
    }

    /// Names and values, in order. Ends after the first error.
    pub(crate) fn elements(self) -> Elements<'a> {
        Elements { rest: Cursor(self.0) }
    }

    /// The first value of this name.
    pub(crate) fn get(self, name: &str) -> Option<Value<'a>> {
        self.elements().map_while(Result::ok).find(|(n, _)| *n == name.as_bytes()).map(|(_, value)| value)
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

/// See [`Document::elements`].
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

    /// Up to a NUL, which is taken too.
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
                let (increment, seconds) = (self.chunk()?, self.chunk()?);
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
            // That form has its length twice.
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
        let bytes = serialize_to_vec(
            &doc! { "a": 7_i32, "b": { "t": mongodb::bson::Timestamp { time: 5, increment: 9 } }, "c": "x", "d": 2.0},
        )
        .unwrap();
        let document = Document::new(&bytes).unwrap();
        assert_eq!((document.get("a"), document.get("d")), (Some(Value::Int32(7)), Some(Value::Double(2.0))));
        assert_eq!(document.document("b").unwrap().timestamp("t").unwrap().at(), 5 << 32 | 9);
        assert_eq!((document.text("c"), document.text("a"), document.get("z")), (Some("x"), None, None));
        assert_eq!(Timestamp::from_at(5 << 32 | 9), Timestamp { seconds: 5, increment: 9 });
    }

    #[test]
    fn a_wrong_length_is_told() {
        let bytes = serialize_to_vec(&doc! { "a": "text" }).unwrap();
        assert!(
            Document::new(&bytes[..bytes.len() - 1]).is_err() && Document::new(&[&bytes[..], &[0]].concat()).is_err()
        );
        assert!(Document::new(&[]).is_err() && Document::new(&[4, 0, 0, 0]).is_err());
        let mut broken = bytes;
        broken[7] = 200;
        let walked: Vec<_> = Document::new(&broken).unwrap().elements().collect();
        assert_eq!(walked, [Err(Malformed)]);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic(mut bytes: Vec<u8>, kinds in proptest::collection::vec(0_u8..20, 0..8)) {
            // A frame around it, so that the inside is walked at all.
            for (i, kind) in kinds.iter().enumerate() {
                if let Some(byte) = bytes.get_mut(i * 7) {
                    *byte = *kind;
                }
            }
            let framed = [&(bytes.len() as i32 + 5).to_le_bytes()[..], &bytes, &[0]].concat();
            let walked = Document::new(&framed).unwrap().elements().count();
            proptest::prop_assert!(walked <= bytes.len());
        }
    }
}
