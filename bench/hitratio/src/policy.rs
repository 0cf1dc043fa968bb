//! Interface of a cache policy for replays, and the policies used for comparison.
//!
//! To add a policy, implement [`Policy`] in a file of its own and name it in `candidates()` of
//! `main.rs`.

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
