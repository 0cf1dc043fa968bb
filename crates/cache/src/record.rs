//! A record as the cache keeps and serves it: one allocation, shared by reference count, never changed.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use hotrow_measure::clock::Nanos;
use triomphe::ThinArc;
use xxhash_rust::xxh3::xxh3_64;

use crate::key::{CollectionId, Key};
use crate::version::{Position, Version};

/// What keeping one record costs beyond key and body, in bytes: an average. 72 in the record itself by its layout
/// (reference count, header, length, hash and position); 28 for the allocator's rounding up, an estimate (a sixteenth of a
/// block of 450 bytes); 80 for the policy's tables, which `cargo bench -p hotrow-cache` measures: 47 to 96 per entry,
/// least when nothing was evicted, most when evicted keys are remembered and the tables have just doubled.
pub const ENTRY_OVERHEAD_BYTES: u64 = 180;

/// Whether the database had the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The body is the record as JSON.
    Found,
    /// There is no such record; the body is empty. Absence is a version like any other.
    Missing,
}

/// The era in which a read was sent. An entry counts only in its own era.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Era {
    /// Raised when the feed may have missed changes, and again when it starts anew.
    pub(crate) loss: u32,
    /// Raised when all records of the collection are known to have changed.
    pub(crate) flush: u32,
}

impl Era {
    pub(crate) fn pack(self) -> u64 {
        u64::from(self.loss) << 32 | u64::from(self.flush)
    }

    pub(crate) fn unpack(packed: u64) -> Self {
        Self { loss: (packed >> 32) as u32, flush: packed as u32 }
    }
}

/// What a lookup needs, and nothing else: together with the reference count, the length and an integer key it fits one
/// cache line, and a lookup is as fast as the lines that it has to wait for are few.
#[derive(Debug)]
struct Header {
    read_at: Nanos,
    expires_at: Nanos,
    era: Era,
    key_bytes: u16,
    presence: Presence,
    token: Token,
    /// Times that it was served, up to [`HOT_USES`]. In what the layout would leave empty.
    uses: AtomicU8,
}

/// What the position of a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    /// There is none.
    None,
    /// The log's end after the read, which may not have seen all of it: good as a session token, not to compare reads.
    LogEnd,
    /// The same, of a read that missed a change that the feed had delivered.
    Behind,
    /// Just what the read saw.
    Version,
}

/// A record that was served as often as this since it was read is worth reading again as soon as it changes: at the pace
/// of its changes, more requests than reads ask for it.
pub(crate) const HOT_USES: u8 = 2;

/// Bytes between key and body: hash of the body, incarnation of the position, point of the position (which say nothing
/// when the token is `None`).
const MIDDLE: usize = 24;

/// One version of one record: key, middle and body. Cloning adds a reference.
#[derive(Clone, Debug)]
pub struct Record(ThinArc<Header, u8>);

/// What a record is made of.
pub(crate) struct Draft<'a> {
    pub(crate) key: &'a Key,
    /// `None`: there is no such record.
    pub(crate) body: Option<&'a [u8]>,
    pub(crate) read_at: Nanos,
    pub(crate) expires_at: Nanos,
    pub(crate) version: &'a Version,
    pub(crate) position: Option<Position>,
    pub(crate) sight: Sight,
    pub(crate) era: Era,
}

/// Whether an answer saw every change of its key that the feed had delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// As far as is known.
    Whole,
    /// A delivered change was not visible to the read, or the feed was lost meanwhile: the answer proves no position.
    Behind,
}

impl Record {
    pub(crate) fn new(draft: &Draft<'_>) -> Self {
        let key = draft.key.as_bytes();
        let body = draft.body.unwrap_or_default();
        let header = Header {
            read_at: draft.read_at,
            expires_at: draft.expires_at,
            era: draft.era,
            // KEY_BYTES_MAX is far below 65,536.
            key_bytes: key.len() as u16,
            presence: if draft.body.is_some() { Presence::Found } else { Presence::Missing },
            token: match (draft.position, draft.version, draft.sight) {
                (None, ..) => Token::None,
                (Some(_), _, Sight::Behind) => Token::Behind,
                (Some(end), Version::Log(seen), Sight::Whole) if end == *seen => Token::Version,
                (Some(_), _, Sight::Whole) => Token::LogEnd,
            },
            uses: AtomicU8::new(0),
        };
        let Position { incarnation, at } = draft.position.unwrap_or(Position { incarnation: 0, at: 0 });
        let [hash, incarnation, at] = [xxh3_64(body), incarnation, at].map(u64::to_ne_bytes);
        Self(ThinArc::from_header_and_slice(header, &[key, &hash, &incarnation, &at, body].concat()))
    }

