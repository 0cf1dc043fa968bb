//! What the eviction policy needs of an entry.

use crate::record::{Presence, Record};

/// An entry of a shard. The store has records; a small copy of it that predicts hit ratios has
/// their weights alone, so that both run the same policy.
pub(crate) trait Entry {
    /// Returns the encoded key.
    fn key_bytes(&self) -> &[u8];

    /// Returns the weight in bytes.
    fn weight_bytes(&self) -> u64;

    /// Returns whether the database had the record.
    fn presence(&self) -> Presence;

    /// Returns whether both are the same version of one entry.
    fn is(&self, other: &Self) -> bool;
}

impl Entry for Record {
    #[inline]
    fn key_bytes(&self) -> &[u8] {
        Self::key_bytes(self)
    }

    fn weight_bytes(&self) -> u64 {
        Self::weight_bytes(self)
    }

    #[inline]
    fn presence(&self) -> Presence {
        Self::presence(self)
    }

    fn is(&self, other: &Self) -> bool {
        Self::is(self, other)
    }
}
