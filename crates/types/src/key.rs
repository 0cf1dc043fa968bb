//! Keys: the names of records, in memory and in URLs.
//!
//! [`KeySchema`] alone makes keys, from a URL, a batch or the change feed. Invalidation depends on
//! it: all spellings of one row's key must become the same bytes.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::num::NonZeroU8;

mod canonical;
mod error;
mod id;
mod parse;

pub use self::canonical::CanonicalForm;
pub use self::error::{KEY_BYTES_MAX, KeyError};
pub use self::id::percent_encode;
pub use self::parse::percent_decode;
use self::parse::{parse_hex, parse_integer, parse_unsigned, parse_uuid};

/// Most columns that a composite key may have.
pub const KEY_PARTS_MAX: usize = 4;
const INLINE: usize = 22;
const OBJECT_ID_BYTES: usize = 12;
const UNSIGNED_BYTES: usize = 8;
/// Collection, tag and value of a key of one integer.
const INTEGER_KEY_BYTES: usize = 2 + 1 + 8;
const INTEGER_KEY_LEN: NonZeroU8 =
    NonZeroU8::new(INTEGER_KEY_BYTES as u8).expect("it begins with its collection");

/// The number of a collection within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CollectionId(pub u16);

/// One column's value in a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPart<'a> {
    /// A signed 64-bit integer.
    Integer(i64),
    /// Valid UTF-8 without NUL.
    Text(&'a str),
    /// Raw bytes; a UUID is 16 of them, an ObjectId 12, an unsigned integer 8 in big-endian order.
    Bytes(&'a [u8]),
}

/// Comparison of a text key in the database; the cache must agree with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collation {
    /// Byte by byte.
    Binary,
    /// ASCII letters compared without case (SQLite's `NOCASE`).
    NoCaseAscii,
    /// Trailing spaces ignored (SQLite's `RTRIM`, PostgreSQL's `char(n)`).
    RightTrim,
    /// By rules of the database alone: texts that differ may name one row, and the feed reports the
    /// stored one.
    Database,
}

/// Type of one key column: decides which URL texts can name a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyType {
    /// Decimal, no sign but `-`, no leading zeros: each integer has one spelling.
    Integer,
    /// Decimal, 0 to 2^64 - 1, no sign, no leading zeros; 8 bytes, the highest first.
    Unsigned,
    /// Any UTF-8 text without NUL.
    Text(Collation),
    /// Hyphenated or plain hexadecimal, any case; 16 bytes in the database.
    Uuid,
    /// 24 hexadecimal digits, any case; 12 bytes in the database (MongoDB).
    ObjectId,
    /// Hexadecimal of whole bytes.
    Bytes,
    /// A value with one canonical text.
    Canonical(CanonicalForm),
}

/// Name of a record: collection and key columns, encoded so that equal keys are equal bytes. Cheap
/// to hash and compare; up to 22 bytes (every integer and UUID key) need no allocation.
#[derive(Clone)]
pub struct Key(Repr);

/// The bytes come first, and the length, which is never 0, says which of the two it is: the words
/// that are stored are those that are hashed and copied, so that none of these waits for two
/// stores.
#[derive(Clone)]
enum Repr {
    Inline { buf: [u8; INLINE], len: NonZeroU8 },
    Heap(Box<[u8]>),
}

impl Key {
    /// Returns the encoded form; equal keys have equal bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { buf, len } => &buf[..usize::from(len.get())],
            Repr::Heap(bytes) => bytes,
        }
    }

    /// Returns the columns of the encoded form: it without the collection, which has another number
    /// in another process.
    pub fn encoded_columns(&self) -> &[u8] {
        &self.as_bytes()[2..]
    }

    /// Returns the collection of the key.
    pub fn collection(&self) -> CollectionId {
        collection_of(self.as_bytes())
    }

    /// Returns the key's columns, in the order of the schema.
    pub fn parts(&self) -> Parts<'_> {
        Parts { rest: &self.as_bytes()[2..] }
    }
}

fn collection_of(encoded: &[u8]) -> CollectionId {
    CollectionId(u16::from_be_bytes([encoded[0], encoded[1]]))
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}
impl Eq for Key {}
impl Hash for Key {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.as_bytes());
    }
}
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.collection().0)?;
        f.debug_list().entries(self.parts()).finish()
    }
}

