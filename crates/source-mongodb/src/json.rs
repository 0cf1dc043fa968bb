//! Documents as JSON, in the plain form and in relaxed Extended JSON.
//!
//! Plain form:
//! - double: a number with a point or an exponent; `"NaN"`, `"Infinity"`, `"-Infinity"`
//! - 32-bit and 64-bit integer: a number
//! - Decimal128: a number with its own digits; `"NaN"`, `"Infinity"`, `"-Infinity"`
//! - date: `"2024-02-29T12:00:00.000Z"`; years outside 0 to 9999 with a sign and at least six
//!   digits
//! - ObjectId: 24 hexadecimal digits
//! - binary: base64; subtype 4 as a UUID
//! - timestamp: `{"t":1,"i":2}`
//! - regular expression: `"/pattern/options"`
//! - code, symbol: the text
//! - code with scope: `{"code":"…","scope":{…}}`
//! - DBPointer: `{"ref":"…","id":"…"}`
//! - MinKey, MaxKey: `"MinKey"`, `"MaxKey"`
//! - undefined: null
//!
//! Relaxed Extended JSON (source: MongoDB's specification "Extended JSON" v2):
//! - double: as in the plain form, but `{"$numberDouble":"NaN"}`
//! - 32-bit and 64-bit integer: a number
//! - Decimal128: `{"$numberDecimal":"…"}`
//! - date: `{"$date":"…"}` from 1970 to 9999, otherwise `{"$date":{"$numberLong":"…"}}`
//! - ObjectId: `{"$oid":"…"}`
//! - binary: `{"$binary":{"base64":"…","subType":"00"}}`
//! - timestamp: `{"$timestamp":{"t":1,"i":2}}`
//! - regular expression: `{"$regularExpression":{"pattern":"…","options":"…"}}`
//! - code, symbol: `{"$code":"…"}`, `{"$symbol":"…"}`
//! - code with scope: `{"$code":"…","$scope":{…}}`
//! - DBPointer: `{"$dbPointer":{"$ref":"…","$id":{"$oid":"…"}}}`
//! - MinKey, MaxKey: `{"$minKey":1}`, `{"$maxKey":1}`
//! - undefined: `{"$undefined":true}`
//!
//! In a text, bytes that are not UTF-8 become U+FFFD. Fields are written in the document's order; a
//! repeated name is written as often as it is stored.
//!
//! Reference `databases`: Values of MongoDB
//!
//! `json = "plain"` (default) as below, or `"relaxed"`: MongoDB's relaxed Extended JSON v2.
//!
//! Invalid UTF-8 becomes U+FFFD. A document nested more than 100 levels deep is not served.
//!
//! - integers, Decimal128, double: number; `"NaN"`, `"Infinity"`, `"-Infinity"`.
//! - date: `"2024-02-29T13:13:15.500Z"`; years outside 0 to 9999 with a sign.
//! - ObjectId: 24 hexadecimal digits.
//! - binary: base64; subtype 4 as a UUID.
//! - timestamp, DBPointer: `{"t":1,"i":2}`, `{"ref":"…","id":"…"}`.
//! - regular expression: `"/pattern/options"`.
//! - code, symbol, MinKey, MaxKey: text.

mod scalar;

use super::bson::{Document, Malformed, Value};
use super::config::JsonForm;
use hotrow_source::json::{BODY_BYTES_MAX, write_real, write_text};

/// Maximum nesting that is written; MongoDB's own limit for stored documents.
const DEPTH_MAX: usize = 100;

/// Reason for which a document cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JsonError {
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("the document is nested more than {DEPTH_MAX} levels deep")]
    TooDeep,
    #[error("the record is larger than {BODY_BYTES_MAX} bytes as JSON")]
    TooLarge,
}

type Written = Result<(), JsonError>;

/// Fields of a document to write, and their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fields {
    /// All received fields in the document's order, without these, which are received for another
    /// purpose.
    StoredOrder { without: Vec<String> },
    /// These fields in this order; absent ones are omitted.
    InOrder(Vec<String>),
}

