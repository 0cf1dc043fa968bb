//! Ids of keys: the URL form of a key that is in memory.

use std::borrow::Cow;
use std::fmt::{self, Write};

use super::{CollectionId, Key, KeyPart, KeySchema, KeyType, Parts, Repr, UNSIGNED_BYTES};

impl Key {
    /// Returns the key with the same columns in another collection, as a source numbers them that
    /// knows only some.
    #[must_use]
    pub fn in_collection(&self, CollectionId(id): CollectionId) -> Self {
        let mut key = self.clone();
        let bytes = match &mut key.0 {
            Repr::Inline { buf, .. } => &mut buf[..],
            Repr::Heap(bytes) => &mut bytes[..],
        };
        // Every key begins with the number of its collection.
        bytes[..2].copy_from_slice(&id.to_be_bytes());
        key
    }
}

impl KeySchema {
    /// Returns an id that [`KeySchema::parse_url`] reads as this encoded key; `None` if the key is
    /// not one of this schema.
    pub fn id_of(&self, encoded_key: &[u8]) -> Option<String> {
        let mut id = String::new();
        self.write_id(encoded_key, &mut id)?;
        Some(id)
    }

    /// Appends the same id to `out`. Where it returns `None`, a part of it may have been appended.
    pub fn write_id(&self, encoded_key: &[u8], out: &mut impl Write) -> Option<()> {
        let (collection, columns) = encoded_key.split_first_chunk::<2>()?;
        if u16::from_be_bytes(*collection) != self.collection.0 {
            return None;
        }
        let mut parts = Parts { rest: columns };
        for (i, ty) in self.types.iter().enumerate() {
            if i > 0 {
                out.write_char(',').ok()?;
            }
            write_part(out, *ty, parts.next()?)?;
        }
        parts.next().is_none().then_some(())
    }
}

/// Appends the text of one column, percent-encoded.
fn write_part(id: &mut impl Write, ty: KeyType, part: KeyPart<'_>) -> Option<()> {
    match (ty, part) {
        (KeyType::Integer, KeyPart::Integer(integer)) => write!(id, "{integer}").ok()?,
        (KeyType::Unsigned, KeyPart::Bytes(bytes)) => {
            let bytes = bytes.first_chunk::<UNSIGNED_BYTES>()?;
            write!(id, "{}", u64::from_be_bytes(*bytes)).ok()?;
        }
        (KeyType::Text(_) | KeyType::Canonical(_), KeyPart::Text(text)) => {
            write_encoded(id, text).ok()?;
        }
        (KeyType::Uuid | KeyType::ObjectId | KeyType::Bytes, KeyPart::Bytes(bytes)) => {
            bytes.iter().try_for_each(|byte| write!(id, "{byte:02x}")).ok()?;
        }
        _ => return None,
    }
    Some(())
}

/// Encodes a text as one value of an id: everything but the unreserved characters of RFC 3986,
/// section 2.3, so that a comma is data.
pub fn percent_encode(text: &str) -> Cow<'_, str> {
    if text.bytes().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut encoded = String::with_capacity(text.len() + 8);
    // Writing to a `String` cannot fail.
    _ = write_encoded(&mut encoded, text);
    Cow::Owned(encoded)
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

fn write_encoded(out: &mut impl Write, text: &str) -> fmt::Result {
    for byte in text.bytes() {
        if is_plain(byte) {
            out.write_char(char::from(byte))?;
        } else {
            write!(out, "%{byte:02X}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{CanonicalForm, Collation, CollectionId, percent_decode};
    use super::*;

    fn schema(types: &[KeyType]) -> KeySchema {
        KeySchema::new(CollectionId(7), types.to_vec())
    }

    #[test]
    fn every_type_has_an_id_that_names_the_same_key() {
        let text = KeyType::Text(Collation::Binary);
        for (types, id) in [
            (vec![KeyType::Integer], "-9223372036854775808"),
            (vec![KeyType::Unsigned], "18446744073709551615"),
            (vec![text], "a%2Fb%2C%20%25%C3%A4"),
            (vec![KeyType::Text(Collation::RightTrim)], "abc"),
            (vec![KeyType::Uuid], "0123456789abcdef0123456789abcdef"),
            (vec![KeyType::ObjectId], "0123456789abcdef01234567"),
            (vec![KeyType::Bytes], "00ff"),
            (vec![KeyType::Canonical(CanonicalForm::Date)], "2024-02-29"),
            (vec![KeyType::Canonical(CanonicalForm::TimestampUtc)], "2024-02-29T12%3A00%3A00.5Z"),
            (vec![KeyType::Integer, text], "7,x%2Cy"),
        ] {
            let schema = schema(&types);
            let key = schema.parse_url(id).unwrap();
            assert_eq!(schema.id_of(key.as_bytes()).as_deref(), Some(id));
        }
    }

    #[test]
    fn only_unreserved_characters_are_plain() {
        assert_eq!(percent_encode("a-b_c.d~9"), "a-b_c.d~9");
        assert_eq!(percent_encode("a/b,c ü"), "a%2Fb%2Cc%20%C3%BC");
        assert_eq!(percent_decode(&percent_encode("a%2F")).unwrap(), "a%2F");
    }

    #[test]
    fn keys_of_other_schemas_have_no_id() {
        let integers = schema(&[KeyType::Integer]);
        let key = integers.parse_url("7").unwrap();
        assert_eq!(schema(&[KeyType::Uuid]).id_of(key.as_bytes()), None);
        assert_eq!(schema(&[KeyType::Integer; 2]).id_of(key.as_bytes()), None);
        assert_eq!(
            KeySchema::new(CollectionId(8), vec![KeyType::Integer]).id_of(key.as_bytes()),
            None
        );
        let pair = schema(&[KeyType::Integer; 2]).parse_url("7,8").unwrap();
        assert_eq!(integers.id_of(pair.as_bytes()), None);
        assert_eq!(integers.id_of(&[7]), None);
    }

    proptest! {
        #[test]
        fn ids_of_texts_are_parsed_back(first in "[^\0]{0,20}", second in any::<i64>()) {
            let schema = schema(&[KeyType::Text(Collation::Binary), KeyType::Integer]);
            let key = schema.key(&[KeyPart::Text(&first), KeyPart::Integer(second)]).unwrap();
            let id = schema.id_of(key.as_bytes()).unwrap();
            prop_assert_eq!(schema.parse_url(&id).unwrap(), key);
        }
    }
}