/// Iterator over a key's columns.
pub struct Parts<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Parts<'a> {
    type Item = KeyPart<'a>;

    fn next(&mut self) -> Option<KeyPart<'a>> {
        let (&tag, rest) = self.rest.split_first()?;
        if tag == TAG_INTEGER {
            let (int, rest) = rest.split_first_chunk::<8>()?;
            self.rest = rest;
            return Some(KeyPart::Integer(i64::from_be_bytes(*int)));
        }
        let (len, rest) = rest.split_first_chunk::<2>()?;
        let (bytes, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
        self.rest = rest;
        Some(match tag {
            // Only `KeySchema` writes this tag, and only for a `&str`.
            TAG_TEXT => KeyPart::Text(std::str::from_utf8(bytes).unwrap_or_default()),
            _ => KeyPart::Bytes(bytes),
        })
    }
}

const TAG_INTEGER: u8 = 1;
const TAG_TEXT: u8 = 2;
const TAG_BYTES: u8 = 3;

/// Shape of a collection's keys, and the only constructor of [`Key`]s.
#[derive(Clone, Debug)]
pub struct KeySchema {
    collection: CollectionId,
    types: Vec<KeyType>,
}

impl KeySchema {
    /// Creates a schema of one to [`KEY_PARTS_MAX`] columns; the inspection of the table rejects
    /// more.
    #[must_use]
    pub fn new(collection: CollectionId, types: Vec<KeyType>) -> Self {
        debug_assert!((1..=KEY_PARTS_MAX).contains(&types.len()));
        Self { collection, types }
    }

    /// Returns the types of the columns.
    pub fn types(&self) -> &[KeyType] {
        &self.types
    }

    /// Returns the collection of the keys.
    pub fn collection(&self) -> CollectionId {
        self.collection
    }

    /// Returns whether an id's text may contain a comma, so that `%2C` in a list of ids is data.
    pub fn can_contain_comma(&self) -> bool {
        self.types.iter().any(|t| matches!(t, KeyType::Text(_)))
    }

