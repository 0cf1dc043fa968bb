//! Result of an addition to an entry.

/// Result of [`crate::Cache::attach_variant`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attached {
    /// The entry has the variant.
    Stored,
    /// The entry is gone, has another body, or has the variant already.
    Superseded,
    /// The entry with its variant is larger than any shard accepts.
    TooLarge,
}
