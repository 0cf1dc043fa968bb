//! One client of the table: its copies, and the keys of its command under way.

use std::collections::HashMap;

use hotrow_measure::clock::Nanos;
use hotrow_types::key::{CollectionId, Key};

/// Memory of one tracked spelling besides its bytes and those of its key: entries of two maps and
/// of the queue of expiries.
const INTEREST_OVERHEAD_BYTES: usize = 192;

/// A key of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackedKey {
    /// The record; `None`: its copies cannot be kept fresh, so that the reply is always followed
    /// by its invalidation.
    pub key: Option<Key>,
    /// The text by which the client asked.
    pub spelling: Box<[u8]>,
}

/// Beginnings of the spellings that a broadcasting client is informed of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefixes(pub Vec<Box<[u8]>>);

impl Prefixes {
    /// Returns whether a spelling begins with one of them.
    pub fn cover(&self, spelling: &[u8]) -> bool {
        self.0.iter().any(|prefix| spelling.starts_with(prefix))
    }

    /// Returns the first of them that overlaps with `other`.
    pub fn overlap(&self, other: &[u8]) -> Option<&[u8]> {
        let mut own = self.0.iter().map(|own| &**own);
        own.find(|own| own.starts_with(other) || other.starts_with(own))
    }
}

/// A copy that a client may hold.
#[derive(Debug)]
pub(super) struct Interest {
    pub(super) spelling: Box<[u8]>,
    /// Time from which the cache itself would read the record again.
    pub(super) expires_at: Nanos,
}

impl Interest {
    pub(super) fn bytes(&self, key: &Key) -> usize {
        INTEREST_OVERHEAD_BYTES + 2 * key.as_bytes().len() + self.spelling.len()
    }
}

/// A key whose reply is not written yet.
#[derive(Debug)]
pub(super) struct UnderWay {
    pub(super) asked: TrackedKey,
    /// `true`: the invalidation must follow the reply.
    pub(super) is_hit: bool,
}

#[derive(Debug, Default)]
pub(super) struct Client {
    pub(super) interests: HashMap<Key, Vec<Interest>>,
    pub(super) under_way: Vec<UnderWay>,
    /// Collections of its copies.
    pub(super) touched: Vec<CollectionId>,
    pub(super) bytes: usize,
    /// `Some`: it is informed of all keys with these beginnings, and has no interests.
    pub(super) broadcast: Option<Prefixes>,
    /// Time from which the first of its copies is past its TTL, of a broadcasting client.
    pub(super) broadcast_expires_at: Option<Nanos>,
}

impl Client {
    /// Notes that the keys of the command under way are outdated, for which `concerns` returns
    /// `true`. Returns whether there are any.
    pub(super) fn hit(&mut self, concerns: impl Fn(&Key) -> bool) -> bool {
        let mut any = false;
        for own in &mut self.under_way {
            let is_concerned = own.asked.key.as_ref().is_some_and(&concerns);
            own.is_hit |= is_concerned;
            any |= is_concerned;
        }
        any
    }

    pub(super) fn is_under_way(&self, spelling: &[u8]) -> bool {
        self.under_way.iter().any(|own| *own.asked.spelling == *spelling)
    }

    pub(super) fn has_key_under_way(&self, key: &Key) -> bool {
        self.under_way.iter().any(|own| own.asked.key.as_ref() == Some(key))
    }

    pub(super) fn touch(&mut self, collection: CollectionId) {
        if !self.touched.contains(&collection) {
            self.touched.push(collection);
        }
    }

    pub(super) fn has_touched(&self, concerns: impl Fn(CollectionId) -> bool) -> bool {
        self.touched.iter().any(|collection| concerns(*collection))
    }

    pub(super) fn forget_touched(&mut self) {
        self.touched.clear();
    }

    /// Forgets the copy under this spelling. Returns its bytes.
    pub(super) fn forget(&mut self, key: &Key, spelling: &[u8]) -> usize {
        let Some(own) = self.interests.get_mut(key) else { return 0 };
        let Some(at) = own.iter().position(|interest| *interest.spelling == *spelling) else {
            return 0;
        };
        let bytes = own.swap_remove(at).bytes(key);
        if own.is_empty() {
            self.interests.remove(key);
        }
        self.bytes -= bytes;
        bytes
    }
}
