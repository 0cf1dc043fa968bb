//! Lookup by another unique value than the key.
//!
//! An *alias* of a collection is a collection of its own: its keys are values of other unique
//! columns, and its records are keys. Leases, fence, epochs, lifetimes and eviction are those of
//! any collection. The record itself always comes from the lookup of the key, so that an alias is a
//! hint where to look, and never an answer:
//!
//! - The feed invalidates an alias for the value that a row has *now*: every earlier answer for it,
//!   the absence of a row among them, ends before the watermark moves. The value that a row *had*
//!   is not needed: the alias then still names the row, but the row no longer confirms it.
//! - A row confirms an alias by the members that the alias was read with, byte by byte. A row that
//!   does not is no answer: the alias is dropped and read again.
//! - Two attempts may end in memory or join reads in flight. The last one reads the alias and then
//!   the row, in this order, past memory: it fails only if the value moved between the two.

use crate::cache::{Cache, ReadMode};
use crate::record::{Presence, Record};
use crate::stats::Removal;
use hotrow_types::columns::label_of;
use hotrow_types::key::Key;

/// Most attempts of a lookup by alias.
pub const ALIAS_ATTEMPTS_MAX: u8 = 3;
/// Bytes of the length of the key in the record of an alias. A key has at most 64 KiB.
const KEY_LENGTH_BYTES: usize = 2;
/// Bytes of the length of a member behind it. A record has at most 16 MiB.
const MEMBER_LENGTH_BYTES: usize = 4;

/// Returns the record of an alias: the key that it names, and the members by which the row confirms
/// it.
pub fn alias_record(key: &Key, members: &[&[u8]]) -> Vec<u8> {
    let key = key.as_bytes();
    // KEY_BYTES_MAX fits.
    let mut record = (key.len() as u16).to_ne_bytes().to_vec();
    record.extend_from_slice(key);
    for member in members {
        record.extend_from_slice(&(member.len() as u32).to_ne_bytes());
        record.extend_from_slice(member);
    }
    record
}

/// Key that an alias names.
#[derive(Clone, Copy, Debug)]
pub struct AliasTarget<'a> {
    /// The key, as [`Key::as_bytes`] returns it.
    pub key: &'a [u8],
    /// The members behind it, each with its length.
    members: &'a [u8],
}

impl<'a> AliasTarget<'a> {
    /// Returns what the record of an alias names; `None`: no row has the value.
    #[must_use]
    #[inline]
    pub fn of(alias: &'a Record) -> Option<Self> {
        if alias.presence() == Presence::Missing {
            return None;
        }
        let (length, rest) = alias.body().split_first_chunk::<KEY_LENGTH_BYTES>()?;
        let (key, members) = rest.split_at_checked(usize::from(u16::from_ne_bytes(*length)))?;
        Some(Self { key, members })
    }

    /// Returns whether the row that was read by the key still has the value.
    #[must_use]
    #[inline]
    pub fn is_confirmed_by(self, row: &Record) -> bool {
        row.presence() == Presence::Found
            && row.key_bytes() == self.key
            && self.members().all(|member| row.has_member(member))
    }

    fn members(self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = self.members;
        std::iter::from_fn(move || {
            let (length, behind) = rest.split_first_chunk::<MEMBER_LENGTH_BYTES>()?;
            let (member, behind) = behind.split_at_checked(u32::from_ne_bytes(*length) as usize)?;
            rest = behind;
            Some(member)
        })
    }
}

impl Record {
    /// Returns whether the record, a JSON object, has this member. The first one of a name counts,
    /// as in MongoDB, where a document may have several.
    fn has_member(&self, member: &[u8]) -> bool {
        let body = self.body();
        let label = label_of(member);
        let mut start = 1;
        let first = self.member_ends().find_map(|end| {
            let own = body.get(start..end).unwrap_or_default();
            start = end + 1;
            own.starts_with(label).then_some(own)
        });
        first == Some(member)
    }
}

/// Attempts of one lookup by alias.
#[derive(Clone, Copy, Debug)]
pub struct AliasAttempts {
    mode: ReadMode,
    begun: u8,
}

