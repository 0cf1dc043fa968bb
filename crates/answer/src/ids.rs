//! Ids of a batch, and their parsing from a query.

use std::borrow::Cow;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hotrow_types::key::{Key, KeyError, KeySchema};

use crate::http_error::HttpError;
use crate::repeat_filter::RepeatFilter;
use hotrow_config::Limits;

/// Ids of a batch: each name once, as requested, and each key once.
#[derive(Debug)]
pub struct Ids {
    /// Text that contains the names: one allocation for all.
    names: String,
    /// The names, in the client's order.
    named: Vec<Name>,
    /// The keys, each once.
    pub keys: Vec<Key>,
    /// Of the keys, in their order, as the cache has them.
    pub hashes: Vec<u64>,
    seen: RepeatFilter,
    hasher: FixedState,
    /// Longest name in bytes.
    name_bytes_max: usize,
    /// Whether their records are to be those of one point of the log.
    pub is_snapshot: bool,
}

/// Bytes of a text that are copied at once, to keep the first of them: some digits.
const COPIED_AT_ONCE: usize = 16;

/// Place of a name in the text, and index of its key.
#[derive(Debug)]
struct Name {
    start: usize,
    end: usize,
    key: usize,
}

impl Ids {
    /// Allocates for this number of ids and bytes of names. An id that is too long for a URL is too
    /// long for a batch: `name_bytes_max` is `limits.target_bytes`.
    pub fn with_capacity(
        ids: usize,
        name_bytes: usize,
        name_bytes_max: usize,
        hasher: &FixedState,
    ) -> Self {
        Self::within(String::with_capacity(name_bytes), ids, name_bytes_max, hasher)
    }

    /// Begins a batch whose ids have no names: its sender knows the keys by their places.
    pub fn without_names(hasher: &FixedState) -> Self {
        Self::within(String::new(), 0, 0, hasher)
    }

    /// Adds a key unless it is there. Returns its place, and whether it is new.
    #[inline]
    fn place(&mut self, key: Key, hash: u64) -> (usize, bool) {
        if self.seen.note(hash, &self.hashes)
            && let Some(place) = self.find(hash, &key)
        {
            return (place, false);
        }
        self.keys.push(key);
        self.hashes.push(hash);
        (self.keys.len() - 1, true)
    }

    /// Returns the place of a key that is probably there.
    #[cold]
    fn find(&self, hash: u64, key: &Key) -> Option<usize> {
        let mut same = self.hashes.iter().enumerate().filter(|(_, other)| **other == hash);
        same.find_map(|(place, _)| (self.keys[place] == *key).then_some(place))
    }

    /// Adds a key unless it is there. Returns its place.
    pub fn place_of(&mut self, key: Key) -> usize {
        let hash = self.hasher.hash_one(&key);
        self.place(key, hash).0
    }

    /// Allocates for this number of ids, whose names are parts of `names`.
    fn within(names: String, ids: usize, name_bytes_max: usize, hasher: &FixedState) -> Self {
        Self {
            names,
            named: Vec::with_capacity(ids),
            keys: Vec::with_capacity(ids),
            hashes: Vec::with_capacity(ids),
            seen: RepeatFilter::with_capacity(ids),
            hasher: hasher.clone(),
            name_bytes_max,
            is_snapshot: false,
        }
    }

    /// Adds an id with its name (its URL form).
    pub fn push(&mut self, name: &str, key: Result<Key, KeyError>) -> Result<(), HttpError> {
        match key {
            Ok(key) if name.len() <= self.name_bytes_max => {
                self.push_key(name, key);
                Ok(())
            }
            unusable => Err(self.refusal(name.len(), unusable.err())),
        }
    }

    #[inline]
    fn push_key(&mut self, name: &str, key: Key) {
        let start = self.names.len();
        self.names.push_str(name);
        self.add_last(start, key);
    }

    /// Adds a key whose name is the end of the text.
    #[inline]
    fn add_last(&mut self, start: usize, key: Key) {
        if !self.add_key(start, self.names.len(), key) {
            self.names.truncate(start);
        }
    }

    /// Adds an id as [`Ids::push`] does; its name is some digits at the beginning of `text`. The
    /// key goes straight to its place: each copy of it would wait for the one before.
    #[inline]
    pub fn push_integer(
        &mut self,
        text: &str,
        name_bytes: usize,
        key: Key,
    ) -> Result<(), HttpError> {
        if name_bytes > self.name_bytes_max {
            return Err(self.refusal(name_bytes, None));
        }
        let start = self.names.len();
        match text.get(..COPIED_AT_ONCE) {
            // So many bytes are copied without a call.
            Some(more) if name_bytes <= COPIED_AT_ONCE => {
                self.names.push_str(more);
                self.names.truncate(start + name_bytes);
            }
            _ => self.names.push_str(&text[..name_bytes]),
        }
        self.add_last(start, key);
        Ok(())
    }

    /// Adds an id whose name is in the text already.
    fn add(
        &mut self,
        start: usize,
        end: usize,
        key: Result<Key, KeyError>,
    ) -> Result<(), HttpError> {
        match key {
            Ok(key) if end - start <= self.name_bytes_max => {
                self.add_key(start, end, key);
                Ok(())
            }
            unusable => Err(self.refusal(end - start, unusable.err())),
        }
    }

