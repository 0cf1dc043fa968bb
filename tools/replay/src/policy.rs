//! Interface of a cache policy for replays, and the policies.

mod hotrow;
mod lfu;
mod lru;
mod s3fifo;

pub use hotrow::{Hotrow, entry_bytes};
pub use lfu::Lfu;
pub use lru::Lru;
pub use s3fifo::{S3Fifo, S3Settings};

/// A read-through cache of a fixed number of entries.
pub trait Policy {
    /// Looks up `key` and inserts it after a miss. Returns true for a hit.
    fn get_or_insert(&mut self, key: u32) -> bool;

    /// Returns the current number of entries.
    fn entries(&self) -> usize;

    /// Replays a trace and returns its hits. A provided method, so that the call in the loop is
    /// direct.
    fn replay(&mut self, keys: &[u32]) -> u64 {
        keys.iter().map(|&key| u64::from(self.get_or_insert(key))).sum()
    }
}