impl AliasAttempts {
    /// Begins the first attempt, in the mode of the request.
    #[must_use]
    pub fn new(mode: ReadMode) -> Self {
        Self { mode, begun: 1 }
    }

    /// Returns the mode in which both the alias and the row are looked up.
    #[must_use]
    pub fn mode(self) -> ReadMode {
        if self.begun == ALIAS_ATTEMPTS_MAX { ReadMode::Revalidate } else { self.mode }
    }

    /// Begins the next attempt after a row has not confirmed its alias. `false`: there is none left
    /// because the value moves from row to row faster than it can be read.
    #[must_use]
    pub fn retry(&mut self) -> bool {
        let is_left = self.begun < ALIAS_ATTEMPTS_MAX;
        self.begun += u8::from(is_left);
        is_left
    }
}

impl<E: Clone> Cache<E> {
    /// Drops an alias that its row did not confirm, with the lease of a read that has begun: the
    /// next lookup reads it anew.
    pub fn drop_alias(&self, alias: &Key) {
        let (collection, _) = self.collection(alias.collection());
        let mut fetches = collection.fetch_queue.lock();
        fetches.kill_lease(alias);
        self.store.remove(alias, Removal::Invalidated);
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use super::*;
    use crate::testkit::{key, key_of, record_of};
    use hotrow_types::key::CollectionId;

    fn alias(members: &[&str]) -> Record {
        let members: Vec<&[u8]> = members.iter().map(|member| member.as_bytes()).collect();
        record_of(&key_of(CollectionId(1), 9), Some(&alias_record(&key(7), &members)))
    }

    #[test]
    fn a_row_confirms_an_alias_by_its_key_and_by_all_members() {
        let row = record_of(&key(7), Some(br#"{"id":7,"first":"Ann","last":"Lee, \"x\""}"#));
        for (members, is_confirmed) in [
            (&[][..], true),
            (&[r#""first":"Ann""#], true),
            (&[r#""first":"Ann""#, r#""last":"Lee, \"x\"""#], true),
            (&[r#""first":"ann""#], false),
            (&[r#""first":"Ann""#, r#""last":"Lee""#], false),
            (&[r#""first":"An"#], false),
            (&[r#""other":"Ann""#], false),
        ] {
            let alias = alias(members);
            let target = AliasTarget::of(&alias).expect("a key");
            assert_eq!(target.key, key(7).as_bytes());
            assert_eq!(target.is_confirmed_by(&row), is_confirmed, "{members:?}");
        }
        let alias = alias(&[]);
        let target = AliasTarget::of(&alias).expect("a key");
        assert!(!target.is_confirmed_by(&record_of(&key(8), Some(b"{}"))), "another row");
        assert!(!target.is_confirmed_by(&record_of(&key(7), None)), "the row is gone");
    }

    #[test]
    fn the_first_member_of_a_name_confirms() {
        let row = record_of(&key(7), Some(br#"{"a":1,"email":"x","email":"y"}"#));
        for (member, is_confirmed) in [(r#""email":"x""#, true), (r#""email":"y""#, false)] {
            let alias = alias(&[member]);
            let target = AliasTarget::of(&alias).expect("a key");
            assert_eq!(target.is_confirmed_by(&row), is_confirmed, "{member}");
        }
    }

    #[test]
    fn absence_names_no_key() {
        assert!(AliasTarget::of(&record_of(&key(7), None)).is_none());
        assert!(AliasTarget::of(&record_of(&key(7), Some(b""))).is_none());
        assert!(AliasTarget::of(&record_of(&key(7), Some(b"\xff\xffx"))).is_none());
    }

    #[test]
    fn the_last_attempt_is_past_memory() {
        let mut attempts = AliasAttempts::new(ReadMode::NoAdmit);
        assert_eq!(attempts.mode(), ReadMode::NoAdmit);
        assert!(attempts.retry());
        assert_eq!(attempts.mode(), ReadMode::NoAdmit);
        assert!(attempts.retry());
        assert_eq!(attempts.mode(), ReadMode::Revalidate);
        assert!(!attempts.retry());
    }
}