    /// Makes a key from typed values, as the feed does. Values are normalised as the database
    /// compares them.
    ///
    /// # Errors
    /// For a value that cannot be a key of this collection; such a row cannot be requested either.
    pub fn key(&self, parts: &[KeyPart<'_>]) -> Result<Key, KeyError> {
        let mut writer = self.writer(parts.len())?;
        for (i, (part, ty)) in parts.iter().zip(&self.types).enumerate() {
            let wrong = KeyError::Type { part: self.part(i), want: ty.name() };
            match (ty, part) {
                (KeyType::Integer, KeyPart::Integer(v)) => writer.integer(*v)?,
                (KeyType::Unsigned, KeyPart::Bytes(b)) if b.len() == UNSIGNED_BYTES => {
                    writer.tagged(TAG_BYTES, b)?
                }
                (KeyType::Text(c), KeyPart::Text(t)) => writer.text(*c, t)?,
                (KeyType::Uuid, KeyPart::Bytes(b)) if b.len() == 16 => {
                    writer.tagged(TAG_BYTES, b)?
                }
                (KeyType::ObjectId, KeyPart::Bytes(b)) if b.len() == OBJECT_ID_BYTES => {
                    writer.tagged(TAG_BYTES, b)?
                }
                (KeyType::Bytes, KeyPart::Bytes(b)) => writer.tagged(TAG_BYTES, b)?,
                (KeyType::Canonical(form), KeyPart::Text(t)) => {
                    writer.tagged(TAG_TEXT, form.canonical(t).ok_or(wrong)?.as_bytes())?;
                }
                _ => return Err(wrong),
            }
        }
        Ok(writer.finish())
    }

    /// Makes a key from one path segment of a URL, still percent-encoded. Commas separate the
    /// columns of a composite key; in a key of one column a comma is data.
    ///
    /// # Errors
    /// For a text that cannot be a key of this collection.
    #[inline]
    pub fn parse_url(&self, raw: &str) -> Result<Key, KeyError> {
        match self.parse_integer_key(raw) {
            Some(key) => Ok(key),
            None => self.parse_encoded(raw),
        }
    }

    /// Makes a key of one integer from its canonical spelling, which has no percent-encoding.
    /// `None`: this collection's keys, or this text, need [`KeySchema::parse_url`].
    #[inline]
    pub fn parse_integer_key(&self, raw: &str) -> Option<Key> {
        let [KeyType::Integer] = self.types[..] else { return None };
        let integer = parse_integer(raw)?;
        // One word, because a load that spans several earlier stores waits for all of them.
        let collection = u128::from(self.collection.0) << 72;
        let tagged = u128::from(TAG_INTEGER) << 64 | u128::from(integer.cast_unsigned());
        let word = (collection | tagged) << (8 * (size_of::<u128>() - INTEGER_KEY_BYTES));
        let mut buf = [0; INLINE];
        buf[..size_of::<u128>()].copy_from_slice(&word.to_be_bytes());
        Some(Key(Repr::Inline { buf, len: INTEGER_KEY_LEN }))
    }

    fn parse_encoded(&self, raw: &str) -> Result<Key, KeyError> {
        if let [ty] = self.types[..] {
            let mut writer = self.writer(1)?;
            writer.parse(ty, &percent_decode(raw)?, None)?;
            return Ok(writer.finish());
        }
        let mut writer = self.writer(raw.split(',').count())?;
        for (i, (text, ty)) in raw.split(',').zip(&self.types).enumerate() {
            writer.parse(*ty, &percent_decode(text)?, self.part(i))?;
        }
        Ok(writer.finish())
    }

    /// Makes a key from decoded texts, one per column, as a batch does.
    ///
    /// # Errors
    /// For a text that cannot be a key of this collection.
    pub fn parse_texts(&self, texts: &[&str]) -> Result<Key, KeyError> {
        let mut writer = self.writer(texts.len())?;
        for (i, (text, ty)) in texts.iter().zip(&self.types).enumerate() {
            writer.parse(*ty, text, self.part(i))?;
        }
        Ok(writer.finish())
    }

    /// Makes a key from an id as it is after percent-decoding. Commas separate the columns of a
    /// composite key, so that its texts cannot have any; in a key of one column a comma is data.
    ///
    /// # Errors
    /// For a text that cannot be a key of this collection.
    #[inline]
    pub fn parse_decoded(&self, id: &[u8]) -> Result<Key, KeyError> {
        let id = std::str::from_utf8(id).map_err(|_| KeyError::Utf8)?;
        if let Some(key) = self.parse_integer_key(id) {
            return Ok(key);
        }
        if self.types.len() == 1 {
            return self.parse_texts(&[id]);
        }
        let mut texts = [""; KEY_PARTS_MAX];
        let mut got = 0;
        for text in id.split(',') {
            if let Some(place) = texts.get_mut(got) {
                *place = text;
            }
            got += 1;
        }
        match texts.get(..got) {
            Some(texts) => self.parse_texts(texts),
            None => Err(KeyError::Parts { want: self.types.len(), got }),
        }
    }

    /// Returns a key of this collection from its encoded form; `None` for the key of another one.
    pub fn restore(&self, encoded: &[u8]) -> Option<Key> {
        if !encoded.starts_with(&self.collection.0.to_be_bytes()) {
            return None;
        }
        let mut writer = Writer { len: 0, inline: [0; INLINE], heap: Vec::new() };
        writer.push(encoded).ok()?;
        Some(writer.finish())
    }

    /// Makes a key from the columns of a key of another process, as [`Key::encoded_columns`]
    /// returns them.
    ///
    /// # Errors
    /// For bytes that are not the columns of a key of this collection.
    pub fn key_of_columns(&self, encoded: &[u8]) -> Result<Key, KeyError> {
        let mut parts = Vec::with_capacity(self.types.len());
        let mut rest = Parts { rest: encoded };
        parts.extend(rest.by_ref().take(KEY_PARTS_MAX));
        let key = self.key(&parts)?;
        // One form for each key; a part that cannot be read ends the iterator early.
        if key.encoded_columns() == encoded { Ok(key) } else { Err(KeyError::Encoding) }
    }

    /// Returns the number of a column for an error.
    fn part(&self, index: usize) -> Option<usize> {
        (self.types.len() > 1).then_some(index + 1)
    }

    fn writer(&self, got: usize) -> Result<Writer, KeyError> {
        if got != self.types.len() {
            return Err(KeyError::Parts { want: self.types.len(), got });
        }
        let mut writer = Writer { len: 0, inline: [0; INLINE], heap: Vec::new() };
        writer.push(&self.collection.0.to_be_bytes())?;
        Ok(writer)
    }
}

impl KeyType {
    /// Returns the description of the type for an error.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Integer => "a decimal integer of 64 bits without leading zeros",
            Self::Unsigned => {
                "a decimal integer from 0 to 18446744073709551615 without leading zeros"
            }
            Self::Text(_) => "text",
            Self::Uuid => "a UUID",
            Self::ObjectId => "an ObjectId of 24 hexadecimal digits",
            Self::Bytes => "an even number of hexadecimal digits",
            Self::Canonical(form) => form.name(),
        }
    }
}

