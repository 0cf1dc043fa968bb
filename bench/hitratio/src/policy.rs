//! What a cache policy must offer to be replayed, and the policies that are here only as a measure.
//!
//! To add a policy: implement [`Policy`] in a file of its own and name it in `candidates()` of `main.rs`.

mod hotrow;
mod lru;
mod quick;
mod s3fifo;

pub use hotrow::Hotrow;
pub use lru::Lru;
pub use quick::{Quick, QuickSettings};
pub use s3fifo::{S3Fifo, S3Settings};

/// A read-through cache of a fixed number of entries.
pub trait Policy {
    /// Looks `key` up and, when it is not there, puts it in. `true` is a hit.
    fn get_or_insert(&mut self, key: u32) -> bool;

    /// Entries held now.
    fn entries(&self) -> usize;

    /// Replays a trace and counts its hits. A provided method, so that the call in the loop is a direct one.
    fn replay(&mut self, keys: &[u32]) -> u64 {
        keys.iter().map(|&key| u64::from(self.get_or_insert(key))).sum()
    }
}
