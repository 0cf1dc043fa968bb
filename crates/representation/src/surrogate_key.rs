//! Surrogate keys: a header field by which a cache in front finds the answers to purge. Each answer
//! has two keys, that of its collection and that of its record.
//!
//! An answer without them must not be kept, because nothing would purge it: it is sent with
//! `no-store` ([`Sharing`]).

use std::fmt;

use hotrow_config::purge::{KeyField, Surrogates};
use hotrow_types::key::{Key, KeySchema};

/// Longest key of a record: caches refuse longer ones.
pub(crate) const KEY_BYTES_MAX: usize = 1_024;

/// What caches in front may do with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// What `cache_control` says.
    AsConfigured,
    /// The same, until they are asked to purge it.
    UntilPurged,
    /// Nothing.
    Forbidden,
}

/// Surrogate keys of a collection.
#[derive(Clone, Debug)]
pub struct SurrogateKeys {
    field: KeyField,
    /// Name of the collection, which is its key.
    collection: Box<str>,
    schema: KeySchema,
    /// Only answers for the canonical URL have keys.
    needs_canonical_url: bool,
}

/// Writes ASCII to bytes.
struct Ascii<'a>(&'a mut Vec<u8>);

impl fmt::Write for Ascii<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// Compares what is written with a text, of which it keeps the rest.
struct Rest<'a>(&'a str);

impl fmt::Write for Rest<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 = self.0.strip_prefix(text).ok_or(fmt::Error)?;
        Ok(())
    }
}

impl SurrogateKeys {
    /// Creates the keys of the collection of that name.
    #[must_use]
    pub fn new(name: &str, schema: &KeySchema, settings: Surrogates) -> Self {
        let Surrogates { field, needs_canonical_url } = settings;
        Self { field, collection: name.into(), schema: schema.clone(), needs_canonical_url }
    }

    /// Returns the name of the header field.
    #[inline]
    pub fn field(&self) -> &'static str {
        self.field.name()
    }

    /// Returns the key of all its answers.
    #[inline]
    pub fn of_collection(&self) -> &str {
        &self.collection
    }

    /// Appends the key of a record. `None`: it has none, and may have been appended in part.
    #[inline]
    pub fn write_record(&self, encoded_key: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let begin = out.len();
        out.extend_from_slice(self.collection.as_bytes());
        out.push(b'/');
        let id = out.len();
        self.schema.write_id(encoded_key, &mut Ascii(out))?;
        if self.field == KeyField::CacheTag {
            // Between the columns of a key; those within a column are percent-encoded.
            out[id..].iter_mut().filter(|byte| **byte == b',').for_each(|byte| *byte = b';');
        }
        (out.len() - begin <= KEY_BYTES_MAX).then_some(())
    }

    /// Appends the value of the header field. `None`: the record has no key.
    #[inline]
    pub fn write_value(&self, encoded_key: &[u8], out: &mut Vec<u8>) -> Option<()> {
        out.extend_from_slice(self.collection.as_bytes());
        // ASCII.
        out.push(self.field.separator() as u8);
        self.write_record(encoded_key, out)
    }

    /// Returns the path of a record, as a request names it canonically.
    pub fn path_of(&self, encoded_key: &[u8]) -> Option<String> {
        let mut path = format!("/{}/", self.collection);
        self.schema.write_id(encoded_key, &mut path)?;
        Some(path)
    }

    /// Returns whether only answers for the canonical URL have keys.
    #[inline]
    pub fn needs_canonical_url(&self) -> bool {
        self.needs_canonical_url
    }

    /// Returns whether `text` is the id of `key` as a canonical URL has it.
    #[inline]
    pub fn is_canonical(&self, key: &Key, text: &str) -> bool {
        let mut rest = Rest(text);
        self.schema.write_id(key.as_bytes(), &mut rest).is_some() && rest.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use hotrow_types::key::{Collation, CollectionId, KeyType};

    use super::*;

    fn keys(types: &[KeyType], field: KeyField) -> SurrogateKeys {
        let schema = KeySchema::new(CollectionId(3), types.to_vec());
        SurrogateKeys::new("orders", &schema, Surrogates { field, needs_canonical_url: true })
    }

    fn value(keys: &SurrogateKeys, id: &str) -> Option<String> {
        let key = keys.schema.parse_url(id).unwrap();
        let mut value = Vec::new();
        keys.write_value(key.as_bytes(), &mut value)?;
        Some(String::from_utf8(value).unwrap())
    }

    #[test]
    fn an_answer_names_its_collection_and_its_record() {
        let text = KeyType::Text(Collation::Binary);
        let blank = keys(&[KeyType::Integer, text], KeyField::SurrogateKey);
        assert_eq!(value(&blank, "7,a%20b").as_deref(), Some("orders orders/7,a%20b"));
        let comma = keys(&[KeyType::Integer, text], KeyField::CacheTag);
        assert_eq!(value(&comma, "7,a%2Cb").as_deref(), Some("orders,orders/7;a%2Cb"));
        let long = "x".repeat(KEY_BYTES_MAX);
        assert_eq!(value(&keys(&[text], KeyField::SurrogateKey), &long), None);
        let path = blank.path_of(blank.schema.parse_url("7,a%20b").unwrap().as_bytes());
        assert_eq!(path.as_deref(), Some("/orders/7,a%20b"));
    }

    #[test]
    fn one_spelling_of_an_id_is_canonical() {
        let keys = keys(&[KeyType::Text(Collation::Binary)], KeyField::SurrogateKey);
        let is_canonical = |id: &str| keys.is_canonical(&keys.schema.parse_url(id).unwrap(), id);
        assert!(is_canonical("a%2Fb"));
        assert!(!is_canonical("a%2fb") && !is_canonical("%61%2Fb"));
        let key = keys.schema.parse_url("ab").unwrap();
        assert!(!keys.is_canonical(&key, "a") && !keys.is_canonical(&key, "abc"));
    }
}