/// Writes a whole document.
///
/// # Errors
/// See [`JsonError`]; the bytes written so far are of no use then.
pub(crate) fn write_document(
    out: &mut Vec<u8>,
    form: JsonForm,
    fields: &Fields,
    document: Document<'_>,
) -> Written {
    let mut writer = Writer { out, form };
    match fields {
        Fields::StoredOrder { without } => {
            let is_served = |element: &Result<(&[u8], Value<'_>), Malformed>| match element {
                Ok((name, _)) => !without.iter().any(|other| other.as_bytes() == *name),
                Err(Malformed) => true,
            };
            writer.object(document.elements().filter(is_served), 0)
        }
        Fields::InOrder(names) => {
            let mut found = vec![None; names.len()];
            for element in document.elements() {
                let (name, value) = element?;
                if let Some(index) = names.iter().position(|n| n.as_bytes() == name) {
                    found[index].get_or_insert((name, value));
                }
            }
            writer.object(found.into_iter().flatten().map(Ok), 0)
        }
    }
}

/// Writes the tenant of a document, the first field of that name; without one, null.
///
/// # Errors
/// See [`JsonError`].
pub(crate) fn write_tenant(
    out: &mut Vec<u8>,
    form: JsonForm,
    field: &str,
    document: Document<'_>,
) -> Written {
    let value = document.checked(&[field])?.unwrap_or(Value::Null);
    Writer { out, form }.value(value, 1)
}

/// Writes one field of a document, as [`write_document`] writes it.
///
/// # Errors
/// See [`JsonError`].
pub(crate) fn write_member(
    out: &mut Vec<u8>,
    form: JsonForm,
    name: &str,
    value: Value<'_>,
) -> Written {
    Writer { out, form }.member(name.as_bytes(), value, 1)
}

struct Writer<'a> {
    out: &'a mut Vec<u8>,
    form: JsonForm,
}

impl Writer<'_> {
    fn object<'d>(
        &mut self,
        elements: impl Iterator<Item = Result<(&'d [u8], Value<'d>), Malformed>>,
        depth: usize,
    ) -> Written {
        self.out.push(b'{');
        for (i, element) in elements.enumerate() {
            let (name, value) = element?;
            if i > 0 {
                self.out.push(b',');
            }
            self.member(name, value, depth + 1)?;
        }
        self.out.push(b'}');
        Ok(())
    }

    fn member(&mut self, name: &[u8], value: Value<'_>, depth: usize) -> Written {
        write_text(self.out, name);
        self.out.push(b':');
        self.value(value, depth)
    }

    fn array(&mut self, array: Document<'_>, depth: usize) -> Written {
        self.out.push(b'[');
        for (i, element) in array.elements().enumerate() {
            let (_, value) = element?;
            if i > 0 {
                self.out.push(b',');
            }
            self.value(value, depth + 1)?;
        }
        self.out.push(b']');
        Ok(())
    }

    fn value(&mut self, value: Value<'_>, depth: usize) -> Written {
        if depth > DEPTH_MAX {
            return Err(JsonError::TooDeep);
        }
        if self.out.len() > BODY_BYTES_MAX {
            return Err(JsonError::TooLarge);
        }
        match value {
            Value::Text(text) => write_text(self.out, text),
            Value::Document(document) => self.object(document.elements(), depth)?,
            Value::Array(array) => self.array(array, depth)?,
            Value::Null => self.out.extend_from_slice(b"null"),
            Value::Bool(true) => self.out.extend_from_slice(b"true"),
            Value::Bool(false) => self.out.extend_from_slice(b"false"),
            Value::Int32(v) => self.integer(v.into()),
            Value::Int64(v) => self.integer(v),
            Value::Double(v) if v.is_finite() => write_real(self.out, v),
            Value::CodeWithScope { code, scope } => self.code_with_scope(code, scope, depth)?,
            other => match self.form {
                JsonForm::Plain => scalar::plain(self.out, other),
                JsonForm::RelaxedExtended => scalar::extended(self.out, other),
            },
        }
        if self.out.len() > BODY_BYTES_MAX { Err(JsonError::TooLarge) } else { Ok(()) }
    }

    fn integer(&mut self, v: i64) {
        self.out.extend_from_slice(itoa::Buffer::new().format(v).as_bytes());
    }

    fn code_with_scope(&mut self, code: &[u8], scope: Document<'_>, depth: usize) -> Written {
        let (first, second): (&[u8], &[u8]) = match self.form {
            JsonForm::Plain => (b"{\"code\":", b",\"scope\":"),
            JsonForm::RelaxedExtended => (b"{\"$code\":", b",\"$scope\":"),
        };
        self.out.extend_from_slice(first);
        write_text(self.out, code);
        self.out.extend_from_slice(second);
        self.value(Value::Document(scope), depth + 1)?;
        self.out.push(b'}');
        Ok(())
    }
}

#[cfg(test)]
mod tests;