/// Builder of an encoded key; does not allocate for short keys.
struct Writer {
    len: usize,
    inline: [u8; INLINE],
    heap: Vec<u8>,
}

impl Writer {
    #[inline]
    fn push(&mut self, bytes: &[u8]) -> Result<(), KeyError> {
        let end = self.len + bytes.len();
        if end > KEY_BYTES_MAX {
            return Err(KeyError::TooLong);
        }
        if end <= INLINE {
            self.inline[self.len..end].copy_from_slice(bytes);
        } else {
            if self.heap.is_empty() {
                self.heap.extend_from_slice(&self.inline[..self.len]);
            }
            self.heap.extend_from_slice(bytes);
        }
        self.len = end;
        Ok(())
    }

    fn integer(&mut self, v: i64) -> Result<(), KeyError> {
        let mut tagged = [TAG_INTEGER; 9];
        tagged[1..].copy_from_slice(&v.to_be_bytes());
        self.push(&tagged)
    }

    fn text(&mut self, collation: Collation, text: &str) -> Result<(), KeyError> {
        if text.bytes().any(|b| b == 0) {
            return Err(KeyError::Nul);
        }
        match collation {
            Collation::Binary | Collation::Database => self.tagged(TAG_TEXT, text.as_bytes()),
            Collation::NoCaseAscii => self.tagged(TAG_TEXT, text.to_ascii_lowercase().as_bytes()),
            Collation::RightTrim => self.tagged(TAG_TEXT, text.trim_end_matches(' ').as_bytes()),
        }
    }

    fn tagged(&mut self, tag: u8, bytes: &[u8]) -> Result<(), KeyError> {
        let len = u16::try_from(bytes.len()).map_err(|_| KeyError::TooLong)?;
        self.push(&[tag])?;
        self.push(&len.to_be_bytes())?;
        self.push(bytes)
    }

    fn parse(&mut self, ty: KeyType, text: &str, part: Option<usize>) -> Result<(), KeyError> {
        let wrong = KeyError::Type { part, want: ty.name() };
        if text.bytes().any(|b| b == 0) {
            return Err(KeyError::Nul);
        }
        // Decoding halves hexadecimal text and drops hyphens: a text much longer than the bound
        // cannot fit in any type.
        if text.len() > 2 * KEY_BYTES_MAX {
            return Err(KeyError::TooLong);
        }
        match ty {
            KeyType::Integer => self.integer(parse_integer(text).ok_or(wrong)?),
            KeyType::Unsigned => {
                self.tagged(TAG_BYTES, &parse_unsigned(text).ok_or(wrong)?.to_be_bytes())
            }
            KeyType::Text(collation) => self.text(collation, text),
            KeyType::Uuid => self.tagged(TAG_BYTES, &parse_uuid(text).ok_or(wrong)?),
            KeyType::ObjectId => {
                let id = parse_hex(text.as_bytes()).filter(|id| id.len() == OBJECT_ID_BYTES);
                self.tagged(TAG_BYTES, &id.ok_or(wrong)?)
            }
            KeyType::Bytes => self.tagged(TAG_BYTES, &parse_hex(text.as_bytes()).ok_or(wrong)?),
            KeyType::Canonical(form) => {
                self.tagged(TAG_TEXT, form.canonical(text).ok_or(wrong)?.as_bytes())
            }
        }
    }

    fn finish(self) -> Key {
        // INLINE is far below 256, and a key begins with its collection.
        match NonZeroU8::new(self.len as u8) {
            Some(len) if self.len <= INLINE => Key(Repr::Inline { buf: self.inline, len }),
            _ => Key(Repr::Heap(self.heap.into_boxed_slice())),
        }
    }
}

#[cfg(test)]
mod tests;