    #[cold]
    fn refusal(&self, name_bytes: usize, error: Option<KeyError>) -> HttpError {
        let number = self.named.len() + 1;
        let max = self.name_bytes_max;
        HttpError::BadBatch(match error {
            Some(error) if name_bytes <= max => format!("id {number}: {error}"),
            _ => format!("id {number} is longer than {max} bytes in its URL form"),
        })
    }

    /// Adds a key whose name is in the text already. `false`: both have been added before.
    #[inline]
    fn add_key(&mut self, start: usize, end: usize, key: Key) -> bool {
        // Here, where the key may still be in registers.
        let hash = self.hasher.hash_one(&key);
        let (key, is_new) = self.place(key, hash);
        let name = &self.names[start..end];
        // Rare, and bounded by `max_batch`: two spellings of a key, or a repeated id.
        if !is_new && self.named().any(|(other, at)| at == key && other == name) {
            return false;
        }
        self.named.push(Name { start, end, key });
        true
    }

    /// Returns the number of names.
    pub(crate) fn names(&self) -> usize {
        self.named.len()
    }

    /// Returns the bytes of the text that contains the names.
    pub(crate) fn name_bytes(&self) -> usize {
        self.names.len()
    }

    /// Returns the names with the indexes of their keys, in the client's order.
    pub fn named(&self) -> impl Iterator<Item = (&str, usize)> {
        self.named.iter().map(|name| (&self.names[name.start..name.end], name.key))
    }
}

/// Detail of a batch without ids.
pub const NO_IDS: &str =
    "a batch names its ids: /{collection}?ids=1,2,3, or POST {\"ids\":[1,2,3]}";

/// Name of the parameter and of the member of a body that ask for records of one point of the log.
pub const SNAPSHOT: &str = "snapshot";

/// Returns whether the name of a parameter continues.
fn is_name(rest: &str) -> bool {
    !rest.is_empty() && !rest.starts_with('=')
}

#[cold]
fn bad_snapshot() -> HttpError {
    HttpError::BadBatch("the parameter is snapshot=true, once; leave it out otherwise".into())
}

/// Parses the ids of `?ids=…`: separated by raw commas, and by `%2C` if the key cannot contain a
/// comma. The key has one column.
///
/// # Errors
/// 400 for a malformed, empty or too large batch.
pub fn parse_query(
    schema: &KeySchema,
    limits: &Limits,
    hasher: &FixedState,
    query: Option<&str>,
) -> Result<Ids, HttpError> {
    let mut list = "";
    let mut is_repeated = false;
    let mut is_snapshot = false;
    for pair in query.unwrap_or_default().split('&') {
        if let Some(ids) = pair.strip_prefix("ids=") {
            is_repeated |= !list.is_empty();
            list = ids;
        } else if let Some(value) = pair.strip_prefix(SNAPSHOT).filter(|rest| !is_name(rest)) {
            if value != "=true" || is_snapshot {
                return Err(bad_snapshot());
            }
            is_snapshot = true;
        }
    }
    if list.is_empty() {
        return Err(HttpError::BadBatch(NO_IDS.into()));
    }
    if is_repeated {
        return Err(HttpError::BadBatch(
            "the query has ids twice; separate ids with commas".into(),
        ));
    }
    let list = if schema.can_contain_comma() || !list.contains('%') {
        Cow::Borrowed(list)
    } else {
        Cow::Owned(list.replace("%2C", ",").replace("%2c", ","))
    };
    let count = 1 + list.bytes().filter(|byte| *byte == b',').count();
    check_size(count, limits.max_batch)?;
    let mut ids = Ids::within(list.clone().into_owned(), count, limits.target_bytes, hasher);
    ids.is_snapshot = is_snapshot;
    let mut start = 0;
    // A search for one byte costs more than looking at the few bytes of an id.
    #[allow(clippy::manual_pattern_char_comparison)]
    for text in list.split(|separator| separator == ',') {
        if text.is_empty() {
            return Err(empty_id(ids.named.len() + 1));
        }
        let end = start + text.len();
        // The usual key goes straight to its place: each copy would wait for the one before.
        match schema.parse_integer_key(text) {
            Some(key) if text.len() <= ids.name_bytes_max => _ = ids.add_key(start, end, key),
            _ => ids.add(start, end, schema.parse_url(text))?,
        }
        start = end + 1;
    }
    Ok(ids)
}

impl Ids {
    /// Checks the number of ids, which other limits have admitted before.
    ///
    /// # Errors
    /// 400 if they are too many.
    pub fn check_size(&self, limits: &Limits) -> Result<(), HttpError> {
        check_size(self.keys.len(), limits.max_batch)
    }
}

/// An empty text can be a key, but in a query it is rather a mistake, and alone it looks like no
/// id at all.
#[cold]
fn empty_id(number: usize) -> HttpError {
    HttpError::BadBatch(format!(
        "id {number} is empty; if the empty text is a key, request it by POST"
    ))
}

fn check_size(ids: usize, max: usize) -> Result<(), HttpError> {
    if ids > max {
        return Err(HttpError::BadBatch(format!("the batch has {ids} ids; the limit is {max}")));
    }
    Ok(())
}