    /// Whether the database had the record.
    #[must_use]
    pub fn presence(&self) -> Presence {
        self.0.header.header.presence
    }

    /// The record as JSON; empty when missing.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.0.slice[self.key_len() + MIDDLE..]
    }

    /// XXH3 of the body: what the ETag is made of, equal on all instances.
    #[must_use]
    pub fn body_hash(&self) -> u64 {
        self.middle(0)
    }

    /// The log's end when the record was read; `None` where the engine has no log.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        let position = || Position { incarnation: self.middle(1), at: self.middle(2) };
        (self.0.header.header.token != Token::None).then(position)
    }

    /// Whether the read missed a change that the feed had delivered, so that it proves no position, whatever the log's end
    /// was (Race B).
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.0.header.header.token == Token::Behind
    }

    /// The point up to which the record reflects every commit, where the read itself could tell.
    #[must_use]
    pub fn reflects(&self) -> Option<Position> {
        self.position().filter(|_| self.0.header.header.token == Token::Version)
    }

    /// When the read that brought the record was sent.
    #[must_use]
    pub fn read_at(&self) -> Nanos {
        self.0.header.header.read_at
    }

    /// The collection that the record belongs to.
    #[must_use]
    pub fn collection(&self) -> CollectionId {
        CollectionId(u16::from_be_bytes([self.0.slice[0], self.0.slice[1]]))
    }

    /// It was served from memory. Uses of two threads at once may count as one; a hot record is not written to any more.
    #[inline]
    pub(crate) fn note_use(&self) {
        let uses = &self.0.header.header.uses;
        let before = uses.load(Ordering::Relaxed);
        if before < HOT_USES {
            uses.store(before + 1, Ordering::Relaxed);
        }
    }

    /// Whether it was served [`HOT_USES`] times.
    pub(crate) fn is_hot(&self) -> bool {
        self.0.header.header.uses.load(Ordering::Relaxed) >= HOT_USES
    }

    pub(crate) fn expires_at(&self) -> Nanos {
        self.0.header.header.expires_at
    }

    pub(crate) fn expired_for(&self, now: Nanos) -> Option<Duration> {
        (now >= self.expires_at()).then(|| now.since(self.expires_at()))
    }

    pub(crate) fn era(&self) -> Era {
        self.0.header.header.era
    }

    /// What the read saw, as far as it is kept.
    pub(crate) fn version(&self) -> Version {
        self.reflects().map_or(Version::Unknown, Version::Log)
    }

    #[inline]
    pub(crate) fn key_bytes(&self) -> &[u8] {
        &self.0.slice[..self.key_len()]
    }

    /// Bytes that the entry counts for: key, body and bookkeeping.
    pub(crate) fn weight_bytes(&self) -> u64 {
        (self.0.slice.len() - MIDDLE) as u64 + ENTRY_OVERHEAD_BYTES
    }

    /// One of the three numbers between key and body.
    fn middle(&self, i: usize) -> u64 {
        let number = self.0.slice[self.key_len() + 8 * i..].first_chunk::<8>();
        // `new` put MIDDLE bytes there.
        number.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    }

    #[inline]
    fn key_len(&self) -> usize {
        usize::from(self.0.header.header.key_bytes)
    }
}

/// A record under its own key, as the store's key: the bytes are kept once.
#[derive(Clone, Debug)]
pub(crate) struct RecordKey(pub(crate) Record);

impl Hash for RecordKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.0.key_bytes());
    }
}
impl PartialEq for RecordKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.key_bytes() == other.0.key_bytes()
    }
}
impl Eq for RecordKey {}

impl quick_cache::Equivalent<RecordKey> for Key {
    #[inline]
    fn equivalent(&self, other: &RecordKey) -> bool {
        self.as_bytes() == other.0.key_bytes()
    }
}
