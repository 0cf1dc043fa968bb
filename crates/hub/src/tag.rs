//! Identity of a collection that relay and server compute each for itself: what the key of a
//! record means is the same where the tags are equal, whatever the collection is named.

use std::fmt;

use hotrow_types::key::KeyType;

/// Digest of a collection's table and key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag(pub u128);

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl Tag {
    /// Returns the tag of a collection: its table and key columns as configured, and the types of
    /// these columns as found in the database.
    #[must_use]
    pub fn of(table: &str, columns: &[String], types: &[KeyType]) -> Self {
        Self::of_kind(b"", table, columns, types)
    }

    /// Returns the tag of an alias: of its changes only the values that a row has after them are
    /// published.
    #[must_use]
    pub fn of_alias(table: &str, columns: &[String], types: &[KeyType]) -> Self {
        Self::of_kind(b"alias", table, columns, types)
    }

    /// Returns the tag of the same collection with children from that table inside its records:
    /// their changes are published as changes of the records.
    #[must_use]
    pub fn embedding(self, table: &str, on: &str) -> Self {
        let mut digest = Digest::new();
        digest.part(b"embed");
        digest.part(&self.0.to_be_bytes());
        digest.part(table.as_bytes());
        digest.part(on.as_bytes());
        Self(digest.0)
    }

    fn of_kind(kind: &[u8], table: &str, columns: &[String], types: &[KeyType]) -> Self {
        let mut digest = Digest::new();
        digest.part(kind);
        digest.part(table.as_bytes());
        for (column, ty) in columns.iter().zip(types) {
            digest.part(column.as_bytes());
            // Names of variants, which the tests pin.
            digest.part(format!("{ty:?}").as_bytes());
        }
        Self(digest.0)
    }
}

/// FNV-1a of 128 bits. The inputs are the operator's own, who gains nothing by a collision. Source:
/// draft-eastlake-fnv, "The FNV Non-Cryptographic Hash Algorithm".
struct Digest(u128);

impl Digest {
    const OFFSET_BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

    fn new() -> Self {
        Self(Self::OFFSET_BASIS)
    }

    /// Adds a part with its length, so that parts cannot run into each other.
    fn part(&mut self, bytes: &[u8]) {
        let length = (bytes.len() as u64).to_be_bytes();
        for byte in length.iter().chain(bytes) {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(Self::PRIME);
        }
    }
}

#[cfg(test)]
mod tests {
    use hotrow_types::key::{CanonicalForm, Collation};

    use super::*;

    #[test]
    fn a_tag_depends_on_table_columns_and_types() {
        let tag = |table: &str, columns: &[&str], types: &[KeyType]| {
            let columns: Vec<String> = columns.iter().map(|c| (*c).to_owned()).collect();
            Tag::of(table, &columns, types)
        };
        let integer = KeyType::Integer;
        let all = [
            tag("a", &["id"], &[integer]),
            tag("ai", &["d"], &[integer]),
            tag("a", &["id"], &[KeyType::Unsigned]),
            tag("a", &["id", "x"], &[integer, integer]),
            tag("a", &["x", "id"], &[integer, integer]),
            tag("a", &["id"], &[KeyType::Text(Collation::Binary)]),
            tag("a", &["id"], &[KeyType::Text(Collation::RightTrim)]),
            tag("a", &["id"], &[KeyType::Canonical(CanonicalForm::Date)]),
            Tag::of_alias("a", &["id".to_owned()], &[integer]),
            tag("a", &["id"], &[integer]).embedding("b", "a_id"),
            tag("a", &["id"], &[integer]).embedding("b", "other"),
            tag("a", &["id"], &[integer]).embedding("ba", "_id"),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(all.iter().skip(i + 1).all(|b| a != b), "{i}");
        }
        // Instances of different builds must agree.
        assert_eq!(format!("{:?}", all[0]), format!("{:?}", tag("a", &["id"], &[integer])));
        assert_eq!(format!("{integer:?}"), "Integer");
        assert_eq!(format!("{:?}", KeyType::Text(Collation::Database)), "Text(Database)");
    }

    #[test]
    fn the_digest_is_fnv() {
        let mut digest = Digest::new();
        for byte in b"foobar" {
            digest.0 = (digest.0 ^ u128::from(*byte)).wrapping_mul(Digest::PRIME);
        }
        assert_eq!(digest.0, 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18);
    }
}
